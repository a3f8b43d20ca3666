//! The offsets of the blocks in a kdump-compressed file that is being written.

use pagehaul_machine::PageSize;

use super::{KdumpSubHeader, MAX_NOTES, MAX_PFNS, PageDesc};

/// Why a dump cannot be laid out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// More page frames than the machine can address.
    #[error("{max_mapnr} page frames are too many for a dump: physical addresses of 52 bits have {MAX_PFNS}")]
    TooManyPages {
        /// One more than the highest PFN.
        max_mapnr: u64,
    },
    /// Notes of an implausible size.
    #[error(
        "{size} bytes of ELF notes do not fit in a dump, which has room for {MAX_NOTES}: the source's PT_NOTE is probably damaged"
    )]
    NotesTooLong {
        /// Bytes of the notes.
        size: u64,
    },
    /// The header's notes have another length than the layout's.
    #[error("the header has {found} bytes of notes, but the layout has room for {expected}")]
    NotesChanged {
        /// Bytes the layout was made for.
        expected: u64,
        /// Bytes found in the header.
        found: u64,
    },
    /// More pages to be dumped than there are page frames.
    #[error("a dump of {max_mapnr} page frames cannot hold {pages} pages")]
    TooManyDumped {
        /// Pages to be dumped.
        pages: u64,
        /// One more than the highest PFN.
        max_mapnr: u64,
    },
}

/// The blocks before the page data. Their offsets depend only on the machine's size, its pages' and the length of its notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    page_size: PageSize,
    max_mapnr: u64,
    notes_len: u64,
    sub_blocks: u32,
    bitmap_blocks: u32,
}

impl Layout {
    /// Lays out a machine with pages of `page_size` whose highest PFN is `max_mapnr - 1`, with `notes_len` bytes of ELF notes.
    pub fn new(page_size: PageSize, max_mapnr: u64, notes_len: u64) -> Result<Self, LayoutError> {
        if max_mapnr > MAX_PFNS {
            return Err(LayoutError::TooManyPages { max_mapnr });
        }
        if notes_len > MAX_NOTES {
            return Err(LayoutError::NotesTooLong { size: notes_len });
        }
        let block = page_size.bytes() as u64;
        let sub = (size_of::<KdumpSubHeader>() as u64 + notes_len).div_ceil(block);
        // A bitmap of no block would make both bitmaps look absent.
        let bitmap = max_mapnr.div_ceil(block * 8).max(1);
        // Neither is near 2^32: the limits above leave at most 2^16 + 1 and 2^26.
        Ok(Self { page_size, max_mapnr, notes_len, sub_blocks: sub as u32, bitmap_blocks: 2 * bitmap as u32 })
    }

    /// The size of the machine's pages, and of the file's blocks.
    pub fn page_size(&self) -> PageSize {
        self.page_size
    }

    /// Bytes of a block.
    pub fn block(&self) -> u64 {
        self.page_size.bytes() as u64
    }

    /// File offset of the sub header: the second block.
    pub(crate) fn sub_header_offset(&self) -> u64 {
        self.block()
    }

    /// File offset of the ELF notes: directly behind the sub header.
    pub fn notes_offset(&self) -> u64 {
        self.sub_header_offset() + size_of::<KdumpSubHeader>() as u64
    }

    /// One more than the highest PFN.
    pub fn max_mapnr(&self) -> u64 {
        self.max_mapnr
    }

    /// Bytes of ELF notes there is room for.
    pub(crate) fn notes_len(&self) -> u64 {
        self.notes_len
    }

    /// Blocks of the sub header and the notes.
    pub fn sub_blocks(&self) -> u32 {
        self.sub_blocks
    }

    /// Blocks of both bitmaps together.
    pub fn bitmap_blocks(&self) -> u32 {
        self.bitmap_blocks
    }

    /// Bytes of the header, the sub header and the notes, which start the file.
    pub fn header_len(&self) -> u64 {
        (1 + u64::from(self.sub_blocks)) * self.block()
    }

    /// Bytes of one bitmap, zero-padded to a block.
    pub fn bitmap_len(&self) -> u64 {
        u64::from(self.bitmap_blocks / 2) * self.block()
    }

    /// File offset of bitmap 1: which page frames exist.
    pub fn bitmap1_offset(&self) -> u64 {
        self.header_len()
    }

    /// File offset of bitmap 2: which pages are dumped.
    pub fn bitmap2_offset(&self) -> u64 {
        self.header_len() + self.bitmap_len()
    }

    /// File offset of the table of descriptors.
    pub fn descriptors_offset(&self) -> u64 {
        self.header_len() + 2 * self.bitmap_len()
    }

    /// File offset of the descriptor of the page that has `rank` dumped pages before it.
    ///
    /// `rank` is below 2^40, or the result is meaningless.
    pub fn descriptor_offset(&self, rank: u64) -> u64 {
        self.descriptors_offset().saturating_add(rank.saturating_mul(PageDesc::SIZE as u64))
    }

    /// File offset where page data may start when `pages` pages are dumped: the first block after their descriptors.
    /// Never 0, which in a descriptor means "missing".
    pub fn data_offset(&self, pages: u64) -> Result<u64, LayoutError> {
        if pages > self.max_mapnr {
            return Err(LayoutError::TooManyDumped { pages, max_mapnr: self.max_mapnr });
        }
        Ok(self.descriptor_offset(pages).next_multiple_of(self.block()))
    }

    /// File offset of the zero page that all pages of zeros share, when there is one: the first block of the data.
    pub fn zero_page_offset(&self, pages: u64) -> Result<u64, LayoutError> {
        self.data_offset(pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_each_other() {
        // 104 bytes of sub header and 3992 of notes fill one block exactly.
        let layout = Layout::new(PageSize::KIB_4, 32768 + 1, 3992).unwrap();
        assert_eq!(layout.sub_blocks(), 1);
        assert_eq!(layout.bitmap_blocks(), 4);
        assert_eq!(layout.bitmap1_offset(), 2 * 4096);
        assert_eq!(layout.bitmap2_offset(), 4 * 4096);
        assert_eq!(layout.descriptors_offset(), 6 * 4096);
        assert_eq!(layout.descriptor_offset(2), 6 * 4096 + 48);
        assert_eq!(layout.data_offset(1), Ok(7 * 4096));
        assert_eq!(Layout::new(PageSize::KIB_4, 32768, 3993).unwrap().sub_blocks(), 2);
        assert_eq!(Layout::new(PageSize::KIB_4, 32768, 0).unwrap().bitmap_blocks(), 2);
    }

    #[test]
    fn blocks_have_the_size_of_pages() {
        for block in [16384, 65536] {
            let pages = PageSize::new(block).unwrap();
            let layout = Layout::new(pages, block * 8 + 1, block - 104).unwrap();
            assert_eq!((layout.sub_blocks(), layout.bitmap_blocks()), (1, 4));
            assert_eq!((layout.sub_header_offset(), layout.notes_offset()), (block, block + 104));
            assert_eq!((layout.bitmap1_offset(), layout.bitmap2_offset()), (2 * block, 4 * block));
            assert_eq!((layout.descriptors_offset(), layout.data_offset(1)), (6 * block, Ok(7 * block)));
        }
    }

    #[test]
    fn the_largest_machine_fits_and_larger_ones_do_not() {
        let layout = Layout::new(PageSize::KIB_4, MAX_PFNS, MAX_NOTES).unwrap();
        assert_eq!(layout.bitmap_len(), MAX_PFNS / 8);
        assert!(layout.data_offset(MAX_PFNS).unwrap() > 24 * MAX_PFNS);
        assert_eq!(
            Layout::new(PageSize::KIB_4, MAX_PFNS + 1, 0),
            Err(LayoutError::TooManyPages { max_mapnr: MAX_PFNS + 1 })
        );
        assert_eq!(
            Layout::new(PageSize::KIB_4, 1, u64::MAX),
            Err(LayoutError::NotesTooLong { size: u64::MAX })
        );
        assert_eq!(
            Layout::new(PageSize::KIB_4, 8, 0).unwrap().data_offset(9),
            Err(LayoutError::TooManyDumped { pages: 9, max_mapnr: 8 })
        );
    }
}
