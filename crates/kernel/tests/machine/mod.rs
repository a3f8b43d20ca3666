//! Memory of a synthetic machine's kernel as bytes that tests change: struct pages, page tables, memory
//! sections, and the text of VMCOREINFO.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use pagehaul_machine::{KernelMapping, PageSize, PhysAddr};
use pagehaul_physmem::{PhysMemory, Piece, RangeMap, ReadError, View};
use pagehaul_synth::{Era, Image, Machine, note};

pub const SECTION_PAGES: u64 = 1 << 15;
/// Address bits of a page table entry.
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// Describes a machine whose first `sections` memory sections are free for a test: the kernel lies in the
/// next one.
pub fn machine(era: Era, sections: u64) -> Machine {
    let start = sections << 27;
    // Struct pages of 80 bytes, a memmap of small pages and page tables fit as well.
    let kernel = 16 << 20;
    let mut machine = Machine::new(era);
    machine.ram(0, start + kernel + (sections + 1) * (4 << 20)).load_at(start);
    machine
}

/// The kernel's memory: one range of physical memory, all that a scan reads.
pub struct KernelMemory {
    pub image: Image,
    /// VMCOREINFO; may be edited before [`finish`](Self::finish).
    pub text: String,
    /// Physical address of the first byte.
    start: u64,
    pub memory: Vec<u8>,
    notes: Vec<u8>,
    ranges: RangeMap,
    /// No window is longer, nor reaches over a multiple of it.
    pub window: usize,
    pub kernel_mapping: Option<KernelMapping>,
    /// Physical pages that the dump does not hold.
    pub lost: BTreeSet<u64>,
    /// Windows that views have shown.
    pub windows: AtomicU64,
}

impl KernelMemory {
    pub fn of(machine: &Machine) -> Self {
        Self::of_image(machine.build())
    }

    pub fn of_image(image: Image) -> Self {
        let pfns = image.kernel_pfns();
        let page = image.page_size() as u64;
        let (start, end) = (pfns.start * page, pfns.end * page);
        let mut memory = vec![0; (end - start) as usize];
        image.read(start, &mut memory);
        Self {
            text: image.vmcoreinfo().to_owned(),
            image,
            start,
            memory,
            notes: Vec::new(),
            ranges: RangeMap::new([Piece { start, end, stored: end - start, offset: 0 }]),
            window: usize::MAX,
            kernel_mapping: None,
            lost: BTreeSet::new(),
            windows: AtomicU64::new(0),
        }
    }

    /// Writes the struct pages of the first `pages` pages as `machine` describes them: faster than building
    /// it where every page has a block.
    pub fn put_struct_pages(&mut self, machine: &Machine, pages: u64) {
        self.put(self.at(0), &machine.struct_pages(0..pages));
    }

    /// Removes the lines of VMCOREINFO that contain one of `keys`.
    pub fn remove_lines(&mut self, keys: &[&str]) {
        let kept = self.text.lines().filter(|line| !keys.iter().any(|key| line.contains(key)));
        self.text = kept.fold(String::new(), |text, line| text + line + "\n");
    }

    /// Puts VMCOREINFO into the notes.
    pub fn finish(&mut self) -> &Self {
        self.notes = note("VMCOREINFO", 0, self.text.as_bytes());
        self
    }

    /// Index in `memory` of a physical address.
    pub fn index(&self, paddr: u64) -> usize {
        (paddr - self.start) as usize
    }

    /// Physical address of the struct page of `pfn`.
    pub fn at(&self, pfn: u64) -> u64 {
        self.image.struct_page_paddr(pfn)
    }

    /// Virtual address of the struct page of `pfn`.
    pub fn vat(&self, pfn: u64) -> u64 {
        self.image.struct_page_vaddr(pfn)
    }

    pub fn put(&mut self, paddr: u64, bytes: &[u8]) {
        let at = self.index(paddr);
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
    }

    pub fn put_u64(&mut self, paddr: u64, value: u64) {
        self.put(paddr, &value.to_le_bytes());
    }

    pub fn get_u64(&self, paddr: u64) -> u64 {
        u64::from_le_bytes(self.memory[self.index(paddr)..][..8].try_into().unwrap())
    }

    /// A number that VMCOREINFO states, in whatever base it is written.
    pub fn number(&self, key: &str) -> u64 {
        let value =
            self.image.vmcoreinfo().lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        let value = value.unwrap_or_else(|| panic!("no {key}"));
        if key.starts_with("SYMBOL") { u64::from_str_radix(value, 16) } else { value.parse() }.unwrap()
    }

    /// Sets bit number `bit` in the flags of a struct page.
    pub fn flag(&mut self, pfn: u64, bit: u64) {
        let at = self.at(pfn);
        self.put_u64(at, self.get_u64(at) | 1 << bit);
    }

    /// Clears it.
    pub fn clear_flag(&mut self, pfn: u64, bit: u64) {
        let at = self.at(pfn);
        self.put_u64(at, self.get_u64(at) & !(1 << bit));
    }

    pub fn mapping(&mut self, pfn: u64, value: u64) {
        self.put_u64(self.at(pfn) + self.number("OFFSET(page.mapping)"), value);
    }

    pub fn mapcount(&mut self, pfn: u64, value: u32) {
        self.put(self.at(pfn) + self.number("OFFSET(page._mapcount)"), &value.to_le_bytes());
    }

    pub fn private(&mut self, pfn: u64, value: u64) {
        self.put_u64(self.at(pfn) + self.number("OFFSET(page.private)"), value);
    }

    /// Physical addresses of the array of roots of `mem_section` (from 4.15 on) and of a section's entry.
    pub fn mem_section(&self, section: u64) -> (u64, u64) {
        let (text, load) = self.image.text();
        let array = self.get_u64(self.number("SYMBOL(mem_section)") - text + load) - self.image.page_offset();
        let root = self.get_u64(array + section / 256 * 8) - self.image.page_offset();
        (array, root + section % 256 * 16)
    }

    /// Replaces what the kernel knows of a memory section: its struct pages stay where they were.
    pub fn set_section(&mut self, section: u64, word: u64) {
        self.put_u64(self.mem_section(section).1, word);
    }

    /// Makes the first 2 MiB of the image executable, as its text is, and returns their PFNs.
    pub fn make_text(&mut self) -> Range<u64> {
        let (text, load) = self.image.text();
        let (mut table, levels) = self.image.page_tables();
        for level in (3..=levels).rev() {
            table = self.get_u64(table + (text >> (12 + (level - 1) * 9) & 511) * 8) & ADDRESS;
        }
        let entry_at = table + (text >> 21 & 511) * 8;
        let entry = self.get_u64(entry_at);
        assert!(
            entry & 0x81 == 0x81 && entry & ADDRESS == load,
            "{text:#x} is not mapped by a page of 2 MiB"
        );
        // Present and executable, not writable.
        self.put_u64(entry_at, entry & !(1 << 63 | 2));
        load >> 12..(load >> 12) + 512
    }

    /// Clears the page table entry of the 4 KiB page at `vaddr`.
    pub fn unmap(&mut self, vaddr: u64) {
        let (mut table, levels) = self.image.page_tables();
        for level in (2..=levels).rev() {
            let entry = self.get_u64(table + (vaddr >> (12 + (level - 1) * 9) & 511) * 8);
            assert!(entry & 0x81 == 1, "{vaddr:#x} is not mapped by a page of 4 KiB");
            table = entry & ADDRESS;
        }
        self.put_u64(table + (vaddr >> 12 & 511) * 8, 0);
    }
}

impl PhysMemory for KernelMemory {
    fn ranges(&self) -> &RangeMap {
        &self.ranges
    }

    fn mark_stored(&self, from: PhysAddr, bits: &mut [u64]) -> Result<(), ReadError> {
        self.ranges.mark_pages(from.pfn(PageSize::KIB_4), PageSize::KIB_4, true, bits);
        Ok(())
    }

    fn kernel_mapping(&self) -> Option<KernelMapping> {
        self.kernel_mapping
    }

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(KernelView(self))
    }

    fn notes(&self) -> &[u8] {
        &self.notes
    }

    fn files(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }
}

struct KernelView<'a>(&'a KernelMemory);

impl View for KernelView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        let machine = self.0;
        machine.windows.fetch_add(1, Ordering::Relaxed);
        let at = paddr.checked_sub(machine.start).map_or(usize::MAX, |at| at as usize);
        if at >= machine.memory.len() {
            return Err(ReadError::NotPresent { paddr });
        }
        if machine.lost.contains(&(paddr >> 12)) {
            return Err(ReadError::NotInDump { paddr });
        }
        let mut end = at.saturating_add(len).min(machine.memory.len());
        if machine.window != usize::MAX {
            end = end.min((at / machine.window + 1) * machine.window);
        }
        if let Some(lost) = machine.lost.range(paddr >> 12..).next() {
            end = end.min(machine.index(lost << 12));
        }
        Ok(&machine.memory[at..end])
    }
}
