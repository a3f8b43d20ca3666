//! A real dump with more memory: copies of its sections, one after the other, up to any size.
//!
//! The copies have the section table's entries of a machine of that size, which lead to the struct pages of the sections that were
//! copied. So each struct page is read and counted as often as there are copies of it, and takes no memory. The entries are in
//! pages that were free.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context, bail};
use pagehaul_elfcore::notes;
use pagehaul_kernel::{Kernel, PageClass, PageScanner, Translator, VmcoreInfo};
use pagehaul_machine::{KernelMapping, PageSize, PhysAddr, Platform};
use pagehaul_physmem::{PAGE_SIZE, PhysMemory, Piece, RangeMap, ReadError, View};

const PAGE: u64 = PAGE_SIZE as u64;
/// Bits of `section_mem_map` that say that the section has struct pages.
const HAS_MEM_MAP: u64 = 3;

/// The machine of a dump, with copies of its memory.
pub struct Grown<'a> {
    dump: &'a dyn PhysMemory,
    ranges: RangeMap,
    /// Memory of the dump that is copied: whole sections.
    copied: Range<u64>,
    /// Where the copies start.
    first: u64,
    /// Bytes that a page of entries describes: copies start anew after them.
    root: u64,
    /// Entries of their sections, by the addresses of pages of the dump.
    entries: BTreeMap<u64, [u8; PAGE_SIZE]>,
}

/// The section table of a dump.
struct Table {
    section: u64,
    struct_size: u64,
    entry: u64,
    map: u64,
    roots: u64,
    per_root: u64,
}

impl Table {
    fn of(info: &VmcoreInfo) -> anyhow::Result<Self> {
        let symbol = info.symbol("mem_section").context("VMCOREINFO has no SYMBOL(mem_section)")?;
        let entry = info.size("mem_section").context("VMCOREINFO has no SIZE(mem_section)")?;
        let bits = info.number("SECTION_SIZE_BITS").context("VMCOREINFO has no NUMBER(SECTION_SIZE_BITS)")?;
        Ok(Self {
            section: 1 << bits,
            struct_size: info.size("page").context("VMCOREINFO has no SIZE(page)")?,
            entry,
            map: info.offset("mem_section.section_mem_map").context("VMCOREINFO has no section_mem_map")?,
            // Of what the symbol points to, since a0b1280368d1 (4.16).
            roots: symbol,
            per_root: PAGE / entry,
        })
    }

    /// Returns a page of entries for the sections from `number` on: those of the sections `copied`, in turn.
    fn page(
        &self,
        number: u64,
        copied: &Range<u64>,
        tables: &Translator,
        view: &mut dyn View,
    ) -> anyhow::Result<[u8; PAGE_SIZE]> {
        let mut page = [0; PAGE_SIZE];
        let mut entry = vec![0; self.entry as usize];
        for (place, at) in page.chunks_exact_mut(self.entry as usize).zip(number..) {
            let from = copied.start + (at - number) % (copied.end - copied.start);
            let root = tables.read_u64(view, self.roots + from / self.per_root * 8)?;
            tables.read(view, root + from % self.per_root * self.entry, &mut entry)?;
            place.copy_from_slice(&entry);
            // The struct pages, less those of the PFNs before the section.
            let map = &mut place[self.map as usize..][..8];
            let value = u64::from_le_bytes(map.try_into()?);
            if value & HAS_MEM_MAP != HAS_MEM_MAP {
                bail!("section {from} of the dump has no struct pages");
            }
            let shift = (at - from) * (self.section / PAGE) * self.struct_size;
            map.copy_from_slice(&value.wrapping_sub(shift).to_le_bytes());
        }
        Ok(page)
    }
}

impl<'a> Grown<'a> {
    /// Adds copies of the memory of `dump` until it is `bytes`.
    pub fn new(dump: &'a dyn PhysMemory, kernel: &Kernel, bytes: u64) -> anyhow::Result<Self> {
        let (_, text) = notes::vmcoreinfo(dump.notes()).context("the dump has no VMCOREINFO")?;
        let info = VmcoreInfo::parse(text);
        let tables = kernel.space().translator();
        let mut view = dump.view();
        let table = Table::of(&info)?;
        let whole = whole_sections(dump.ranges(), table.section)?;
        // A root, which is a page of entries.
        let root_bytes = table.per_root * table.section;
        let first = dump.ranges().end().next_multiple_of(root_bytes);
        let copies = bytes.div_ceil(root_bytes);
        let mut free = free_pages(dump, kernel)?.into_iter();
        let direct_map = {
            let root = tables.read_u64(view.as_mut(), table.roots)?;
            root - tables.translate(view.as_mut(), root)?.paddr
        };
        let numbers = whole.start / table.section..whole.end / table.section;
        let mut entries = BTreeMap::new();
        for copy in 0..copies {
            let number = first / table.section + copy * table.per_root;
            let at = free.next().context("the dump has too few free pages")?;
            entries.insert(at, table.page(number, &numbers, tables, view.as_mut())?);
            let pointer = tables.translate(view.as_mut(), table.roots + number / table.per_root * 8)?.paddr;
            let page = entries.entry(pointer / PAGE * PAGE).or_insert_with(|| {
                let mut page = [0; PAGE_SIZE];
                // A page that cannot be read is found when it is needed.
                let _ = dump.view().read(pointer / PAGE * PAGE, &mut page);
                page
            });
            page[(pointer % PAGE) as usize..][..8].copy_from_slice(&(direct_map + at).to_le_bytes());
        }
        let added = first..first + copies * root_bytes;
        let piece = Piece { start: added.start, end: added.end, stored: added.end - added.start, offset: 0 };
        let ranges = RangeMap::new(dump.ranges().pieces().iter().copied().chain([piece]));
        Ok(Self { dump, ranges, copied: whole, first, root: root_bytes, entries })
    }
}

/// The longest run of sections of which the dump has all memory.
fn whole_sections(ranges: &RangeMap, section: u64) -> anyhow::Result<Range<u64>> {
    let runs = ranges.extents().map(|extent| {
        let start = extent.start.next_multiple_of(section);
        start..(extent.end / section * section).max(start)
    });
    let longest = runs.max_by_key(|run| run.end - run.start).filter(|run| !run.is_empty());
    longest.with_context(|| format!("the dump has no whole section of {section} bytes"))
}

/// Addresses of free pages.
fn free_pages(dump: &dyn PhysMemory, kernel: &Kernel) -> anyhow::Result<Vec<u64>> {
    let mut scanner = PageScanner::new(kernel, dump.view());
    let mut classes = vec![PageClass::Absent; kernel.pages_per_block()];
    let mut free = Vec::new();
    for block in 0..kernel.blocks(PhysAddr::new(dump.ranges().end()).next_pfn(kernel.page_size())) {
        scanner.scan(block, &mut classes)?;
        let first = kernel.block_pfns(block).start.number();
        let found = classes.iter().zip(first..).filter(|(class, _)| **class == PageClass::Free);
        free.extend(found.map(|(_, pfn)| pfn * PAGE));
    }
    Ok(free)
}

impl PhysMemory for Grown<'_> {
    fn ranges(&self) -> &RangeMap {
        &self.ranges
    }

    fn mark_stored(&self, from: PhysAddr, words: &mut [u64]) -> Result<(), ReadError> {
        self.ranges.mark_pages(from.pfn(PageSize::KIB_4), PageSize::KIB_4, true, words);
        Ok(())
    }

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(GrownView { machine: self, view: self.dump.view() })
    }

    fn notes(&self) -> &[u8] {
        self.dump.notes()
    }

    fn platform(&self) -> Platform {
        self.dump.platform()
    }

    fn files(&self) -> Vec<(u64, u64)> {
        self.dump.files()
    }

    fn kernel_mapping(&self) -> Option<KernelMapping> {
        self.dump.kernel_mapping()
    }

    fn direct_map(&self) -> Option<u64> {
        self.dump.direct_map()
    }
}

struct GrownView<'a> {
    machine: &'a Grown<'a>,
    view: Box<dyn View + 'a>,
}

impl View for GrownView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        let machine = self.machine;
        if paddr < machine.first {
            return match machine.entries.range(paddr / PAGE * PAGE..).next() {
                Some((&start, page)) if start <= paddr => {
                    let from = (paddr - start) as usize;
                    Ok(&page[from..PAGE_SIZE.min(from.saturating_add(len))])
                }
                next => {
                    let end = next.map_or(machine.first, |(start, _)| *start);
                    self.view.window(paddr, len.min((end - paddr) as usize))
                }
            };
        }
        if paddr >= machine.ranges.end() {
            return Err(ReadError::NotPresent { paddr });
        }
        let size = machine.copied.end - machine.copied.start;
        let in_root = (paddr - machine.first) % machine.root;
        let at = in_root % size;
        let end = (size - at).min(machine.root - in_root);
        self.view.window(machine.copied.start + at, len.min(end as usize))
    }

    fn end_of_hole(&self, paddr: u64) -> u64 {
        self.machine.ranges.next_start(paddr)
    }

    fn take_fault(&mut self) -> bool {
        self.view.take_fault()
    }
}
