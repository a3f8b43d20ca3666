//! The memory model: which physical memory has struct pages, and where those are. SPARSEMEM cuts physical memory into
//! sections (128 MiB on x86_64), each with an array of struct pages (`include/linux/mmzone.h`).

use std::ops::Range;

use pagehaul_physmem::{PageState, View};

use crate::error::{KernelError, TranslateError};
use crate::translate::Translator;
use pagehaul_machine::{InfoError, VmcoreInfo};

/// Flags in the low bits of `section_mem_map`.
const PRESENT: u64 = 1 << 0;
const HAS_MEM_MAP: u64 = 1 << 1;
/// Clears the flags, in every kernel. Kernels have added flags (IS_ONLINE in 4.13, IS_EARLY in 5.3, TAINT_ZONE_DEVICE in
/// 5.12, VMEMMAP_PREINIT in 6.15), but the value is a multiple of 4 KiB: an array of struct pages starts on a page, and those
/// of a section fill whole pages.
const MAP_MASK: u64 = !0xfff;

/// MAX_PHYSMEM_BITS of riscv64; the others have 52 at most. No source has memory beyond 52 bits.
const MAX_MEMORY_BITS: u32 = 56;
/// Pages of a section at least: those of 1 MiB in pages of 4 KiB. Bitmaps are cut at sections.
const LEAST_PAGES: u32 = 256;
/// Roots read at most: as many as 52 bits of physical addresses need (`MAX_PHYSMEM_BITS`).
const MAX_ROOTS: u64 = 1 << 17;
/// Bytes of the table of roots that are read at once: no page is smaller.
const TABLE_PAGE: u64 = 4096;
/// Sections among which one is expected to be present: 8 TiB of addresses from the start of memory.
const MAX_TRIED: u64 = 1 << 16;

/// The table of sections, left where it is: entries are read when asked for, so that 64 TiB of RAM cost no more than 1 GiB.
#[derive(Debug, Clone)]
pub(crate) struct Sections {
    /// Virtual address of the table: of pointers to roots with SPARSEMEM_EXTREME, else of entries.
    table: u64,
    /// Entries per root; none without SPARSEMEM_EXTREME.
    per_root: Option<u64>,
    /// Entries altogether.
    count: u64,
    entry_size: u64,
    map_offset: u64,
    /// log2 of the pages in a section.
    pages_shift: u32,
}

impl Sections {
    pub(crate) fn discover(
        info: &VmcoreInfo,
        tables: &Translator,
        view: &mut dyn View,
    ) -> Result<Self, KernelError> {
        const PURPOSE: &str = "finding the struct pages";
        let symbol = info.required(info.symbol("mem_section"), "SYMBOL(mem_section)", PURPOSE)?;
        let entry_size = info.required(info.size("mem_section"), "SIZE(mem_section)", PURPOSE)?;
        let map_offset = info.required(
            info.offset("mem_section.section_mem_map"),
            "OFFSET(mem_section.section_mem_map)",
            PURPOSE,
        )?;
        if !(8..=4096).contains(&entry_size) || map_offset > entry_size - 8 {
            return Err(bad("SIZE(mem_section)", entry_size, "it must hold a pointer and fit a page"));
        }
        // 4f5aecdff25f (5.13) exports the first, 1d50e5d0c505 (5.8) the second.
        let (section_bits, memory_bits) = tables.layout().default_section_bits();
        let section_bits = info.number("SECTION_SIZE_BITS").unwrap_or(section_bits);
        let memory_bits = info.number("MAX_PHYSMEM_BITS").unwrap_or(memory_bits);
        let (Ok(section_bits), Ok(memory_bits)) = (u32::try_from(section_bits), u32::try_from(memory_bits))
        else {
            return Err(bad("NUMBER(SECTION_SIZE_BITS)", section_bits, "it is a positive number"));
        };
        if !(20..=34).contains(&section_bits) || !(section_bits..=MAX_MEMORY_BITS).contains(&memory_bits) {
            return Err(bad(
                "NUMBER(SECTION_SIZE_BITS)",
                section_bits,
                "sections of 1 MiB to 16 GiB are expected, and no more physical memory than 56 bits reach",
            ));
        }
        let page_shift = tables.tables().page_size.shift();
        if section_bits < page_shift + LEAST_PAGES.ilog2() {
            let expected = "sections of at least 256 pages are expected";
            return Err(bad("NUMBER(SECTION_SIZE_BITS)", section_bits, expected));
        }
        let count = 1u64 << (memory_bits - section_bits);
        let per_page = tables.tables().page_size.bytes() as u64 / entry_size;
        let roots = info.length("mem_section");
        let most = 1u64 << (52 - section_bits);
        let table = |table, per_root: Option<u64>| Self {
            table,
            per_root,
            count: roots.map_or(count, |roots| roots.saturating_mul(per_root.unwrap_or(1))).min(most),
            entry_size,
            map_offset,
            pages_shift: section_bits - page_shift,
        };
        // SPARSEMEM_EXTREME keeps a page of entries per root and exports how many roots there are; without it every entry
        // is a root. The length tells them apart where MAX_PHYSMEM_BITS is known; what the table looks like, always.
        let plain = table(symbol, None);
        if roots == Some(count) && plain.leads_somewhere(tables, view) {
            return Ok(plain);
        }
        let extreme = table(symbol, Some(per_page));
        if extreme.leads_somewhere(tables, view) {
            return Ok(extreme);
        }
        // 83e3c48729d9 (4.15) made mem_section a pointer, and exported where it is; a0b1280368d1 (4.16, stable 4.15) what it
        // points to.
        let pointed =
            tables.read_u64(view, symbol).map_err(|source| match tables.arch().absent_sections() {
                Some(why) if source.state() == PageState::Absent => KernelError::NoStructPages { why },
                _ => KernelError::Structure { what: "mem_section", source },
            })?;
        let pointed = table(pointed, Some(per_page));
        if pointed.leads_somewhere(tables, view) {
            return Ok(pointed);
        }
        if plain.leads_somewhere(tables, view) {
            return Ok(plain);
        }
        // What is lost says nothing of the notes.
        Err(match pointed.lost(per_page, tables, view) {
            Some(source) => KernelError::Structure { what: "table of memory sections", source },
            None => {
                let expected = "neither there nor where it points is a table of memory sections";
                bad("SYMBOL(mem_section)", format_args!("{symbol:x}"), expected)
            }
        })
    }

    /// Pages in a section.
    pub(crate) fn pages(&self) -> u64 {
        1 << self.pages_shift
    }

    /// Virtual addresses of the table of sections.
    pub(crate) fn table(&self, tables: &Translator, view: &mut dyn View) -> Vec<Range<u64>> {
        let range = |start: u64, length: u64| start..start.saturating_add(length);
        let Some(per_root) = self.per_root else {
            return vec![range(self.table, self.count.saturating_mul(self.entry_size))];
        };
        let mut found = vec![range(self.table, self.count.div_ceil(per_root) * 8)];
        let roots = self.roots(per_root, tables, view);
        found.extend(roots.into_iter().map(|root| range(root, per_root * self.entry_size)));
        found
    }

    /// Returns the addresses of roots, up to the first that cannot be read. Reads the table by pages: with 52 bits of physical
    /// addresses it has 2^17 words, each of which takes as many reads as there are levels of page tables, and one.
    fn roots(&self, per_root: u64, tables: &Translator, view: &mut dyn View) -> Vec<u64> {
        let end = self.table.saturating_add(self.count.div_ceil(per_root).min(MAX_ROOTS) * 8);
        let mut at = self.table;
        let mut found = Vec::new();
        let mut page = [0; TABLE_PAGE as usize];
        while at < end {
            let next = end.min((at / TABLE_PAGE + 1).saturating_mul(TABLE_PAGE));
            let bytes = page.get_mut(..(next - at) as usize).unwrap_or_default();
            if tables.read(view, at, bytes).is_ok() {
                found.extend(bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)));
            } else {
                let words = (at..next).step_by(8);
                found.extend(words.map_while(|at| tables.read_u64(view, at).ok()));
                break;
            }
            at = next;
        }
        found.retain(|root| *root != 0);
        found
    }

    /// Virtual address of the entry of section `number`; none where there is no root for it.
    pub(crate) fn entry(
        &self,
        tables: &Translator,
        view: &mut dyn View,
        number: u64,
    ) -> Result<Option<u64>, TranslateError> {
        if number >= self.count {
            return Ok(None);
        }
        let Some(per_root) = self.per_root else {
            return Ok(Some(self.table.wrapping_add(number.wrapping_mul(self.entry_size))));
        };
        let root = tables.read_u64(view, self.table.wrapping_add(number / per_root * 8))?;
        Ok((root != 0).then(|| root.wrapping_add(number % per_root * self.entry_size)))
    }

    /// Virtual address of the struct page of the first page of section `number`; none where the kernel manages no
    /// such memory.
    pub(crate) fn map(
        &self,
        tables: &Translator,
        view: &mut dyn View,
        number: u64,
        struct_size: u64,
    ) -> Result<Option<u64>, TranslateError> {
        let Some(entry) = self.entry(tables, view, number)? else { return Ok(None) };
        let map = tables.read_u64(view, entry.wrapping_add(self.map_offset))?;
        // Removing a section leaves bits behind (5.3 to 5.5: everything but these), so a value alone proves nothing.
        if map & (PRESENT | HAS_MEM_MAP) != PRESENT | HAS_MEM_MAP {
            return Ok(None);
        }
        // The value is what to add the struct page of any PFN to: the array's address less that of the first PFN's.
        let first_pfn = number << self.pages_shift;
        Ok(Some((map & MAP_MASK).wrapping_add(first_pfn.wrapping_mul(struct_size))))
    }

    /// Returns the virtual address of physical address 0 in the direct map: from VMCOREINFO, or from a root of sections, whose
    /// allocation is known by its address there. `None` if the roots hold no kernel pointers.
    pub(crate) fn direct_map(&self, tables: &Translator, view: &mut dyn View) -> Option<u64> {
        if let Some(known) = tables.layout().direct_map() {
            return Some(known);
        }
        let root = self.roots(self.per_root?, tables, view).into_iter().next()?;
        let start = root.wrapping_sub(tables.translate(view, root).ok()?.paddr);
        // KASLR moves it by whole gigabytes (`kernel_randomize_memory`, arch/x86/mm/kaslr.c).
        (is_kernels(start) && start.is_multiple_of(1 << 30)).then_some(start)
    }

    /// Whether a section of the table is present: the proof that the table is one. Those where memory starts are on any
    /// machine.
    fn leads_somewhere(&self, tables: &Translator, view: &mut dyn View) -> bool {
        let present = |at: u64, view: &mut dyn View| {
            tables
                .read_u64(view, at.wrapping_add(self.map_offset))
                .map(|map| map & PRESENT != 0 && is_kernels(map))
        };
        let tried = self.tried(tables, view);
        let Some(per_root) = self.per_root else {
            let entries = tried.map(|number| self.table.wrapping_add(number * self.entry_size));
            return entries.map(|at| present(at, view)).map_while(Result::ok).any(|found| found);
        };
        for number in tried.start / per_root..tried.end.div_ceil(per_root) {
            match tables.read_u64(view, self.table.wrapping_add(number * 8)) {
                Ok(0) => continue,
                // Anything but a pointer, an entry with its flags for one: this is no table of roots.
                Ok(root) if !is_kernels(root) || root % 8 != 0 => return false,
                Ok(root) => {
                    let mut entries = (0..per_root).map(|number| root.wrapping_add(number * self.entry_size));
                    if entries.any(|at| present(at, view).unwrap_or(false)) {
                        return true;
                    }
                }
                Err(_) => return false,
            }
        }
        false
    }

    /// Returns why the first entry of a table of roots cannot be read, if the source lost it.
    fn lost(&self, per_root: u64, tables: &Translator, view: &mut dyn View) -> Option<TranslateError> {
        let is_lost = |why: &TranslateError| matches!(why.state(), PageState::Missing | PageState::Damaged);
        let first = self.tried(tables, view).start / per_root;
        let root = match tables.read_u64(view, self.table.wrapping_add(first * 8)) {
            Ok(root) if is_kernels(root) => root,
            found => return found.err().filter(is_lost),
        };
        tables.read_u64(view, root.wrapping_add(self.map_offset)).err().filter(is_lost)
    }

    /// Numbers of the sections that `leads_somewhere` looks at.
    fn tried(&self, tables: &Translator, view: &mut dyn View) -> Range<u64> {
        // Memory of arm64 machines may start far above 0.
        let start = if view.window(0, 1).is_ok() { 0 } else { view.end_of_hole(0) };
        let first = start >> (self.pages_shift + tables.tables().page_size.shift());
        first.min(self.count)..first.saturating_add(MAX_TRIED).min(self.count)
    }
}

/// Whether a value may be an address of the kernel's: in the upper half, of whichever number of levels.
fn is_kernels(address: u64) -> bool {
    address >> 56 == 0xff
}

fn bad(key: &str, value: impl std::fmt::Display, expected: &'static str) -> KernelError {
    InfoError::BadValue { key: key.to_owned(), value: value.to_string(), expected }.into()
}
