//! Machines by hand: memory with page tables, memory sections and struct pages, laid out as a kernel of some era has
//! them. What the tests say about a page is said with the setters of [`Machine`]; everything else is zeros.
#![allow(dead_code, reason = "each test binary uses its part")]

use pagehaul_physmem::{PhysMemory, Piece, RangeMap, ReadError, View};

pub const START_KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;
pub const VMEMMAP: u64 = 0xffff_ea00_0000_0000;
const DIRECT_MAP: u64 = 0xffff_8880_0000_0000;
const SECTION_PAGES: u64 = 1 << 15;
/// Physical addresses of what every machine has.
const PGD: u64 = 0x10_0000;
const ROOTS: u64 = 0x20_0000;
const SECTION_ENTRIES: u64 = 0x20_8000;
const TABLES: u64 = 0x30_0000;
/// Struct pages start here, 2 MiB per section or more.
const MEMMAP: u64 = 0x200_0000;

/// How a kernel lays out `struct page` and exports it.
#[derive(Clone)]
pub struct Layout {
    pub size: u64,
    pub flags: u64,
    pub mapping: u64,
    pub mapcount: u64,
    pub private: u64,
    pub compound: u64,
    pub order: Order,
    pub lru: u32,
    pub private_bit: u32,
    pub swapcache: u32,
    pub swapbacked: u32,
    pub slab: Option<u32>,
    pub hwpoison: u32,
    pub head: u32,
    pub buddy: i64,
    pub offline: Option<i64>,
    pub hugetlb: Huge,
    pub mask: bool,
    pub info: String,
}

#[derive(Clone, Copy)]
pub enum Order {
    /// Offset in the first tail.
    Tail(u64),
    FlagsByte,
}

#[derive(Clone, Copy)]
pub enum Huge {
    /// Offset in the first tail.
    Dtor(u64),
    TailFlag(u32),
    Type(u32),
}

impl Layout {
    /// 4.4 to 4.9: swap cache a flag of its own, orders in words, `lru` at 32.
    pub fn v4_4() -> Self {
        Self {
            size: 64,
            flags: 0,
            mapping: 8,
            mapcount: 24,
            private: 48,
            compound: 32,
            order: Order::Tail(44),
            lru: 5,
            private_bit: 11,
            swapcache: 15,
            swapbacked: 18,
            slab: Some(7),
            hwpoison: 22,
            head: 14,
            buddy: -128,
            offline: None,
            hugetlb: Huge::Dtor(40),
            mask: false,
            info: "OSRELEASE=4.4.302\nOFFSET(page.compound_head)=32\nOFFSET(page.compound_dtor)=40\n\
                   OFFSET(page.compound_order)=44\nNUMBER(HUGETLB_PAGE_DTOR)=2\nSYMBOL(init_level4_pgt)=ffffffff80100000\n"
                .into(),
        }
    }

    /// 5.10 to 6.1.
    pub fn v5_10() -> Self {
        Self {
            mapping: 24,
            mapcount: 48,
            private: 40,
            compound: 8,
            order: Order::Tail(17),
            lru: 4,
            private_bit: 13,
            swapcache: 10,
            swapbacked: 19,
            slab: Some(9),
            hwpoison: 23,
            head: 16,
            buddy: -129,
            offline: Some(-257),
            hugetlb: Huge::Dtor(16),
            info: "OSRELEASE=5.10.218\nOFFSET(page.compound_head)=8\nOFFSET(page.compound_dtor)=16\n\
                   OFFSET(page.compound_order)=17\nNUMBER(HUGETLB_PAGE_DTOR)=2\nNUMBER(PG_swapbacked)=19\n\
                   NUMBER(PAGE_OFFLINE_MAPCOUNT_VALUE)=-257\nSYMBOL(init_top_pgt)=ffffffff80100000\n"
                .into(),
            ..Self::v4_4()
        }
    }

    /// 6.3 to 6.5: destructor and order in struct folio.
    pub fn v6_3() -> Self {
        Self {
            info: "OSRELEASE=6.3.13\nOFFSET(page.compound_head)=8\nOFFSET(folio._folio_dtor)=80\n\
                   OFFSET(folio._folio_order)=81\nNUMBER(HUGETLB_PAGE_DTOR)=2\nNUMBER(PG_swapbacked)=19\n\
                   NUMBER(PAGE_OFFLINE_MAPCOUNT_VALUE)=-257\nSYMBOL(init_top_pgt)=ffffffff80100000\n"
                .into(),
            ..Self::v5_10()
        }
    }

    /// 6.6 to 6.8: order in the first tail's flags, hugetlb a flag there.
    pub fn v6_6() -> Self {
        Self {
            order: Order::FlagsByte,
            lru: 5,
            private_bit: 15,
            swapcache: 12,
            slab: Some(11),
            head: 6,
            hugetlb: Huge::TailFlag(8),
            info: "OSRELEASE=6.6.35\nOFFSET(page.compound_head)=8\nNUMBER(PG_hugetlb)=8\nNUMBER(PG_swapbacked)=19\n\
                   NUMBER(PAGE_OFFLINE_MAPCOUNT_VALUE)=-257\nSYMBOL(init_top_pgt)=ffffffff80100000\n"
                .into(),
            ..Self::v5_10()
        }
    }

    /// 6.10 and 6.11: slab a page type; PG_waiters where it used to be a flag.
    pub fn v6_10() -> Self {
        Self {
            slab: None,
            hugetlb: Huge::Type(!0x800),
            info: "OSRELEASE=6.10.14\nOFFSET(page.compound_head)=8\nNUMBER(PG_swapbacked)=19\n\
                   NUMBER(PAGE_OFFLINE_MAPCOUNT_VALUE)=-257\nNUMBER(PAGE_SLAB_MAPCOUNT_VALUE)=-4097\n\
                   NUMBER(PAGE_HUGETLB_MAPCOUNT_VALUE)=-2049\nSYMBOL(init_top_pgt)=ffffffff80100000\n"
                .into(),
            ..Self::v6_6()
        }
    }

    /// 6.16: types in the top byte, printed as unsigned here and there.
    pub fn v6_16() -> Self {
        Self {
            buddy: 0xf000_0000,
            offline: Some(0xf100_0000),
            hugetlb: Huge::Type(0xf400_0000),
            info: "OSRELEASE=6.16.9\nOFFSET(page.compound_head)=8\nNUMBER(PG_swapbacked)=19\n\
                   NUMBER(PAGE_OFFLINE_MAPCOUNT_VALUE)=-251658240\nNUMBER(PAGE_SLAB_MAPCOUNT_VALUE)=4110417920\n\
                   NUMBER(PAGE_HUGETLB_MAPCOUNT_VALUE)=-201326592\nNUMBER(PAGE_UNACCEPTED_MAPCOUNT_VALUE)=-150994944\n\
                   SYMBOL(init_top_pgt)=ffffffff80100000\n"
                .into(),
            ..Self::v6_10()
        }
    }

    /// 7.1 with CONFIG_HUGETLB_PAGE_OPTIMIZE_VMEMMAP: masks in place of pointers.
    pub fn v7_1() -> Self {
        let mut layout = Self { mask: true, ..Self::v6_16() };
        layout.info = layout.info.replace("6.16.9", "7.1.2").replace("compound_head", "compound_info");
        layout
    }

    pub fn all() -> Vec<Self> {
        vec![
            Self::v4_4(),
            Self::v5_10(),
            Self::v6_3(),
            Self::v6_6(),
            Self::v6_10(),
            Self::v6_16(),
            Self::v7_1(),
        ]
    }

    fn text(&self) -> String {
        let mut text = self.info.clone();
        for (key, value) in [
            ("PAGESIZE", 4096),
            ("CRASHTIME", 1_750_000_000),
            ("NUMBER(phys_base)", 0),
            ("SIZE(page)", self.size),
            ("OFFSET(page.flags)", self.flags),
            ("OFFSET(page.mapping)", self.mapping),
            ("OFFSET(page._mapcount)", self.mapcount),
            ("OFFSET(page.private)", self.private),
            ("OFFSET(page.lru)", self.compound),
            ("SIZE(mem_section)", 16),
            ("LENGTH(mem_section)", 2048),
            ("OFFSET(mem_section.section_mem_map)", 0),
            ("LENGTH(zone.free_area)", 11),
            ("NUMBER(PG_lru)", self.lru.into()),
            ("NUMBER(PG_private)", self.private_bit.into()),
            ("NUMBER(PG_swapcache)", self.swapcache.into()),
            ("NUMBER(PG_hwpoison)", self.hwpoison.into()),
            ("NUMBER(PG_head_mask)", 1 << self.head),
        ] {
            text += &format!("{key}={value}\n");
        }
        if let Some(bit) = self.slab {
            text += &format!("NUMBER(PG_slab)={bit}\n");
        }
        text += &format!("NUMBER(PAGE_BUDDY_MAPCOUNT_VALUE)={}\n", self.buddy);
        text += &format!("SYMBOL(mem_section)={:x}\n", DIRECT_MAP + ROOTS);
        text
    }
}

/// A machine; physical memory is one stretch from 0.
pub struct Machine {
    pub layout: Layout,
    pub memory: Vec<u8>,
    /// VMCOREINFO; may be edited before [`Machine::finish`].
    pub text: String,
    notes: Vec<u8>,
    ranges: RangeMap,
    next_table: u64,
    sections: u64,
    /// No window is longer, nor reaches over a multiple of it.
    pub window: usize,
    /// Physical pages that cannot be read.
    pub lost: std::collections::BTreeSet<u64>,
}

impl Machine {
    /// A machine with `sections` sections of struct pages, mapped by 2 MiB pages where their size allows.
    pub fn new(layout: Layout, sections: u64) -> Self {
        let text = layout.text();
        let bytes = MEMMAP + (sections * SECTION_PAGES * layout.size).next_multiple_of(2 << 20) + (4 << 20);
        let mut machine = Self {
            layout,
            memory: vec![0; bytes as usize],
            text,
            notes: Vec::new(),
            ranges: RangeMap::new([Piece { start: 0, end: bytes, stored: bytes, offset: 0 }]),
            next_table: TABLES,
            sections,
            window: usize::MAX,
            lost: Default::default(),
        };
        machine.map(DIRECT_MAP, 0, 3);
        let size = machine.layout.size;
        for chunk in 0..(sections * SECTION_PAGES * size).div_ceil(2 << 20) {
            machine.map(VMEMMAP + (chunk << 21), MEMMAP + (chunk << 21), 2);
        }
        machine.put_u64(ROOTS, DIRECT_MAP + SECTION_ENTRIES);
        for section in 0..sections {
            // Present, with map, online, early; taint and preinit now and then, as later kernels have it.
            machine
                .put_u64(SECTION_ENTRIES + section * 16, VMEMMAP | [0b1111, 0b111111][section as usize % 2]);
        }
        for pfn in 0..sections * SECTION_PAGES {
            machine.put_u32(machine.at(pfn) + machine.layout.mapcount, u32::MAX);
        }
        machine
    }

    /// Takes the memory section away from the kernel: its struct pages stay where they were.
    pub fn remove_section(&mut self, section: u64, flags: u64) {
        self.put_u64(SECTION_ENTRIES + section * 16, flags);
    }

    /// Maps `vaddr` to `paddr` with a page of level 1, 2 or 3.
    pub fn map(&mut self, vaddr: u64, paddr: u64, leaf: u32) {
        let mut table = PGD;
        for level in (leaf + 1..=4).rev() {
            let entry = table + ((vaddr >> (12 + (level - 1) * 9)) & 511) * 8;
            let found = self.get_u64(entry);
            table = if found & 1 == 0 || found & 0x80 != 0 {
                let new = self.next_table;
                self.next_table += 4096;
                assert!(new < MEMMAP, "too many page tables");
                if found & 0x80 != 0 {
                    // Split the large page.
                    let step = 1u64 << (12 + (level - 2) * 9);
                    let bits = if level > 2 { 0xe3 } else { 0x63 };
                    for index in 0..512 {
                        self.put_u64(
                            new + index * 8,
                            ((found & 0x000f_ffff_ffe0_0000) + index * step) | bits,
                        );
                    }
                }
                self.put_u64(entry, new | 0x8000_0000_0000_0063);
                new
            } else {
                found & 0x000f_ffff_ffff_f000
            };
        }
        let bits = if leaf == 1 { 0x163 } else { 0x1e3 };
        let entry = table + ((vaddr >> (12 + (leaf - 1) * 9)) & 511) * 8;
        self.put_u64(entry, paddr | bits | 1 << 63);
    }

    /// Takes the mapping of the 4 KiB at `vaddr` away.
    pub fn unmap(&mut self, vaddr: u64) {
        self.map(vaddr, 0, 1);
        let mut table = PGD;
        for level in (2..=4).rev() {
            table =
                self.get_u64(table + ((vaddr >> (12 + (level - 1) * 9)) & 511) * 8) & 0x000f_ffff_ffff_f000;
        }
        self.put_u64(table + ((vaddr >> 12) & 511) * 8, 0);
    }

    /// Physical address of a struct page.
    pub fn at(&self, pfn: u64) -> u64 {
        MEMMAP + pfn * self.layout.size
    }

    /// Virtual address of a struct page.
    pub fn vat(&self, pfn: u64) -> u64 {
        VMEMMAP + pfn * self.layout.size
    }

    pub fn put_u64(&mut self, at: u64, value: u64) {
        self.memory[at as usize..at as usize + 8].copy_from_slice(&value.to_le_bytes());
    }

    pub fn put_u32(&mut self, at: u64, value: u32) {
        self.memory[at as usize..at as usize + 4].copy_from_slice(&value.to_le_bytes());
    }

    pub fn get_u64(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.memory[at as usize..at as usize + 8].try_into().unwrap())
    }

    pub fn flag(&mut self, pfn: u64, bit: u32) {
        let at = self.at(pfn) + self.layout.flags;
        self.put_u64(at, self.get_u64(at) | 1 << bit);
    }

    pub fn mapping(&mut self, pfn: u64, value: u64) {
        self.put_u64(self.at(pfn) + self.layout.mapping, value);
    }

    pub fn mapcount(&mut self, pfn: u64, value: u32) {
        self.put_u32(self.at(pfn) + self.layout.mapcount, value);
    }

    /// Free block.
    pub fn free(&mut self, pfn: u64, order: u64) {
        self.mapcount(pfn, self.layout.buddy as u32);
        self.put_u64(self.at(pfn) + self.layout.private, order);
    }

    pub fn anon(&mut self, pfn: u64) {
        self.flag(pfn, self.layout.lru);
        self.flag(pfn, self.layout.swapbacked);
        self.mapping(pfn, 0xffff_8881_0000_0001);
        self.mapcount(pfn, 0);
    }

    pub fn cache(&mut self, pfn: u64) {
        self.flag(pfn, self.layout.lru);
        self.mapping(pfn, 0xffff_8881_0000_1000);
    }

    pub fn slab(&mut self, pfn: u64) {
        match self.layout.slab {
            // Counters that look like a type, and a count of slabs that looks like an anonymous mapping.
            Some(bit) => {
                self.flag(pfn, bit);
                self.mapcount(pfn, self.layout.buddy as u32);
            }
            None if self.layout.buddy > 0 => self.mapcount(pfn, 0xf500_0003),
            None => self.mapcount(pfn, -4097_i32 as u32),
        }
        self.mapping(pfn, 7);
    }

    /// Makes the pages from `pfn` on one compound page.
    pub fn compound(&mut self, pfn: u64, order: u32) {
        self.flag(pfn, self.layout.head);
        let head = self.vat(pfn);
        for tail in pfn + 1..pfn + (1 << order) {
            if tail >= self.sections * SECTION_PAGES {
                break;
            }
            let word = if self.layout.mask { !((self.layout.size << order) - 1) | 1 } else { head | 1 };
            self.put_u64(self.at(tail) + self.layout.compound, word);
        }
        let first_tail = self.at(pfn + 1);
        match self.layout.order {
            Order::Tail(offset) => self.memory[(first_tail + offset) as usize] = order as u8,
            Order::FlagsByte => self.put_u64(first_tail + self.layout.flags, u64::from(order)),
        }
    }

    pub fn hugetlb(&mut self, pfn: u64, order: u32) {
        self.compound(pfn, order);
        match self.layout.hugetlb {
            Huge::Dtor(offset) => {
                let at = self.at(pfn + 1) + offset;
                self.memory[at as usize] = 2;
            }
            Huge::TailFlag(bit) => self.flag(pfn + 1, bit),
            Huge::Type(value) => self.mapcount(pfn, value),
        }
    }

    /// Maps the head's page of the vmemmap again in place of the others of the compound page of `order` at `pfn`.
    pub fn share_vmemmap(&mut self, pfn: u64, order: u32) {
        for page in 1..(self.layout.size << order) / 4096 {
            self.map(self.vat(pfn) + page * 4096, self.at(pfn), 1);
        }
    }

    /// Puts VMCOREINFO into the notes.
    pub fn finish(&mut self) -> &Self {
        self.notes.clear();
        for word in [11, self.text.len() as u32, 0] {
            self.notes.extend(word.to_le_bytes());
        }
        self.notes.extend(b"VMCOREINFO\0\0");
        self.notes.extend(self.text.as_bytes());
        self.notes.resize(self.notes.len().next_multiple_of(4), 0);
        self
    }
}

impl PhysMemory for Machine {
    fn ranges(&self) -> &RangeMap {
        &self.ranges
    }

    fn mark_stored(&self, first_pfn: u64, bits: &mut [u64]) -> Result<(), ReadError> {
        self.ranges.mark_pages(first_pfn, 12, true, bits);
        Ok(())
    }

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(MachineView(self))
    }

    fn notes(&self) -> &[u8] {
        &self.notes
    }

    fn files(&self) -> Vec<(u64, u64)> {
        Vec::new()
    }
}

struct MachineView<'a>(&'a Machine);

impl View for MachineView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        let machine = self.0;
        let start = usize::try_from(paddr).unwrap_or(usize::MAX);
        if start >= machine.memory.len() {
            return Err(ReadError::NotPresent { paddr });
        }
        if machine.lost.contains(&(paddr >> 12)) {
            return Err(ReadError::NotInDump { paddr });
        }
        let mut end = start.saturating_add(len).min(machine.memory.len());
        if machine.window != usize::MAX {
            end = end.min((start / machine.window + 1) * machine.window);
        }
        if let Some(lost) = machine.lost.range(paddr >> 12..).next() {
            end = end.min((lost << 12) as usize);
        }
        Ok(&machine.memory[start..end])
    }
}
