use std::io::Read;

/// The compressions trace-cmd knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Codec {
    None,
    Zlib,
    Zstd,
}

impl Codec {
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "none" => Some(Self::None),
            "zlib" => Some(Self::Zlib),
            "zstd" => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Unpacks `packed` to exactly `raw` bytes.
    pub(super) fn decompress(self, packed: &[u8], raw: usize) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        match self {
            Self::None => return Err("data is marked as compressed in a file without compression".into()),
            Self::Zlib => {
                let mut decoder = flate2::read::ZlibDecoder::new(packed).take(raw as u64 + 1);
                decoder.read_to_end(&mut out).map_err(|error| format!("zlib data is damaged: {error}"))?;
            }
            Self::Zstd => {
                if raw as u64 > zstd_bound(packed.len()) {
                    return Err(format!("{} bytes cannot unpack to {raw}", packed.len()));
                }
                out.resize(raw, 0);
                let count = zstd_safe::DCtx::create()
                    .decompress(out.as_mut_slice(), packed)
                    .map_err(|code| format!("zstd data is damaged: {}", zstd_safe::get_error_name(code)))?;
                out.truncate(count);
            }
        }
        if out.len() == raw {
            Ok(out)
        } else {
            Err(format!("compressed data unpacks to {} bytes instead of {raw}", out.len()))
        }
    }
}

/// Bytes that so many of zstd can unpack to at most: a block of 128 KiB takes four bytes or more (RFC 8878, 3.1.1.2). Keeps
/// memory from being allocated by the word of a damaged header.
pub(crate) fn zstd_bound(packed: usize) -> u64 {
    (packed as u64).saturating_mul((128 << 10) / 4)
}
