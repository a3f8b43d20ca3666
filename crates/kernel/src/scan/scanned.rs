//! Struct pages as a scan passes them on, with the classes of their pages.

use pagehaul_machine::Pfn;

use crate::class::PageClass;
use crate::kernel::Kernel;
use crate::rules::{PageLayout, half, word};

/// Consecutive pages with their struct pages.
#[derive(Clone, Copy)]
pub struct Scanned<'w> {
    layout: &'w PageLayout,
    first_pfn: Pfn,
    /// Virtual address of the first struct page.
    at: u64,
    classes: &'w [PageClass],
    structs: &'w [u8],
}

impl<'w> Scanned<'w> {
    pub(super) fn new(
        kernel: &'w Kernel,
        (first_pfn, at, classes): (Pfn, u64, &'w [PageClass]),
        structs: &'w [u8],
    ) -> Self {
        Self { layout: &kernel.rules().layout, first_pfn, at, classes, structs }
    }

    /// Returns the PFN of the first page.
    pub fn first_pfn(&self) -> Pfn {
        self.first_pfn
    }

    /// Returns the classes of the pages.
    pub fn classes(&self) -> &'w [PageClass] {
        self.classes
    }

    /// Returns the struct page of page `index`.
    #[inline]
    pub fn page(&self, index: usize) -> StructPage<'w> {
        let size = self.layout.size;
        StructPage {
            layout: self.layout,
            at: self.at.wrapping_add((index * size) as u64),
            bytes: self.structs.get(index * size..).and_then(|rest| rest.get(..size)).unwrap_or_default(),
        }
    }
}

/// One struct page. Fields that it does not have read as 0.
#[derive(Clone, Copy)]
pub struct StructPage<'w> {
    layout: &'w PageLayout,
    at: u64,
    bytes: &'w [u8],
}

impl<'w> StructPage<'w> {
    /// Returns a struct page that was read elsewhere, at the virtual address `at`.
    pub fn of(kernel: &'w Kernel, at: u64, bytes: &'w [u8]) -> Self {
        Self { layout: &kernel.rules().layout, at, bytes }
    }

    /// Returns its bytes.
    pub(crate) fn bytes(&self) -> &'w [u8] {
        self.bytes
    }

    /// Returns its virtual address.
    pub fn address(&self) -> u64 {
        self.at
    }

    /// Returns `page.flags`.
    #[inline]
    pub fn flags(&self) -> u64 {
        word(self.bytes, self.layout.flags)
    }

    /// Returns `page.mapping`.
    #[inline]
    pub fn mapping(&self) -> u64 {
        word(self.bytes, self.layout.mapping)
    }

    /// Returns `page._mapcount`, which is the page type of pages that no process maps.
    #[inline]
    pub fn mapcount(&self) -> u32 {
        half(self.bytes, self.layout.mapcount)
    }

    /// Returns the address of the head's struct page, of a tail of a compound page.
    #[inline]
    pub fn head(&self) -> Option<u64> {
        let compound = word(self.bytes, self.layout.compound);
        (compound & 1 != 0).then(|| PageLayout::head_of(self.at, compound))
    }

    /// Returns whether it is the head of a compound page, or shows that of another (HugeTLB's vmemmap optimization).
    #[inline]
    pub fn is_head(&self, kernel: &Kernel) -> bool {
        self.flags() & kernel.rules().head != 0
    }

    /// Returns the word of 8 bytes at `offset`.
    #[inline]
    pub fn word(&self, offset: usize) -> u64 {
        word(self.bytes, offset)
    }

    /// Returns the word of 4 bytes at `offset`.
    #[inline]
    pub fn half(&self, offset: usize) -> u32 {
        half(self.bytes, offset)
    }
}
