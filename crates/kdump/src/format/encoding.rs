//! How a page is stored, according to its descriptor, checked against the file.

use std::ops::Range;

use pagehaul_codec::Codec;

use super::{PageDesc, flags};

/// Where page data may be: behind the headers, outside the tables, before the end of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Places {
    /// File offset of the first byte behind headers and notes.
    pub(crate) headers_end: u64,
    /// The bitmaps and descriptors.
    pub(crate) tables: Range<u64>,
    /// Bytes in the file.
    pub(crate) file_size: u64,
}

/// How a page is stored, or what is wrong with its descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    /// The descriptor is valid.
    Stored(Codec),
    /// Offset 0: the writer ended before it.
    Missing,
    /// Its bytes would be past the end of the file.
    Truncated,
    /// Its bytes would be in the headers or tables, or the offset is negative.
    BadOffset,
    /// No page has that many bytes when stored in this way.
    BadSize,
    /// Flags of no codec, or of several.
    Unknown,
}

impl Encoding {
    /// Interprets a descriptor of a dump with pages of `whole` bytes.
    pub(crate) fn of(desc: &PageDesc, places: &Places, whole: u32) -> Self {
        let size = desc.size.get();
        let Ok(offset) = u64::try_from(desc.offset.get()) else { return Self::BadOffset };
        if offset == 0 {
            return Self::Missing;
        }
        let codec = match desc.flags.get() {
            0 => Codec::None,
            flags::ZLIB => Codec::Zlib,
            flags::LZO => Codec::Lzo,
            flags::SNAPPY => Codec::Snappy,
            flags::ZSTD => Codec::Zstd,
            _ => return Self::Unknown,
        };
        if size == 0 || size > whole || (codec == Codec::None && size != whole) {
            return Self::BadSize;
        }
        // Both are below 2^63.
        let end = offset + u64::from(size);
        if offset < places.headers_end || (offset < places.tables.end && end > places.tables.start) {
            return Self::BadOffset;
        }
        if end > places.file_size { Self::Truncated } else { Self::Stored(codec) }
    }

    /// Describes what is wrong.
    pub(crate) fn complaint(self, desc: &PageDesc, file_size: u64) -> String {
        let (offset, size, flags) = (desc.offset, desc.size, desc.flags);
        match self {
            Self::Stored(codec) => format!("stored with {codec}"),
            Self::Missing => "the dump has no bytes for it, though it is not marked incomplete".into(),
            Self::Truncated => format!(
                "its {size} bytes at offset {offset:#x} are past the end of the file at {file_size:#x}"
            ),
            Self::BadOffset => format!("its descriptor points to offset {offset:#x}, where no pages are"),
            Self::BadSize => {
                format!("its descriptor says {size} bytes with flags {flags:#x}, which no page has")
            }
            Self::Unknown => format!("its descriptor has the unknown flags {flags:#x}"),
        }
    }
}
