/// log2 of the bytes in the smallest page of any current machine.
const SMALLEST: u32 = 12;

/// The size of a machine's pages: 4, 8, 16, 32 or 64 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageSize {
    /// log2 of the bytes.
    shift: u32,
}

impl serde::Serialize for PageSize {
    /// Its bytes.
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.bytes() as u64)
    }
}

impl<'de> serde::Deserialize<'de> for PageSize {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = u64::deserialize(deserializer)?;
        Self::new(bytes)
            .ok_or_else(|| serde::de::Error::custom(format!("no machine has pages of {bytes} bytes")))
    }
}

impl PageSize {
    /// 4 KiB, as on x86_64.
    pub const KIB_4: Self = Self { shift: SMALLEST };
    /// The largest: arm64 and ppc64 have pages of 64 KiB.
    const LARGEST: u64 = 64 << 10;

    /// Returns the size of `bytes` bytes, if there are such pages.
    pub const fn new(bytes: u64) -> Option<Self> {
        let known = bytes.is_power_of_two() && bytes >= 1 << SMALLEST && bytes <= Self::LARGEST;
        if known { Some(Self { shift: bytes.trailing_zeros() }) } else { None }
    }

    /// log2 of its bytes.
    pub const fn shift(self) -> u32 {
        self.shift
    }

    /// Bytes of a page.
    pub const fn bytes(self) -> usize {
        1 << self.shift
    }

    /// Bytes of `pages` pages; more than 2^64 count as the largest number.
    pub const fn bytes_of(self, pages: u64) -> u64 {
        pages.saturating_mul(1 << self.shift)
    }

    /// How many pages of 4 KiB a page consists of: 1, 2, 4, 8 or 16.
    pub const fn parts(self) -> u64 {
        1 << (self.shift - SMALLEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sizes_of_real_machines_are_accepted() {
        for bytes in [4096, 8192, 16384, 32768, 65536] {
            let size = PageSize::new(bytes).unwrap();
            assert_eq!((size.bytes() as u64, size.parts() * 4096), (bytes, bytes));
        }
        assert_eq!(PageSize::new(4096), Some(PageSize::KIB_4));
        for bytes in [0, 1, 2048, 4097, 12288, 1 << 17, 1 << 63, u64::MAX] {
            assert_eq!(PageSize::new(bytes), None, "{bytes}");
        }
    }
}
