//! The crashed kernel: page tables, struct pages, rules.

use std::ops::Range;

use pagehaul_machine::{PageCount, PageSize, Pfn};
use pagehaul_physmem::{PhysMemory, View};

use crate::address_space::AddressSpace;
use crate::error::{KernelError, TranslateError};
use crate::rules::Rules;
use crate::sections::Sections;
use crate::undecidable::Undecidable;
use crate::{image, machine};

/// The crashed kernel: where its page tables and struct pages are, and how to read them. Shared by all threads.
#[derive(Debug, Clone)]
pub struct Kernel {
    space: AddressSpace,
    sections: Sections,
    rules: Rules,
    undecidable: Vec<Undecidable>,
    text: Vec<Range<u64>>,
}

impl Kernel {
    /// Reads everything that classification needs. Fails with the key that is missing.
    pub fn discover(memory: &dyn PhysMemory) -> Result<Self, KernelError> {
        let info = machine::info(memory)?;
        // Before any memory is read: without rules, finding the kernel is of no use.
        let (rules, undecidable) = Rules::new(&info)?;
        let space = AddressSpace::without_direct_map(info, memory)?;
        let translator = space.translator();
        let sections = Sections::discover(space.info(), translator, memory.view().as_mut())?;
        let space = space.with_direct_map(memory, Some(&sections));
        let text = image::text(&space, memory.view().as_mut());
        Ok(Self { space, sections, rules, undecidable, text })
    }

    /// Returns the kernel's virtual address space.
    pub fn space(&self) -> &AddressSpace {
        &self.space
    }

    pub(crate) fn sections(&self) -> &Sections {
        &self.sections
    }

    /// The pages of the kernel image's text, which is never freed: runs of PFNs, ascending. Empty if page tables do not tell.
    pub(crate) fn text(&self) -> &[Range<u64>] {
        &self.text
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns the size of the kernel's pages, which PFNs and blocks count.
    pub fn page_size(&self) -> PageSize {
        self.space.page_size()
    }

    /// Returns the size of a struct page.
    pub fn struct_page_size(&self) -> usize {
        self.rules.layout.size
    }

    /// Pages in a block: one memory section, 32,768 on x86_64 and since 5.12 on arm64 with pages of 4 KiB. A power of two, at least 256.
    pub fn pages_per_block(&self) -> usize {
        self.sections.pages() as usize
    }

    /// Returns the number of blocks that cover the pages below `end`.
    pub fn blocks(&self, end: Pfn) -> u64 {
        end.number().div_ceil(self.sections.pages())
    }

    /// Returns the PFNs of a block.
    pub fn block_pfns(&self, block: u64) -> Range<Pfn> {
        let first = Pfn::new(block.saturating_mul(self.sections.pages()));
        first..first + PageCount::new(self.sections.pages())
    }

    /// Returns the word at `offset` in the entry of a block's memory section (`struct mem_section`); `None` if it has no entry.
    ///
    /// # Errors
    /// Fails if the table of sections cannot be read there.
    pub fn section_word(
        &self,
        view: &mut dyn View,
        block: u64,
        offset: u64,
    ) -> Result<Option<u64>, TranslateError> {
        let translator = self.space.translator();
        let entry = self.sections.entry(translator, view, block)?;
        entry.map(|entry| translator.read_u64(view, entry.wrapping_add(offset))).transpose()
    }

    /// Returns the classes that cannot be determined. Their pages are kept.
    pub fn undecidable(&self) -> &[Undecidable] {
        &self.undecidable
    }
}
