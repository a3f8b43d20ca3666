//! Virtual and physical addresses of struct pages.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::block::Block;
use crate::content::PAGE;
use crate::era::Hvo;
use crate::memory::Memory;
use crate::setup::{Memmap, Setup};
use crate::structs::StructPages;

const LARGE: u64 = 0x20_0000;

/// Page frames of the memmap.
#[derive(Clone, Debug, Default)]
pub(crate) struct Map {
    /// Offset in the vmemmap / 2 MiB → physical address.
    pub large: BTreeMap<u64, u64>,
    /// Offset in the vmemmap / page size → physical address. Goes before `large`.
    pub small: BTreeMap<u64, u64>,
    /// Bytes of a page.
    page: u64,
    /// Section → physical address of its own memmap.
    sections: BTreeMap<u64, u64>,
}

impl Map {
    /// Allocates frames for the struct pages of every section with `allocate(bytes, alignment)`.
    pub fn lay(setup: &Setup, memory: &mut Memory, mut allocate: impl FnMut(u64, u64) -> u64) -> Self {
        let page = setup.page_bytes();
        let mut map = Self { page, ..Self::default() };
        let bytes = setup.section_pages() * setup.struct_page;
        for section in setup.sections() {
            let start = section * bytes;
            match setup.memmap {
                Memmap::PerSection => {
                    let paddr = allocate(bytes, page);
                    memory.lay_memmap(paddr, bytes, start);
                    map.sections.insert(section, paddr);
                }
                Memmap::VmemmapLarge => {
                    for chunk in start / LARGE..(start + bytes).div_ceil(LARGE) {
                        map.large.entry(chunk).or_insert_with(|| {
                            let paddr = allocate(LARGE, LARGE);
                            memory.lay_memmap(paddr, LARGE, chunk * LARGE);
                            paddr
                        });
                    }
                }
                Memmap::VmemmapSmall => {
                    // Backwards, so that consecutive pages are not consecutive in memory.
                    for index in (start / page..(start + bytes).div_ceil(page)).rev() {
                        map.small.entry(index).or_insert_with(|| {
                            let paddr = allocate(page, page);
                            memory.lay_memmap(paddr, page, index * page);
                            paddr
                        });
                    }
                }
            }
        }
        map
    }

    /// Frees the vmemmap pages of an optimized HugeTLB page. Returns the PFNs that become free.
    pub fn optimize(&mut self, setup: &Setup, block: Block) -> Vec<u64> {
        assert_eq!(setup.struct_page, 64, "the vmemmap is optimized only where struct pages fill pages");
        assert!(setup.memmap != Memmap::PerSection, "without a vmemmap there is none to optimize");
        assert!(block.order >= 7, "an order of {} has no vmemmap pages to spare", block.order);
        let first = block.pfn * 64 / PAGE as u64;
        let count = (64 << block.order) / PAGE as u64;
        let kept = match setup.era.hvo() {
            Hvo::No => panic!("kernels of {} do not optimize the vmemmap", setup.era.release()),
            Hvo::FakeHeads => first,
            Hvo::SharedTails => first + 1,
        };
        let frame = self.frame(kept * PAGE as u64);
        let mut freed = Vec::new();
        for index in kept + 1..first + count {
            freed.push(self.frame(index * PAGE as u64) / PAGE as u64);
            self.small.insert(index, frame);
        }
        freed
    }

    /// Returns the physical address of a byte of the vmemmap.
    fn frame(&self, offset: u64) -> u64 {
        match self.small.get(&(offset / self.page)) {
            Some(frame) => frame + offset % self.page,
            None => self.large[&(offset / LARGE)] + offset % LARGE,
        }
    }

    /// Returns the virtual address of the struct page of `pfn`.
    pub fn vaddr(&self, setup: &Setup, pfn: u64) -> u64 {
        match setup.memmap {
            Memmap::PerSection => setup.page_offset().wrapping_add(self.paddr(setup, pfn, 0)),
            _ => setup.vmemmap().wrapping_add(pfn * setup.struct_page),
        }
    }

    /// Returns the physical address of byte `at` of the struct page of `pfn`.
    pub fn paddr(&self, setup: &Setup, pfn: u64, at: u64) -> u64 {
        match setup.memmap {
            Memmap::PerSection => {
                let section = pfn / setup.section_pages();
                let Some(base) = self.sections.get(&section) else { panic!("PFN {pfn:#x} is in no section") };
                base + pfn % setup.section_pages() * setup.struct_page + at
            }
            _ => self.frame(pfn * setup.struct_page + at),
        }
    }

    /// Returns the address that `section_mem_map` encodes: where the struct page of PFN 0 would be.
    pub fn encoded(&self, setup: &Setup, section: u64) -> u64 {
        let first = section * setup.section_pages();
        self.vaddr(setup, first).wrapping_sub(first * setup.struct_page)
    }
}

/// The struct pages of a machine that is being built.
pub(crate) struct Mapped<'a> {
    pub setup: &'a Setup,
    pub memory: &'a mut Memory,
    pub map: &'a Map,
}

impl StructPages for Mapped<'_> {
    fn write(&mut self, pfn: u64, at: u64, bytes: &[u8]) {
        // Struct pages of 56 or 80 bytes cross frames.
        let mut done = 0;
        while done < bytes.len() {
            let paddr = self.map.paddr(self.setup, pfn, at + done as u64);
            let count = (PAGE - (paddr % PAGE as u64) as usize).min(bytes.len() - done);
            self.memory.write(paddr, &bytes[done..done + count]);
            done += count;
        }
    }

    fn flags(&self, pfn: u64) -> u64 {
        let mut word = [0; 8];
        for (at, byte) in word.iter_mut().enumerate() {
            self.memory.read(self.map.paddr(self.setup, pfn, at as u64), std::slice::from_mut(byte));
        }
        u64::from_le_bytes(word)
    }

    fn vaddr(&self, pfn: u64) -> u64 {
        self.map.vaddr(self.setup, pfn)
    }
}

/// Struct pages as one array outside any machine.
pub(crate) struct Array<'a> {
    setup: &'a Setup,
    first: u64,
    pub bytes: Vec<u8>,
}

impl<'a> Array<'a> {
    /// Returns the array of `pfns`, each struct page as after boot.
    pub fn new(setup: &'a Setup, pfns: Range<u64>) -> Self {
        let bytes = setup.pristine().repeat((pfns.end - pfns.start) as usize);
        Self { setup, first: pfns.start, bytes }
    }

    fn at(&self, pfn: u64, at: u64) -> usize {
        ((pfn - self.first) * self.setup.struct_page + at) as usize
    }
}

impl StructPages for Array<'_> {
    fn write(&mut self, pfn: u64, at: u64, bytes: &[u8]) {
        let at = self.at(pfn, at);
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn flags(&self, pfn: u64) -> u64 {
        let at = self.at(pfn, 0);
        self.bytes[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word))
    }

    fn vaddr(&self, pfn: u64) -> u64 {
        self.setup.vmemmap() + pfn * self.setup.struct_page
    }
}
