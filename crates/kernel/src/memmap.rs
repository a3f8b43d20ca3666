//! From the address of a struct page to its page.

use pagehaul_machine::{PageCount, Pfn, VirtAddr};
use pagehaul_physmem::View;

use crate::kernel::Kernel;

/// Where the struct pages of each memory section are: 16 bytes for a section.
#[derive(Debug, Clone)]
pub struct Memmap {
    /// Address of the first struct page and PFN of each present section, by address.
    sections: Vec<(VirtAddr, Pfn)>,
    /// Pages of a section.
    pages: PageCount,
    struct_size: u64,
}

impl Memmap {
    /// Reads the table of sections, for pages below `end`. Sections that cannot be read are left out.
    pub fn read(kernel: &Kernel, view: &mut dyn View, end: Pfn) -> Self {
        let struct_size = kernel.rules().layout.size as u64;
        let translator = kernel.space().translator();
        let mut sections = Vec::new();
        for block in 0..kernel.blocks(end) {
            if let Ok(Some(map)) = kernel.sections().map(translator, view, block, struct_size) {
                sections.push((VirtAddr::new(map), kernel.block_pfns(block).start));
            }
        }
        sections.sort_unstable();
        Self { sections, pages: PageCount::new(kernel.pages_per_block() as u64), struct_size }
    }

    /// Returns the size of a struct page.
    pub fn struct_size(&self) -> u64 {
        self.struct_size
    }

    /// Returns the page whose struct page is at `address`; `None` if none starts exactly there.
    pub fn pfn(&self, address: VirtAddr) -> Option<Pfn> {
        let after = self.sections.partition_point(|(start, _)| *start <= address);
        let (start, first) = self.sections.get(after.checked_sub(1)?)?;
        let offset = address.get() - start.get();
        let index = offset / self.struct_size;
        let exact = offset.is_multiple_of(self.struct_size) && index < self.pages.get();
        exact.then(|| *first + PageCount::new(index))
    }

    /// Returns the address of the struct page of `pfn`, in a section that is present.
    pub fn struct_page(&self, pfn: Pfn) -> Option<VirtAddr> {
        let first = Pfn::new(pfn.number() / self.pages.get() * self.pages.get());
        // Sections follow each other in a vmemmap, so their PFNs are sorted, too.
        let at = match self.sections.binary_search_by_key(&first, |(_, pfn)| *pfn) {
            Ok(at) => at,
            Err(_) => self.sections.iter().position(|(_, pfn)| *pfn == first)?,
        };
        let (start, _) = self.sections.get(at)?;
        Some(VirtAddr::new(start.get().wrapping_add(pfn.since(first).get() * self.struct_size)))
    }
}
