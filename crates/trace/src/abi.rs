/// Byte order and word size of the traced machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Abi {
    /// Big-endian.
    pub big_endian: bool,
    /// Bytes of a kernel `long`: 4 or 8.
    pub long_size: u8,
}

impl Abi {
    /// The machine that this program runs on.
    pub const fn host() -> Self {
        Self { big_endian: cfg!(target_endian = "big"), long_size: size_of::<usize>() as u8 }
    }

    /// Decodes all of `bytes` (1, 2, 4 or 8) as an unsigned integer. Returns `None` for other lengths.
    #[inline]
    pub fn unsigned(self, bytes: &[u8]) -> Option<u64> {
        let value = match *bytes {
            [a] => return Some(u64::from(a)),
            [a, b] => {
                let value = u16::from_le_bytes([a, b]);
                return Some(u64::from(if self.big_endian { value.swap_bytes() } else { value }));
            }
            [a, b, c, d] => {
                let value = u32::from_le_bytes([a, b, c, d]);
                return Some(u64::from(if self.big_endian { value.swap_bytes() } else { value }));
            }
            [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            _ => return None,
        };
        Some(if self.big_endian { value.swap_bytes() } else { value })
    }
}
