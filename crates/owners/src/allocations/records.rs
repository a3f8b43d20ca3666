//! One pass over the records of all pages.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use pagehaul_inspect::{OwnerStack, PageExt};
use pagehaul_kernel::{Kernel, KernelError, Memmap, StructPage};
use pagehaul_machine::{Pfn, PhysAddr, VirtAddr};
use pagehaul_physmem::{PhysMemory, View};

use crate::claims::Claimant;
use crate::report::RowKind;
use crate::scan::visit;
use crate::slot::Slot;
use crate::tally::Rules;

/// Records that are read at a time.
const CHUNK: u64 = 256;
/// Distinct stacks, tags and tasks that are counted apart: about 16 MiB each.
const MAX_KEYS: usize = 1 << 18;
/// Runs of pages without a record that are kept.
const MAX_UNNAMED: usize = 1 << 20;

/// What a page is, as far as its record matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Nothing else names an owner.
    Nothing,
    /// Nor here: large kmalloc until 6.18, or a driver's.
    Compound,
    LargeKmalloc,
    /// Another row names it.
    Other,
}

/// What a record names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum By {
    /// A handle of the stack depot.
    Stack(u32),
    /// Neither stack nor tag, but that it is of `page_owner` itself.
    Unsaved,
    /// Address of an allocation tag.
    Tag(u64),
}

/// Name and ID of a task.
pub(crate) type Task = ([u8; 16], u32);

/// `comm/pid`.
pub(crate) fn label((comm, pid): &Task) -> String {
    let end = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
    format!("{}/{pid}", String::from_utf8_lossy(comm.get(..end).unwrap_or_default()))
}

/// What the records say.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) pages: HashMap<(Part, By), u64>,
    /// Tasks that allocated pages of parts but `Other`.
    pub(crate) tasks: HashMap<(Part, By, Task), u64>,
    /// Runs of pages that have no name by this either, and were asked for.
    pub(crate) unnamed: Vec<Range<Pfn>>,
    /// Pages in them, and in runs that were not kept.
    pub(crate) unnamed_pages: u64,
    /// Pages that `page_owner` has as allocated, and those of them from before it started.
    pub(crate) allocated: u64,
    pub(crate) early: u64,
    /// Pages whose records cannot be read.
    pub(crate) unread: u64,
    /// Pages of more stacks, tags or tasks than are counted.
    pub(crate) cut: u64,
}

impl Records {
    fn merge(&mut self, part: Self) {
        for (key, pages) in part.pages {
            self.cut += add(&mut self.pages, key, pages);
        }
        for (key, pages) in part.tasks {
            // Who else allocated is left out.
            add(&mut self.tasks, key, pages);
        }
        let room = MAX_UNNAMED.saturating_sub(self.unnamed.len());
        self.unnamed.extend(part.unnamed.into_iter().take(room));
        self.unnamed_pages += part.unnamed_pages;
        self.allocated += part.allocated;
        self.early += part.early;
        self.unread += part.unread;
        self.cut += part.cut;
    }
}

/// Adds pages. Returns those that are cut, because the table is full.
fn add<K: Eq + Hash>(all: &mut HashMap<K, u64>, key: K, pages: u64) -> u64 {
    if all.len() >= MAX_KEYS && !all.contains_key(&key) {
        return pages;
    }
    *all.entry(key).or_default() += pages;
    0
}

/// Reads the records of all pages with `threads` threads.
pub(crate) fn records(
    memory: &dyn PhysMemory,
    rules: &Rules<'_>,
    ext: &PageExt,
    threads: usize,
) -> Result<Records, KernelError> {
    let total = Mutex::new(Records::default());
    let kernel = rules.kernel;
    let end = PhysAddr::new(memory.ranges().end()).next_pfn(kernel.page_size());
    let memmap = ext.has_tags_in_flags().then(|| Memmap::read(kernel, memory.view().as_mut(), end));
    let kept = Kept { kernel, ext, memmap };
    let each = |block: &mut Block, view: &mut dyn View, slot, pages: &Range<Pfn>| {
        if let Some(part) = part(rules, slot) {
            let tails = matches!(slot, Slot::Nothing { continues: true } | Slot::Compound)
                || part == Part::LargeKmalloc;
            block.count(&kept, view, (part, tails), pages);
        }
    };
    visit(memory, rules, threads, each, |block: Block| {
        total.lock().unwrap_or_else(PoisonError::into_inner).merge(block.records);
    })?;
    let mut records = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    records.unnamed.sort_unstable_by_key(|pages| pages.start);
    Ok(records)
}

/// `None`: the allocator does not manage these pages, or they are free.
fn part(rules: &Rules<'_>, slot: Slot) -> Option<Part> {
    match slot {
        Slot::Nothing { .. } => Some(Part::Nothing),
        Slot::Compound => Some(Part::Compound),
        Slot::Row(RowKind::LargeKmalloc) => Some(Part::LargeKmalloc),
        Slot::Reserved => None,
        Slot::Row(row) if row.is_free() => None,
        Slot::Claim(number) => {
            let claimant = rules.claims.claimants.get(number as usize);
            (claimant != Some(&Claimant::PerCpuList)).then_some(Part::Other)
        }
        _ => Some(Part::Other),
    }
}

/// Where what is kept of pages is.
struct Kept<'a> {
    kernel: &'a Kernel,
    ext: &'a PageExt,
    /// Where struct pages are, if their flags have tags.
    memmap: Option<Memmap>,
}

/// The bytes that the kernel keeps of each of `CHUNK` consecutive pages, the first of them `first`, and whether they could be read.
#[derive(Default)]
struct Chunk {
    bytes: Vec<u8>,
    first: Option<u64>,
    readable: bool,
}

impl Chunk {
    /// Returns the bytes of a page. Reads them, with those of its neighbours, from `start` of the first if need be.
    fn of(
        &mut self,
        kernel: &Kernel,
        view: &mut dyn View,
        pfn: u64,
        size: usize,
        start: impl FnOnce(&mut dyn View, u64) -> Option<u64>,
    ) -> Option<&[u8]> {
        let first = pfn - pfn % CHUNK;
        if self.first != Some(first) {
            self.first = Some(first);
            self.bytes.resize(size * CHUNK as usize, 0);
            let start = start(view, first);
            let translator = kernel.space().translator();
            self.readable = start.is_some_and(|start| translator.read(view, start, &mut self.bytes).is_ok());
        }
        let at = (pfn - first) as usize * size;
        self.bytes.get(at..at + size).filter(|_| self.readable)
    }
}

/// What is counted of one block.
#[derive(Default)]
struct Block {
    records: Records,
    /// Where entries of the block are; `None`: not looked for yet, `Some(None)`: nowhere.
    base: Option<Option<u64>>,
    entries: Chunk,
    struct_pages: Chunk,
    /// The last page that had a tag, the last page that got it, and the tag.
    tagged: Option<(u64, u64, u64)>,
}

impl Block {
    fn count(
        &mut self,
        kept: &Kept<'_>,
        view: &mut dyn View,
        (part, tails): (Part, bool),
        pages: &Range<Pfn>,
    ) {
        let mut unnamed: Option<Range<u64>> = None;
        for pfn in pages.start.number()..pages.end.number() {
            match self.page(kept, view, (part, tails), pfn) {
                Some(by) => self.records.cut += add(&mut self.records.pages, (part, by), 1),
                // Only these are looked for by references.
                None if part == Part::Nothing => {
                    self.records.unnamed_pages += 1;
                    match &mut unnamed {
                        Some(run) if run.end == pfn => run.end += 1,
                        _ => self.keep(unnamed.replace(pfn..pfn + 1)),
                    }
                }
                None => {}
            }
        }
        self.keep(unnamed);
    }

    fn keep(&mut self, run: Option<Range<u64>>) {
        self.records.unnamed.extend(run.map(|run| Pfn::new(run.start)..Pfn::new(run.end)));
    }

    /// Returns what is kept of a page.
    fn page(
        &mut self,
        kept: &Kept<'_>,
        view: &mut dyn View,
        (part, tails): (Part, bool),
        pfn: u64,
    ) -> Option<By> {
        let Kept { kernel, ext, memmap } = kept;
        let base = &mut self.base;
        let mut is_read = true;
        let (mut owner, mut tag) = (None, None);
        if ext.has_entries() {
            let entry = self.entries.of(kernel, view, pfn, ext.size, |view, first| {
                let base = base.get_or_insert_with(|| base_of(kernel, ext, view, pfn));
                // The section has the address of entry 0 less that of its first page's, which wraps around.
                base.map(|base| base.wrapping_add(first.wrapping_mul(ext.size as u64)))
            });
            is_read = entry.is_some();
            owner = entry.and_then(|entry| ext.owner(entry));
            tag = entry.and_then(|entry| ext.tag(entry));
        }
        // A tag counts bytes of other rows, too: those have names already.
        if let Some(memmap) = memmap.as_ref().filter(|_| part != Part::Other) {
            let size = kernel.struct_page_size();
            let page = self.struct_pages.of(kernel, view, pfn, size, |_, first| {
                memmap.struct_page(Pfn::new(first)).map(VirtAddr::get)
            });
            is_read &= page.is_some();
            tag = page.and_then(|page| ext.tag_in_flags(StructPage::of(kernel, 0, page).flags()));
        }
        if !is_read {
            self.records.unread += 1;
            if owner.is_none() && tag.is_none() {
                return None;
            }
        }
        if let Some(owner) = owner {
            self.records.allocated += 1;
            let by = match owner.stack {
                OwnerStack::Saved(handle) => Some(By::Stack(handle)),
                OwnerStack::Unsaved => Some(By::Unsaved),
                OwnerStack::Early => {
                    self.records.early += 1;
                    None
                }
            };
            if let Some(by) = by {
                if let Some(task) = owner.task.filter(|_| part != Part::Other) {
                    add(&mut self.records.tasks, (part, by, task), 1);
                }
                return Some(by);
            }
        }
        // Those have names already.
        if part == Part::Other {
            return None;
        }
        if let Some(tag) = tag {
            self.tagged = Some((pfn, pfn, tag));
            return Some(By::Tag(tag));
        }
        // The first page of a block has the tag of all. Blocks are aligned to their size.
        let (first, last, tag) = self.tagged.as_mut()?;
        let largest = 1_u64.checked_shl(first.trailing_zeros()).unwrap_or(u64::MAX);
        if !tails || *last + 1 != pfn || pfn - *first >= largest {
            self.tagged = None;
            return None;
        }
        *last = pfn;
        Some(By::Tag(*tag))
    }
}

/// Returns where the entries of a page's section are.
fn base_of(kernel: &Kernel, ext: &PageExt, view: &mut dyn View, pfn: u64) -> Option<u64> {
    let block = pfn / kernel.pages_per_block() as u64;
    let word = kernel.section_word(view, block, ext.in_section).ok().flatten();
    // Bit 0: they are about to be freed (PAGE_EXT_INVALID, b1d5488a2521, 6.1).
    word.filter(|word| *word != 0 && word & 1 == 0)
}
