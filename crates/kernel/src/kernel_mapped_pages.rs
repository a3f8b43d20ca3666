//! The pages that the kernel maps outside the direct map: a debugger needs them most.
//!
//! The page tables of the kernel's half of the address space, less the map of all memory, lead to the image, modules,
//! stacks (in vmalloc space since ba14a194a434, 4.9), per-CPU data and struct pages, whatever the kernel's version calls
//! them and wherever it puts them.

use std::collections::HashSet;
use std::ops::Range;

use pagehaul_machine::{Entry, PageSize};
use pagehaul_physmem::{PhysMemory, View};

use crate::direct_map::DirectMap;
use crate::kernel::Kernel;

/// Page tables that are read at most: damage, or KASAN's shadow with its many tables, must not delay a capture.
const MAX_TABLES: usize = 1 << 17;
/// Sections that are searched for the array of struct pages: 8 TiB from the start of memory.
const MAX_SECTIONS: u64 = 1 << 16;
/// Runs of pages kept per kind, which take 4 MiB.
const MAX_RUNS: usize = 1 << 18;
/// What the first chunk of per-CPU memory is made of (`PCPU_FC_EMBED` with `PMD_SIZE` on x86_64).
const PER_CPU_CHUNK: u64 = 2 << 20;

/// Runs of PFNs, ascending and apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelMappedPages {
    /// Page tables, and what is mapped to be written or read: data, stacks, per-CPU memory.
    pub data: Vec<Range<u64>>,
    /// Executable pages: text, which the debugger's vmlinux has, too.
    pub text: Vec<Range<u64>>,
    /// Struct pages.
    pub struct_pages: Vec<Range<u64>>,
    /// The page tables among `data`.
    pub tables: Vec<Range<u64>>,
}

impl Kernel {
    /// Returns the pages that the kernel maps outside its direct map. Empty if the direct map is unknown.
    pub fn kernel_mapped_pages(&self, memory: &dyn PhysMemory) -> KernelMappedPages {
        let Some(direct_map) = self.space().direct_map() else {
            return KernelMappedPages::default();
        };
        let mut search = Search {
            kernel: self,
            direct_map: DirectMap::new(
                direct_map,
                memory.ranges().end(),
                &self.space().translator().layout().direct_map_bounds(),
            ),
            struct_pages: self.struct_page_addresses(memory),
            view: memory.view(),
            held_bytes: memory.held_bytes(),
            seen: HashSet::new(),
            found: KernelMappedPages::default(),
        };
        let tables = self.space().translator().tables();
        search.table(tables.root, tables.levels, 0);
        search.early_allocations();
        let KernelMappedPages { data, text, struct_pages, tables } = search.found;
        let [data, text, struct_pages, tables] = [data, text, struct_pages, tables].map(merge);
        KernelMappedPages { data, text, struct_pages, tables }
    }

    /// Virtual addresses of struct pages, where they are one array (SPARSEMEM_VMEMMAP).
    fn struct_page_addresses(&self, memory: &dyn PhysMemory) -> Range<u64> {
        let mut view = memory.view();
        let size = self.rules().layout.size as u64;
        let pages = self.sections().pages();
        let shift = self.page_size().shift();
        let last = memory.ranges().end() >> shift;
        // Memory may start far above 0, and the source may claim 2^25 sections.
        let first = memory.ranges().pieces().first().map_or(0, |piece| piece.start >> shift) / pages;
        let end = last.div_ceil(pages).min(first.saturating_add(MAX_SECTIONS));
        let start = (first..end).find_map(|number| {
            let map = self.sections().map(self.space().translator(), view.as_mut(), number, size).ok()??;
            Some(map.wrapping_sub(number * pages * size))
        });
        start.map_or(0..0, |start| start..start.saturating_add(last.saturating_mul(size)))
    }
}

struct Search<'a> {
    kernel: &'a Kernel,
    view: Box<dyn View + 'a>,
    direct_map: DirectMap,
    /// Virtual addresses.
    struct_pages: Range<u64>,
    /// Bytes of memory that the source has.
    held_bytes: u64,
    seen: HashSet<u64>,
    found: KernelMappedPages,
}

impl Search<'_> {
    /// Adds the table at `paddr`, whose first entry maps `base` (bits above the address space's are not set), and
    /// what it leads to.
    fn table(&mut self, paddr: u64, level: u8, base: u64) {
        if self.seen.len() >= MAX_TABLES || !self.seen.insert(paddr) {
            return;
        }
        let tables = self.kernel.space().translator().tables();
        self.data(paddr, tables.page_size.bytes() as u64);
        add(&mut self.found.tables, tables.page_size, paddr, tables.page_size.bytes() as u64);
        let mut bytes = vec![0; tables.entries(level) * 8];
        if self.view.read(paddr, &mut bytes).is_err() {
            return;
        }
        let top = level == tables.levels;
        let shift = tables.shift(level);
        let first = if top { tables.first_kernel_entry } else { 0 };
        for (index, entry) in bytes.as_chunks::<8>().0.iter().enumerate().skip(first) {
            let vaddr = base | (index as u64) << shift;
            let vaddr = if top { vaddr | u64::MAX << (shift + tables.top_bits) } else { vaddr };
            let last = vaddr.saturating_add((1 << shift) - 1);
            if self.direct_map.extent(vaddr).and(self.direct_map.extent(last)).is_some() {
                continue;
            }
            match self.kernel.space().translator().layout().decode(u64::from_le_bytes(*entry), level, vaddr) {
                Entry::Table(paddr) => self.table(paddr, level - 1, vaddr),
                Entry::Page { paddr, text } => self.page(vaddr, paddr, 1 << shift, text),
                Entry::Nothing | Entry::Bad => {}
            }
        }
    }

    fn early_allocations(&mut self) {
        // They do not overlap in physical memory, unless page tables are damaged.
        let mut left = self.held_bytes;
        for range in self.kernel.early_allocations(self.view.as_mut()) {
            let page = self.kernel.page_size().bytes() as u64;
            let mut at = range.start & !(page - 1);
            while at < range.end && left > 0 {
                let Ok(extent) = self.kernel.space().translator().translate(self.view.as_mut(), at) else {
                    break;
                };
                let length = extent.len.min((range.end - at).next_multiple_of(page));
                self.data(extent.paddr, length);
                at += length;
                left = left.saturating_sub(length);
            }
        }
    }

    fn page(&mut self, vaddr: u64, paddr: u64, bytes: u64, text: bool) {
        let page_size = self.kernel.page_size();
        if self.direct_map.extent(vaddr).is_some_and(|direct| direct.paddr == paddr) {
            // What is left of the map of all memory where it shares a table with something else.
        } else if self.struct_pages.contains(&vaddr) {
            add(&mut self.found.struct_pages, page_size, paddr, bytes);
        } else if self.kernel.space().translator().layout().maps_per_cpu_pages(vaddr) {
            // It maps a few pages of a CPU's data; the others are next to them, in the direct map.
            self.data(paddr & !(PER_CPU_CHUNK - 1), PER_CPU_CHUNK);
        } else if text {
            add(&mut self.found.text, page_size, paddr, bytes);
        } else {
            self.data(paddr, bytes);
        }
    }

    fn data(&mut self, paddr: u64, bytes: u64) {
        add(&mut self.found.data, self.kernel.page_size(), paddr, bytes);
    }
}

fn add(runs: &mut Vec<Range<u64>>, page_size: PageSize, paddr: u64, bytes: u64) {
    let run = paddr >> page_size.shift()..paddr.saturating_add(bytes) >> page_size.shift();
    if let Some(last) = runs.last_mut().filter(|last| last.end == run.start) {
        last.end = run.end;
    } else if runs.len() < MAX_RUNS {
        runs.push(run);
    }
}

fn merge(mut runs: Vec<Range<u64>>) -> Vec<Range<u64>> {
    runs.sort_unstable_by_key(|run| run.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for run in runs {
        match merged.last_mut() {
            Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
            _ => merged.push(run),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_touch_or_overlap_become_one() {
        assert_eq!(merge(vec![8..9, 1..3, 2..4, 4..5, 0..1]), [0..5, 8..9]);
    }
}
