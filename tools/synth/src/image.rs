//! A machine's memory, and the page classes that a capture should find in it.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::class::Class;
use crate::content::{PAGE, PageBytes};
use crate::memmap::Map;
use crate::memory::Memory;
use crate::setup::Setup;

/// The memory of a crashed machine. Made by [`Machine::build`](crate::Machine::build).
#[derive(Clone, Debug)]
pub struct Image {
    pub(crate) setup: Setup,
    pub(crate) memory: Memory,
    pub(crate) map: Map,
    pub(crate) ram: Vec<(u64, u64)>,
    pub(crate) classes: BTreeMap<u64, Class>,
    pub(crate) kernel_pfns: Range<u64>,
    pub(crate) image_bytes: u64,
    pub(crate) vmcoreinfo: String,
    pub(crate) notes: Vec<u8>,
}

impl Image {
    /// Returns RAM as `start..end` in bytes, ascending.
    pub fn ram(&self) -> &[(u64, u64)] {
        &self.ram
    }

    /// Returns every PFN of which RAM holds at least a byte, ascending.
    pub fn pfns(&self) -> Vec<u64> {
        let shift = self.setup.page_shift();
        let mut pfns: Vec<u64> =
            self.ram.iter().flat_map(|&(start, end)| start >> shift..=(end - 1) >> shift).collect();
        pfns.dedup();
        pfns
    }

    /// Returns runs of PFNs of which RAM holds at least a byte, ascending: for machines too large to list.
    fn pfn_runs(&self) -> Vec<Range<u64>> {
        let shift = self.setup.page_shift();
        let mut runs: Vec<Range<u64>> = Vec::new();
        for &(start, end) in &self.ram {
            let run = start >> shift..((end - 1) >> shift) + 1;
            match runs.last_mut() {
                Some(last) if last.end >= run.start => last.end = run.end,
                _ => runs.push(run),
            }
        }
        runs
    }

    /// Returns one more than the highest PFN.
    pub fn max_mapnr(&self) -> u64 {
        self.pfn_runs().last().map_or(0, |run| run.end)
    }

    /// Bytes of a page.
    pub fn page_size(&self) -> usize {
        self.setup.page_bytes() as usize
    }

    /// Returns the bytes of a page of any size; those that RAM does not hold are zero.
    pub fn page_bytes(&self, pfn: u64) -> Vec<u8> {
        let frames = self.setup.page_bytes() / PAGE as u64;
        (pfn * frames..(pfn + 1) * frames).flat_map(|frame| self.page(frame)).collect()
    }

    /// Returns the bytes of a page of 4 KiB; those that RAM does not hold are zero.
    pub fn page(&self, pfn: u64) -> PageBytes {
        let mut page = self.memory.page(pfn);
        if !self.is_whole(pfn) {
            for (offset, byte) in page.iter_mut().enumerate() {
                let paddr = (pfn << 12) + offset as u64;
                if !self.ram.iter().any(|range| (range.0..range.1).contains(&paddr)) {
                    *byte = 0;
                }
            }
        }
        page
    }

    fn is_whole(&self, pfn: u64) -> bool {
        self.ram.iter().any(|range| range.0 <= pfn << 12 && (pfn + 1) << 12 <= range.1)
    }

    /// Returns whether every byte of the page is zero.
    pub fn is_zero(&self, pfn: u64) -> bool {
        self.memory.is_void(pfn) || self.page(pfn).iter().all(|&byte| byte == 0)
    }

    /// Reads bytes at `paddr`, whether or not RAM holds them.
    pub fn read(&self, paddr: u64, buf: &mut [u8]) {
        self.memory.read(paddr, buf);
    }

    /// Returns the page class that a capture should find.
    pub fn class(&self, pfn: u64) -> Class {
        self.classes.get(&pfn).copied().unwrap_or(Class::Kernel)
    }

    /// Returns the PFNs that a dump of `level` (bits 2, 4, 8, 16) holds, ascending. Bit 1 excludes no page:
    /// all zero pages have one descriptor's data.
    pub fn expected(&self, level: u32) -> Vec<u64> {
        let mut pfns = self.pfns();
        pfns.retain(|&pfn| !self.class(pfn).is_excluded(level));
        pfns
    }

    /// Returns the PFNs of the kernel, its page tables and its struct pages, which cannot be given a kind.
    pub fn kernel_pfns(&self) -> Range<u64> {
        self.kernel_pfns.clone()
    }

    /// Returns the text of VMCOREINFO.
    pub fn vmcoreinfo(&self) -> &str {
        &self.vmcoreinfo
    }

    /// Returns the ELF notes: NT_PRSTATUS for each CPU, then VMCOREINFO.
    pub fn notes(&self) -> &[u8] {
        &self.notes
    }

    /// Returns the virtual address of the struct page of `pfn`.
    pub fn struct_page_vaddr(&self, pfn: u64) -> u64 {
        self.map.vaddr(&self.setup, pfn)
    }

    /// Returns the physical address of the struct page of `pfn`.
    pub fn struct_page_paddr(&self, pfn: u64) -> u64 {
        self.map.paddr(&self.setup, pfn, 0)
    }

    /// Returns the start of the direct map.
    pub fn page_offset(&self) -> u64 {
        self.setup.page_offset()
    }

    /// Returns the virtual and the physical address of the kernel's first byte.
    pub fn text(&self) -> (u64, u64) {
        (self.setup.text(), self.setup.load)
    }

    /// Returns the physical address of the top page table, and the number of levels.
    pub fn page_tables(&self) -> (u64, u32) {
        (self.setup.load + self.setup.pgd(), self.setup.levels())
    }
}
