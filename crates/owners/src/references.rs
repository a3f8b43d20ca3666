//! Who holds a pointer to pages that nothing marks. Drivers' pages have no field for an owner, but their owner has their address in
//! the direct map, or that of their struct page. This is a guess: a word can look like a pointer, or be a stale one.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use pagehaul_inspect::{Cache, Machine, caller_name};
use pagehaul_kernel::{KernelError, Memmap};
use pagehaul_machine::{Pfn, VirtAddr};
use pagehaul_physmem::{PhysMemory, View};

use crate::claims::Claimant;
use crate::report::RowKind;
use crate::scan::visit;
use crate::slot::Slot;
use crate::tally::Rules;

/// Pages without an owner that are looked for: 4 GiB in pages of 4 KiB, about 100 MB of tables.
const MAX_PAGES: u64 = 1 << 20;
/// Pages without an owner that lead from one to the other.
const DEEPEST: usize = 8;
/// Order of the allocator's largest block (MAX_PAGE_ORDER).
const MAX_ORDER: u32 = 10;
/// Caches of objects that lead to page cache only, whose pages have marks. A page without one was page cache before, and the object that
/// leads to it is free.
const OF_PAGE_CACHE: [&str; 2] = ["buffer_head", "radix_tree_node"];
/// Objects that are read for the name of what they belong to.
const MAX_OBJECTS: usize = 1 << 14;
/// Words of an object that are looked up.
const MAX_WORDS: usize = 256;

/// Where a pointer lies. The first kinds are believed before the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Slab(u64),
    Claim(u32),
    LargeKmalloc,
    Chunk,
    /// The kernel's image, and memory from before the allocator.
    Reserved,
    /// Another page without an owner.
    Unowned,
}

/// Names of owners, and their pages.
#[derive(Debug, Default)]
pub(crate) struct Guesses {
    pub(crate) by_name: HashMap<String, u64>,
    pub(crate) missing: Vec<String>,
}

/// What is found in memory.
#[derive(Default)]
struct Found {
    /// The reference to each page that is believed most.
    references: HashMap<u64, (Place, u64)>,
    /// Pages without a reference count, which belong to a block that an earlier page begins.
    behind: Vec<Range<u64>>,
}

impl Found {
    /// The same of any number of threads.
    fn add(&mut self, pfn: u64, reference: (Place, u64)) {
        let known = self.references.entry(pfn).or_insert(reference);
        *known = reference.min(*known);
    }
}

/// Finds references to the pages in `unowned`, which are sorted.
pub(crate) fn references(
    machine: &Machine<'_>,
    memory: &dyn PhysMemory,
    memmap: &Memmap,
    rules: &Rules<'_>,
    unowned: &[Range<Pfn>],
    caches: &[Cache],
    threads: usize,
) -> Result<Guesses, KernelError> {
    let mut guesses = Guesses::default();
    let Some(targets) = Targets::new(machine, memory, memmap, unowned) else {
        guesses.missing.push("references to pages: the kernel's direct map is not known".into());
        return Ok(guesses);
    };
    if targets.cut > 0 {
        guesses.missing.push(format!("references to pages: {} pages are not looked for", targets.cut));
    }
    let early = Early::new(machine, memory, rules);
    let of_page_cache = |cache: &&Cache| OF_PAGE_CACHE.contains(&cache.name.as_str());
    let without: Vec<u64> = caches.iter().filter(of_page_cache).map(|cache| cache.address.0).collect();
    let all = Mutex::new(Found::default());
    let scan = |part: &mut Found, view: &mut dyn View, slot, pages: &Range<Pfn>| {
        let leads = |place: &Place| !matches!(place, Place::Slab(cache) if without.contains(cache));
        if let Some(place) = place(rules, slot).filter(leads) {
            targets
                .scan(view, place, pages, &early)
                .into_iter()
                .for_each(|(pfn, reference)| part.add(pfn, reference));
        }
        if slot == (Slot::Nothing { continues: true }) {
            part.behind.push(pages.start.number()..pages.end.number());
        }
    };
    visit(memory, rules, threads, scan, |part| {
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        part.references.into_iter().for_each(|(pfn, reference)| all.add(pfn, reference));
        all.behind.extend(part.behind);
    })?;
    let Found { references: found, mut behind } = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    behind.sort_unstable_by_key(|pages| pages.start);
    let mut names = Names::new(machine, memory, rules, caches, &early);
    // An owner has the address of the first page of a block only: the pages behind it belong to it, too.
    let mut owners: HashMap<u64, (Place, u64)> = HashMap::new();
    let (mut last, mut end) = (None, 0);
    let mut behind = behind.into_iter().peekable();
    for run in &targets.runs {
        // Runs that touch can be one block: its first page, and the pages behind it.
        if run.start != std::mem::replace(&mut end, run.end) {
            last = None;
        }
        for pfn in run.clone() {
            while behind.next_if(|pages| pages.end <= pfn).is_some() {}
            let is_behind = behind.peek().is_some_and(|pages| pages.contains(&pfn));
            last = found.get(&pfn).map(|reference| (pfn, *reference)).or(last);
            // Pages of a block that was split have a reference count each. Such a block is aligned to its size.
            let longest =
                |first: u64| 1 << if is_behind { MAX_ORDER } else { first.trailing_zeros().min(MAX_ORDER) };
            let near = last.filter(|(first, _)| pfn - first < longest(*first));
            owners.extend(near.map(|(_, reference)| (pfn, reference)));
        }
    }
    for reference in owners.values() {
        let mut at = *reference;
        for _ in 0..DEEPEST {
            match (at.0, owners.get(&(at.1 >> targets.page_shift))) {
                (Place::Unowned, Some(next)) => at = *next,
                _ => break,
            }
        }
        if let Some(name) = names.of(at) {
            *guesses.by_name.entry(name).or_default() += 1;
        }
    }
    Ok(guesses)
}

/// The kind of place that pages are; `None` if pointers in them say nothing. User pages, page cache and free pages hold anything.
fn place(rules: &Rules<'_>, slot: Slot) -> Option<Place> {
    match slot {
        Slot::Slab(cache) => Some(Place::Slab(cache)),
        Slot::Claim(number) => match rules.claims.claimants.get(number as usize)? {
            Claimant::Vmalloc { .. } => Some(Place::Claim(number)),
            _ => None,
        },
        Slot::Row(RowKind::LargeKmalloc) | Slot::Compound => Some(Place::LargeKmalloc),
        Slot::Chunk => Some(Place::Chunk),
        Slot::Reserved => Some(Place::Reserved),
        Slot::Nothing { .. } => Some(Place::Unowned),
        _ => None,
    }
}

/// The pages that are looked for.
struct Targets<'a> {
    runs: Vec<Range<u64>>,
    /// A bit for each page.
    bits: Vec<u64>,
    memmap: &'a Memmap,
    struct_pages: Range<u64>,
    direct_map: u64,
    /// The physical address that the direct map begins with.
    first: u64,
    end: u64,
    page_shift: u32,
    cut: u64,
}

impl<'a> Targets<'a> {
    fn new(
        machine: &Machine<'_>,
        memory: &dyn PhysMemory,
        memmap: &'a Memmap,
        unowned: &[Range<Pfn>],
    ) -> Option<Self> {
        let page_shift = machine.page_size().bytes().trailing_zeros();
        let direct_map = machine.kernel().direct_map().or_else(|| machine.u64("page_offset_base").ok())?;
        let first = machine.u64("memstart_addr").unwrap_or(0);
        let end = memory.ranges().end();
        let mut runs = Vec::new();
        let mut bits: Vec<u64> = Vec::new();
        let (mut left, mut cut) = (MAX_PAGES, 0);
        for run in unowned {
            let start = run.start.number();
            let len = run.end.since(run.start).get();
            let kept = len.min(left);
            cut += len - kept;
            left -= kept;
            // No page has a number behind the memory.
            let stop = (start + kept).min((end >> page_shift) + 1);
            for pfn in start..stop {
                let at = (pfn / 64) as usize;
                if bits.len() <= at {
                    bits.resize(at + 1, 0);
                }
                if let Some(word) = bits.get_mut(at) {
                    *word |= 1 << (pfn % 64);
                }
            }
            if start < stop {
                runs.push(start..stop);
            }
        }
        let bounds = runs.first().zip(runs.last()).and_then(|(first, last)| {
            let low = memmap.struct_page(Pfn::new(first.start))?.get();
            let high = memmap.struct_page(Pfn::new(last.end - 1))?.get();
            Some(low..high.saturating_add(memmap.struct_size()))
        });
        let struct_pages = bounds.unwrap_or(0..0);
        Some(Self { runs, bits, memmap, struct_pages, direct_map, first, end, page_shift, cut })
    }

    /// Returns the page that a word points to, if it is looked for.
    #[inline]
    fn target(&self, word: u64) -> Option<u64> {
        // `memstart_addr` is negative on arm64 kernels with 52-bit addresses that run with 48.
        let paddr = word.wrapping_sub(self.direct_map).wrapping_add(self.first);
        let pfn = if paddr < self.end {
            paddr >> self.page_shift
        } else if self.struct_pages.contains(&word) {
            // Scatterlists have flags in the low bits.
            self.memmap.pfn(VirtAddr::new(word & !0x3f))?.number()
        } else {
            return None;
        };
        let bits = self.bits.get((pfn / 64) as usize)?;
        (bits >> (pfn % 64) & 1 == 1).then_some(pfn)
    }

    /// Returns the references in some pages.
    fn scan(
        &self,
        view: &mut dyn View,
        place: Place,
        pages: &Range<Pfn>,
        early: &Early,
    ) -> Vec<(u64, (Place, u64))> {
        let mut found = Vec::new();
        let mut at = pages.start.number() << self.page_shift;
        let end = pages.end.number() << self.page_shift;
        while at < end {
            let bytes = match view.window(at, (end - at) as usize) {
                Ok(bytes) if !bytes.is_empty() => bytes,
                // A page that is missing is no source.
                _ => {
                    at = ((at >> self.page_shift) + 1) << self.page_shift;
                    continue;
                }
            };
            for (index, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
                let word = u64::from_le_bytes(*word);
                let from = at + 8 * index as u64;
                // Struct pages themselves are no source: their lists have stale pointers to others.
                if place == Place::Reserved && self.struct_pages.contains(&word) && !early.has(from) {
                    continue;
                }
                // A page that points to itself, as list heads do, has no owner by that.
                if let Some(pfn) = self.target(word).filter(|pfn| *pfn != from >> self.page_shift) {
                    found.push((pfn, (place, from)));
                }
            }
            // Windows of whole words, as pages are.
            at += (bytes.len() as u64).next_multiple_of(8);
        }
        found
    }
}

/// Memory from before the allocator that symbols name.
struct Early {
    page_shift: u32,
    /// Pages of the kernel's image, with their virtual addresses.
    image: HashMap<u64, u64>,
    /// The first chunk of per-CPU memory: a range of each CPU, with the address of its symbols.
    per_cpu: Vec<(Range<u64>, u64)>,
}

impl Early {
    fn new(machine: &Machine<'_>, memory: &dyn PhysMemory, rules: &Rules<'_>) -> Self {
        const MAX_IMAGE_PAGES: u64 = 1 << 18;
        let mut view = memory.view();
        let page_shift = machine.page_size().bytes().trailing_zeros();
        let translator = rules.kernel.space().translator();
        let mut image = HashMap::new();
        if let Some((start, end)) = machine.symbol("_text").ok().zip(machine.symbol("_end").ok()) {
            let pages = (end.saturating_sub(start) >> page_shift).min(MAX_IMAGE_PAGES);
            for vaddr in (0..pages).map(|page| start.wrapping_add(page << page_shift)) {
                if let Ok(extent) = translator.translate(view.as_mut(), vaddr) {
                    image.insert(extent.paddr >> page_shift, vaddr);
                }
            }
        }
        let mut per_cpu = Vec::new();
        let symbols = machine.symbols();
        if let Some((start, end)) = symbols.address("__per_cpu_start").zip(symbols.address("__per_cpu_end")) {
            for cpu in machine.cpu_mask("__cpu_possible_mask").unwrap_or_default() {
                let Ok(at) = machine.on_cpu(start, cpu) else { continue };
                if let Ok(extent) = translator.translate(view.as_mut(), at) {
                    let end = extent.paddr.saturating_add(end.saturating_sub(start));
                    per_cpu.push((extent.paddr..end, start));
                }
            }
        }
        Self { page_shift, image, per_cpu }
    }

    /// Whether symbols name what is at a physical address.
    fn has(&self, at: u64) -> bool {
        self.image.contains_key(&(at >> self.page_shift))
            || self.per_cpu.iter().any(|(pages, _)| pages.contains(&at))
    }

    fn name(&self, machine: &Machine<'_>, at: u64) -> String {
        let symbol = |address| Some(machine.symbols().name(address)?.symbol);
        let in_page = at & ((1 << self.page_shift) - 1);
        if let Some(vaddr) = self.image.get(&(at >> self.page_shift)) {
            return symbol(vaddr | in_page).unwrap_or_else(|| "the kernel's image".into());
        }
        if let Some((pages, start)) = self.per_cpu.iter().find(|(pages, _)| pages.contains(&at)) {
            let name = symbol(start.wrapping_add(at - pages.start));
            return name.map_or_else(|| "per-CPU memory".into(), |name| format!("per-CPU {name}"));
        }
        "memory from before the allocator".into()
    }
}

/// Names of places.
struct Names<'a> {
    machine: &'a Machine<'a>,
    rules: &'a Rules<'a>,
    view: Box<dyn View + 'a>,
    caches: HashMap<u64, &'a Cache>,
    early: &'a Early,
    objects: HashMap<u64, Option<String>>,
}

impl<'a> Names<'a> {
    fn new(
        machine: &'a Machine<'a>,
        memory: &'a dyn PhysMemory,
        rules: &'a Rules<'a>,
        caches: &'a [Cache],
        early: &'a Early,
    ) -> Self {
        let caches = caches.iter().map(|cache| (cache.address.0, cache)).collect();
        Self { machine, rules, view: memory.view(), caches, early, objects: HashMap::new() }
    }

    /// Returns what has the pointer at a physical address.
    fn of(&mut self, (place, at): (Place, u64)) -> Option<String> {
        Some(match place {
            Place::Slab(address) => {
                let cache = *self.caches.get(&address)?;
                match self.object(cache, at) {
                    Some(of) => format!("slab {} with {of}", cache.name),
                    None => format!("slab {}", cache.name),
                }
            }
            Place::Claim(number) => match self.rules.claims.claimants.get(number as usize)? {
                Claimant::Vmalloc { caller } => format!("vmalloc of {}", caller_name(self.machine, *caller)),
                _ => return None,
            },
            Place::LargeKmalloc => "large kmalloc".into(),
            Place::Chunk => "per-CPU memory".into(),
            Place::Reserved => self.early.name(self.machine, at),
            Place::Unowned => return None,
        })
    }

    /// Names an object of a cache for all uses by a function or table of functions that it points to. These caches have sizes of
    /// powers of two, and their objects are aligned to them (59bb47985c1d, 5.4).
    fn object(&mut self, cache: &Cache, at: u64) -> Option<String> {
        let size = cache.object_size;
        if !cache.name.contains("kmalloc") || !size.is_power_of_two() || !(16..=4096).contains(&size) {
            return None;
        }
        let base = at & !(size - 1);
        if let Some(known) = self.objects.get(&base) {
            return known.clone();
        }
        if self.objects.len() >= MAX_OBJECTS {
            return None;
        }
        let mut bytes = vec![0; size as usize];
        let mut found = None;
        if self.view.read(base, &mut bytes).is_ok() {
            for word in bytes.as_chunks::<8>().0.iter().take(MAX_WORDS) {
                let word = u64::from_le_bytes(*word);
                // Per-CPU symbols have small addresses.
                let name = (word >> 63 == 1).then(|| self.machine.symbols().name(word)).flatten();
                let Some(name) = name.filter(|name| name.offset == 0) else { continue };
                let is_table = name.symbol.ends_with("ops");
                let text = match &name.module {
                    Some(module) => format!("{} [{module}]", name.symbol),
                    None => name.symbol,
                };
                if is_table {
                    found = Some(text);
                    break;
                }
                found.get_or_insert(text);
            }
        }
        self.objects.insert(base, found.clone());
        found
    }
}
