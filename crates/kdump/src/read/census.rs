use pagehaul_codec::Codec;
use pagehaul_physmem::ReadError;
use zerocopy::FromZeros;

use super::KdumpFile;
use crate::format::PageDesc;
use crate::format::encoding::Encoding;

/// Descriptors read at once: 96 KiB.
const BATCH: usize = 4096;

/// How the pages of a dump are stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    /// Pages stored uncompressed, including every zero page.
    pub raw: u64,
    /// Pages compressed with zlib.
    pub zlib: u64,
    /// Pages compressed with LZO1X.
    pub lzo: u64,
    /// Pages compressed with snappy.
    pub snappy: u64,
    /// Pages compressed with zstd.
    pub zstd: u64,
    /// Pages that the writer did not write: their descriptors have offset 0.
    pub missing: u64,
    /// Pages whose bytes or descriptors are past the end of the file, which was truncated.
    pub truncated: u64,
    /// Pages whose descriptors are invalid, or cannot be read.
    pub damaged: u64,
    /// Pages that share the lowest data offset, as all zero pages do; 0 if there are fewer than two.
    pub shared: u64,
    /// Bytes of page data; shared pages count once.
    pub stored_bytes: u64,
}

impl Census {
    /// Returns the number of pages that can be read.
    pub fn readable(&self) -> u64 {
        self.raw + self.zlib + self.lzo + self.snappy + self.zstd
    }
}

pub(super) fn take(dump: &KdumpFile) -> Result<Census, ReadError> {
    let mut census = Census::default();
    let mut lowest = Lowest { offset: u64::MAX, size: 0, pages: 0 };
    let file_size = dump.file.size();
    let held = file_size.saturating_sub(dump.sections.descriptors) / PageDesc::SIZE as u64;
    let count = dump.sections.count.min(held);
    census.truncated = dump.sections.count - count;
    let mut batch = vec![PageDesc::new_zeroed(); BATCH];
    let mut done = 0;
    while done < count {
        let some = &mut batch[..(count - done).min(BATCH as u64) as usize];
        let offset = dump.sections.descriptors + done * PageDesc::SIZE as u64;
        let readable = dump.read_descriptors(offset, some)?;
        for (index, desc) in some.iter().enumerate() {
            if !readable.holds(index) {
                census.damaged += 1;
                continue;
            }
            let mut desc = *desc;
            dump.byte_layout.descriptor(&mut desc);
            let encoding = dump.encoding(&desc);
            *census.counter(encoding) += 1;
            if let Encoding::Stored(_) = encoding {
                census.stored_bytes += u64::from(desc.size.get());
                lowest.see(&desc);
            }
        }
        done += some.len() as u64;
    }
    if lowest.pages > 1 {
        census.shared = lowest.pages;
        census.stored_bytes -= (lowest.pages - 1) * lowest.size;
    }
    Ok(census)
}

impl Census {
    fn counter(&mut self, encoding: Encoding) -> &mut u64 {
        match encoding {
            Encoding::Stored(Codec::None) => &mut self.raw,
            Encoding::Stored(Codec::Zlib) => &mut self.zlib,
            Encoding::Stored(Codec::Lzo) => &mut self.lzo,
            Encoding::Stored(Codec::Snappy) => &mut self.snappy,
            Encoding::Stored(Codec::Zstd) => &mut self.zstd,
            Encoding::Missing => &mut self.missing,
            Encoding::Truncated => &mut self.truncated,
            Encoding::BadOffset | Encoding::BadSize | Encoding::Unknown => &mut self.damaged,
        }
    }
}

/// The lowest data offset, and how many pages share it, found in one pass.
struct Lowest {
    offset: u64,
    size: u64,
    pages: u64,
}

impl Lowest {
    fn see(&mut self, desc: &PageDesc) {
        let (offset, size) = (desc.offset.get() as u64, u64::from(desc.size.get()));
        if offset < self.offset {
            *self = Self { offset, size, pages: 1 };
        } else if offset == self.offset && size == self.size {
            self.pages += 1;
        }
    }
}
