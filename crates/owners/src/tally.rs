//! Counting the pages of one block of struct pages: what each page says, in one pass.

use std::hash::Hash;
use std::ops::Range;

use pagehaul_kernel::{Kernel, PageClass, Scanned, StructPage};
use pagehaul_machine::{PageCount, Pfn};

use crate::claims::{Claimant, Claims, Cursor};
use crate::fields::{Fields, PageType};
use crate::fragments::{FragmentTally, Fragments};
use crate::page_blocks::PageBlocks;
use crate::report::RowKind;
use crate::seeded::SeededMap;
use crate::slot::Slot;

/// Distinct owners of one kind that are counted apart. A kernel has as many address spaces as it caches files.
const MAX_KEYS: usize = 4 << 20;
/// Runs of pages without an owner that are kept to look for references to them: 16 MiB.
const MAX_UNOWNED: usize = 1 << 20;
/// Flags in the low bits of `mapping`: anonymous, and pages that a driver can move (until 6.17); both are KSM's.
const ANON: u64 = 1;
const MOVABLE: u64 = 2;
const MAPPING_FLAGS: u64 = 3;

/// Pages of an address space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FilePages {
    pub(crate) pages: u64,
    pub(crate) dirty: u64,
    pub(crate) writeback: u64,
}

/// Counts of pages, by what they are counted as.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) rows: SeededMap<RowKind, u64>,
    pub(crate) reserved: u64,
    pub(crate) claims: SeededMap<u32, u64>,
    pub(crate) files: SeededMap<u64, FilePages>,
    pub(crate) perhaps: SeededMap<u64, FilePages>,
    pub(crate) anon: SeededMap<(u64, bool), u64>,
    pub(crate) anon_in_swap_cache: u64,
    pub(crate) shmem_in_swap_cache: u64,
    /// Anonymous pages that no process maps.
    pub(crate) unmapped: u64,
    pub(crate) hugetlb: SeededMap<u64, u64>,
    pub(crate) slab: SeededMap<u64, u64>,
    /// Slabs, of any number of pages.
    pub(crate) slabs: u64,
    pub(crate) chunks: u64,
    pub(crate) compound: u64,
    pub(crate) typed: SeededMap<u8, u64>,
    pub(crate) movable: SeededMap<u64, u64>,
    pub(crate) nothing: u64,
    pub(crate) fragments: FragmentTally,
    /// Those of them that no record of their allocation names: `unowned`, and what did not fit.
    pub(crate) searched: u64,
    /// Pages that nothing is known of.
    pub(crate) unowned: Vec<Range<Pfn>>,
    /// Pages whose owner had no room in the tables.
    pub(crate) cut: u64,
    /// The first struct page that contradicts itself.
    pub(crate) inconsistency: Option<(Pfn, String)>,
}

impl Tally {
    fn add(&mut self, slot: Slot, pages: u64) {
        let mut cut = 0;
        match slot {
            Slot::Row(row) => *self.rows.entry(row).or_default() += pages,
            Slot::Reserved => self.reserved += pages,
            Slot::Claim(claimant) => *self.claims.entry(claimant).or_default() += pages,
            Slot::File { mapping, dirty, writeback, swap_cache } => {
                self.shmem_in_swap_cache += pages * u64::from(swap_cache);
                cut = of(&mut self.files, mapping, pages, |file| file.add(pages, dirty, writeback));
            }
            Slot::Perhaps { mapping, dirty } => {
                cut = of(&mut self.perhaps, mapping, pages, |file| file.add(pages, dirty, false));
            }
            Slot::Anon { anon_vma, ksm, swap_cache, mapped } => {
                self.anon_in_swap_cache += pages * u64::from(swap_cache);
                self.unmapped += pages * u64::from(!mapped);
                cut = of(&mut self.anon, (anon_vma, ksm), pages, |count| *count += pages);
            }
            Slot::HugeTlb(mapping) => cut = of(&mut self.hugetlb, mapping, pages, |count| *count += pages),
            Slot::Slab(cache) => cut = of(&mut self.slab, cache, pages, |count| *count += pages),
            Slot::Chunk => self.chunks += pages,
            Slot::Compound => self.compound += pages,
            Slot::Typed(number) => *self.typed.entry(number).or_default() += pages,
            Slot::Movable(mapping) => cut = of(&mut self.movable, mapping, pages, |count| *count += pages),
            Slot::Nothing { .. } => self.nothing += pages,
        }
        self.cut += cut;
    }

    /// Returns how many owners and runs of pages it has, which take its memory.
    pub(crate) fn len(&self) -> usize {
        let of_files = self.files.len() + self.perhaps.len() + self.hugetlb.len() + self.movable.len();
        of_files + self.anon.len() + self.slab.len() + self.fragments.by.len() + self.unowned.len()
    }

    /// Moves the counts of another part here. The part keeps the room of its tables.
    pub(crate) fn take(&mut self, part: &mut Self) {
        for (row, pages) in part.rows.drain() {
            *self.rows.entry(row).or_default() += pages;
        }
        for (claimant, pages) in part.claims.drain() {
            *self.claims.entry(claimant).or_default() += pages;
        }
        for (number, pages) in part.typed.drain() {
            *self.typed.entry(number).or_default() += pages;
        }
        for (all, added) in [(&mut self.files, &mut part.files), (&mut self.perhaps, &mut part.perhaps)] {
            for (mapping, more) in added.drain() {
                self.cut += of(all, mapping, more.pages, |file| file.merge(more));
            }
        }
        for (key, pages) in part.anon.drain() {
            self.cut += of(&mut self.anon, key, pages, |count| *count += pages);
        }
        let counts = [
            (&mut self.hugetlb, &mut part.hugetlb),
            (&mut self.slab, &mut part.slab),
            (&mut self.movable, &mut part.movable),
        ];
        for (all, added) in counts {
            for (key, pages) in added.drain() {
                self.cut += of(all, key, pages, |count| *count += pages);
            }
        }
        self.fragments.take(&mut part.fragments);
        let room = MAX_UNOWNED.saturating_sub(self.unowned.len());
        self.unowned.extend(part.unowned.drain(..).take(room));
        if let Some(found) = part.inconsistency.take() {
            self.note(found);
        }
        let numbers = [
            (&mut self.reserved, &mut part.reserved),
            (&mut self.anon_in_swap_cache, &mut part.anon_in_swap_cache),
            (&mut self.shmem_in_swap_cache, &mut part.shmem_in_swap_cache),
            (&mut self.unmapped, &mut part.unmapped),
            (&mut self.slabs, &mut part.slabs),
            (&mut self.chunks, &mut part.chunks),
            (&mut self.compound, &mut part.compound),
            (&mut self.nothing, &mut part.nothing),
            (&mut self.cut, &mut part.cut),
        ];
        for (sum, number) in numbers {
            *sum += std::mem::take(number);
        }
    }

    /// Keeps the first inconsistency.
    pub(crate) fn note(&mut self, found: (Pfn, String)) {
        if self.inconsistency.as_ref().is_none_or(|known| found.0 < known.0) {
            self.inconsistency = Some(found);
        }
    }
}

impl FilePages {
    pub(crate) fn merge(&mut self, more: Self) {
        self.pages += more.pages;
        self.dirty += more.dirty;
        self.writeback += more.writeback;
    }

    fn add(&mut self, pages: u64, dirty: bool, writeback: bool) {
        self.pages += pages;
        self.dirty += pages * u64::from(dirty);
        self.writeback += pages * u64::from(writeback);
    }
}

/// Changes the entry of a key. Returns the pages that are cut, because the table is full.
fn of<K: Eq + Hash, V: Default>(
    all: &mut SeededMap<K, V>,
    key: K,
    pages: u64,
    change: impl FnOnce(&mut V),
) -> u64 {
    if all.len() >= MAX_KEYS && !all.contains_key(&key) {
        return pages;
    }
    change(all.entry(key).or_default());
    0
}

/// What the pages of all blocks are counted by.
pub(crate) struct Rules<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) fields: Fields,
    pub(crate) claims: Claims,
    /// Addresses of the chunks of per-CPU memory, ascending.
    pub(crate) chunks: Vec<u64>,
    pub(crate) blocks: PageBlocks,
    /// The end of the machine's pages.
    pub(crate) end: Pfn,
}

/// Called with runs of pages.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(Slot, &Range<Pfn>);

/// Counts the pages of one block.
pub(crate) struct Counter<'a> {
    rules: &'a Rules<'a>,
    cursor: Cursor<'a>,
    /// Reads the heads of compound pages that begin before the block.
    read: &'a mut dyn FnMut(PageClass, u64) -> Option<Slot>,
    run: Option<(Slot, Range<Pfn>)>,
    /// Address of the struct page of the last head, and what its pages are counted as.
    head: Option<(u64, Slot)>,
    fragments: Fragments<'a>,
    /// Called with each run of pages that are counted alike.
    visit: Option<Visit<'a>>,
    tally: &'a mut Tally,
}

impl<'a> Counter<'a> {
    pub(crate) fn new(
        rules: &'a Rules<'_>,
        first_pfn: Pfn,
        read: &'a mut dyn FnMut(PageClass, u64) -> Option<Slot>,
        visit: Option<Visit<'a>>,
        tally: &'a mut Tally,
    ) -> Self {
        Self {
            rules,
            cursor: rules.claims.cursor(first_pfn),
            read,
            run: None,
            head: None,
            fragments: Fragments::new(&rules.blocks, first_pfn),
            visit,
            tally,
        }
    }

    /// Counts pages that follow those of the last call.
    pub(crate) fn count(&mut self, scanned: &Scanned<'_>) {
        let first = scanned.first_pfn();
        let mut index = 0;
        let classes = scanned.classes();
        while let Some(class) = classes.get(index) {
            let pfn = first + PageCount::new(index as u64);
            let row = match class {
                PageClass::Absent => None,
                PageClass::Free => Some(RowKind::Free),
                PageClass::Unaccepted => Some(RowKind::Unaccepted),
                PageClass::HwPoison => Some(RowKind::HwPoison),
                PageClass::Offline => Some(RowKind::Offline),
                PageClass::PageTable => Some(RowKind::PageTables),
                PageClass::Undecided => Some(RowKind::Undecided),
                _ => {
                    let page = scanned.page(index);
                    let slot = self.slot(*class, pfn, &page);
                    self.put(slot, pfn, PageCount::new(1));
                    index += 1;
                    continue;
                }
            };
            // Pages of these classes come in runs.
            let rest = classes.get(index..).unwrap_or_default();
            let same = rest.iter().position(|other| other != class).unwrap_or(rest.len());
            if row == Some(RowKind::Free) {
                let run = index..index + same;
                self.fragments.free(&mut self.tally.fragments, scanned, run, self.rules.fields.private);
            }
            if let Some(row) = row {
                self.put(Slot::Row(row), pfn, PageCount::new(same as u64));
            }
            index += same;
        }
    }

    /// Returns what the page before `pfn` is counted as, if it is a page table.
    fn directory(&self, pfn: Pfn) -> Option<Slot> {
        let (slot, _) = self.run.as_ref().filter(|(_, run)| run.end == pfn)?;
        let is_table = match slot {
            Slot::Row(row) => *row == RowKind::PageTables,
            Slot::Claim(claimant) => {
                self.rules.claims.claimants.get(*claimant as usize) == Some(&Claimant::PageTable)
            }
            _ => false,
        };
        is_table.then_some(*slot)
    }

    /// Counts pages whose struct pages cannot be read.
    pub(crate) fn finish(mut self, unread: u64) {
        self.flush();
        if unread > 0 {
            self.tally.add(Slot::Row(RowKind::Undecided), unread);
        }
    }

    fn flush(&mut self) {
        if let Some((slot, pages)) = self.run.take() {
            let claimants = &self.rules.claims.claimants;
            let is_listed = |claimant: u32| claimants.get(claimant as usize) == Some(&Claimant::PerCpuList);
            self.fragments.run(&mut self.tally.fragments, slot, &pages, is_listed);
            if matches!(slot, Slot::Nothing { .. }) {
                self.tally.unowned.push(pages.clone());
            }
            if let Some(visit) = &mut self.visit {
                visit(slot, &pages);
            }
            self.tally.add(slot, pages.end.since(pages.start).get());
        }
    }

    #[inline]
    fn put(&mut self, slot: Slot, pfn: Pfn, pages: PageCount) {
        match &mut self.run {
            Some((last, run)) if *last == slot && run.end == pfn => run.end = run.end + pages,
            _ => {
                self.flush();
                self.run = Some((slot, pfn..pfn + pages));
            }
        }
    }

    #[inline]
    fn slot(&mut self, class: PageClass, pfn: Pfn, page: &StructPage<'_>) -> Slot {
        if let Some(head_at) = page.head() {
            return match self.head {
                Some((known, slot)) if known == head_at => slot,
                _ => {
                    let slot = (self.read)(class, head_at).unwrap_or(Slot::Row(RowKind::Undecided));
                    self.head = Some((head_at, slot));
                    slot
                }
            };
        }
        let own = self.rules.own(class, page);
        self.tally.slabs += u64::from(class == PageClass::Slab);
        let slot = match (own, self.cursor.at(pfn)) {
            // Claims are for pages without a mark.
            (Slot::Nothing { .. } | Slot::Compound | Slot::Perhaps { .. }, Some(claimant)) => {
                Slot::Claim(claimant)
            }
            // The rest of a page directory of two pages (page table isolation).
            (Slot::Nothing { continues: true }, None) => self.directory(pfn).unwrap_or(own),
            _ => own,
        };
        self.head = Some((page.address(), slot));
        slot
    }
}

impl Rules<'_> {
    /// Returns what a single page or a head is counted as, by its own struct page.
    pub(crate) fn own(&self, class: PageClass, page: &StructPage<'_>) -> Slot {
        let fields = &self.fields;
        let flags = page.flags();
        let swap_cache = fields.in_swap_cache(flags);
        match class {
            PageClass::Slab => Slot::Slab(fields.cache_of(page)),
            PageClass::HugeTlb => Slot::HugeTlb(page.mapping()),
            PageClass::Cache | PageClass::CachePrivate => Slot::File {
                // Only pages of address spaces have a mapping here; one in the swap cache has none.
                mapping: page.mapping() & !MAPPING_FLAGS,
                dirty: flags & fields.dirty != 0,
                writeback: flags & fields.writeback != 0,
                swap_cache: swap_cache && page.mapping() == 0,
            },
            PageClass::Anon => Slot::Anon {
                anon_vma: page.mapping() & !MAPPING_FLAGS,
                ksm: page.mapping() & MAPPING_FLAGS == MAPPING_FLAGS,
                swap_cache,
                // Large folios count mappings elsewhere, too.
                mapped: page.mapcount() != u32::MAX || page.is_head(self.kernel),
            },
            PageClass::Kernel => self.kernel_page(page, flags),
            _ => Slot::Row(RowKind::Undecided),
        }
    }

    fn kernel_page(&self, page: &StructPage<'_>, flags: u64) -> Slot {
        let fields = &self.fields;
        if flags & fields.reserved != 0 {
            return Slot::Reserved;
        }
        let mapcount = page.mapcount();
        if (mapcount as i32) < -1 {
            return match fields.page_type(mapcount) {
                Some(PageType::Table) => Slot::Row(RowKind::PageTables),
                Some(PageType::LargeKmalloc) => Slot::Row(RowKind::LargeKmalloc),
                Some(PageType::Zsmalloc) => Slot::Row(RowKind::Zsmalloc),
                Some(PageType::PagePool) => Slot::Row(RowKind::PagePool),
                Some(PageType::Guard | PageType::Other(_)) => Slot::Typed((mapcount >> 24) as u8),
                None => Slot::Nothing { continues: false },
            };
        }
        let word = |at: Option<usize>| at.map_or(0, |at| page.word(at));
        let is_chunk = |at| {
            let word = word(at);
            word >> 63 == 1 && self.chunks.binary_search(&word).is_ok()
        };
        if is_chunk(fields.index) || is_chunk(fields.private) {
            return Slot::Chunk;
        }
        let mapping = page.mapping();
        if mapping & MAPPING_FLAGS == MOVABLE {
            return Slot::Movable(mapping);
        }
        // Just allocated or just removed: in a batch of a CPU, on its way to or from an LRU list.
        if mapping >> 63 == 1 && mapping & (MAPPING_FLAGS | ANON) == 0 && mapping & 7 == 0 {
            return Slot::Perhaps { mapping, dirty: flags & fields.dirty != 0 };
        }
        if fields.in_page_pool(page) {
            return Slot::Row(RowKind::PagePool);
        }
        if Fields::is_head(self.kernel, page) {
            return Slot::Compound;
        }
        Slot::Nothing { continues: fields.refcount.is_some_and(|at| page.half(at) == 0) }
    }
}
