//! Counts every struct page once, on every CPU.

use pagehaul_pool::map_numbers;
use std::collections::BTreeMap;

use crate::census::{Census, ClassCount, Heading, Usage, ZoneCount};
use crate::map::Map;
use pagehaul_kernel::{Details, Kernel, KernelError, PageClass, PageScanner, Zones};
use pagehaul_machine::{PageCount, Pfn};
use pagehaul_physmem::{PhysMemory, ReadError, bits};

/// What a page is counted as.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    /// Node and zone, if known.
    place: Option<(u64, &'static str)>,
    /// `PageClass as usize`.
    class: usize,
    /// Order of the block that the page belongs to.
    order: u32,
}

/// The counts of one block of struct pages.
struct BlockCounts {
    /// Pages, and those that the dump holds.
    usage: BTreeMap<Use, (u64, u64)>,
    orders: BTreeMap<(usize, u32), u64>,
    /// Pages per class of each cell of the map.
    cells: BTreeMap<u64, [u32; PageClass::COUNT]>,
    inconsistency: Option<String>,
}

/// Counts the pages of `memory` by their struct pages, with `threads` threads.
///
/// # Errors
/// Fails if struct pages cannot be read.
pub fn count(
    memory: &dyn PhysMemory,
    kernel: &Kernel,
    heading: Heading,
    threads: usize,
) -> Result<Census, KernelError> {
    let zones = Zones::discover(kernel);
    let page_size = kernel.page_size();
    let blocks = kernel.blocks(memory.ranges().end_pfn(page_size));
    let worker = || Worker::new(memory, kernel, zones);
    let parts = map_numbers("census", threads, blocks, worker, Worker::count);
    let mut total = Total::new(PageCount::of_bytes(memory.ranges().bytes(), page_size).get());
    for part in parts {
        total.add(part?);
    }
    Ok(total.census(heading, kernel, zones.is_none()))
}

/// The counter of one thread.
struct Worker<'a> {
    memory: &'a dyn PhysMemory,
    kernel: &'a Kernel,
    zones: Option<Zones>,
    scanner: PageScanner<'a>,
    view: Box<dyn pagehaul_physmem::View + 'a>,
    classes: Vec<PageClass>,
    details: Details,
    exists: Vec<u64>,
    stored: Vec<u64>,
    /// For [`PhysMemory::mark_stored_pages`].
    parts: Vec<u64>,
    cell_pages: u64,
}

impl<'a> Worker<'a> {
    fn new(memory: &'a dyn PhysMemory, kernel: &'a Kernel, zones: Option<Zones>) -> Self {
        let pages = kernel.pages_per_block();
        Self {
            memory,
            kernel,
            zones,
            scanner: PageScanner::new(kernel, memory.view()),
            view: memory.view(),
            classes: vec![PageClass::Absent; pages],
            details: Details::default(),
            exists: vec![0; pages.div_ceil(64)],
            stored: vec![0; pages.div_ceil(64)],
            parts: Vec::new(),
            cell_pages: Map::new(PageCount::of_bytes(memory.ranges().bytes(), kernel.page_size()).get())
                .cell_pages,
        }
    }

    /// Counts a block; returns none if it has no memory.
    fn count(&mut self, block: u64) -> Option<Result<BlockCounts, KernelError>> {
        let first = self.kernel.block_pfns(block).start;
        self.memory.ranges().mark_pages(first, self.kernel.page_size(), false, &mut self.exists);
        if self.exists.iter().all(|word| *word == 0) {
            return None;
        }
        Some(self.count_existing(block, first))
    }

    fn count_existing(&mut self, block: u64, first: Pfn) -> Result<BlockCounts, KernelError> {
        let unreadable =
            |source: ReadError| KernelError::Read { what: "which pages are in the dump", source };
        self.memory
            .mark_stored_pages(self.kernel.page_size(), first, &mut self.stored, &mut self.parts)
            .map_err(unreadable)?;
        let report = self.scanner.scan(block, &mut self.classes)?;
        self.kernel.details(self.view.as_mut(), block, &self.classes, &mut self.details);
        let mut part = BlockCounts {
            usage: BTreeMap::new(),
            orders: BTreeMap::new(),
            cells: BTreeMap::new(),
            inconsistency: report
                .inconsistency
                .map(|inconsistency| format!("PFN {:#x}: {}", inconsistency.pfn, inconsistency.what)),
        };
        // The tail pages of a block have no order.
        let (mut block_end, mut block_order) = (0, 0);
        // Neighbours are mostly counted alike: one look-up for a run of them.
        let mut run = None;
        for index in bits::ones(&self.exists) {
            let class = self.classes[index];
            let number = class as usize;
            let stored = u64::from(bits::get(&self.stored, index));
            let cell = (first.number() + index as u64) / self.cell_pages;
            part.cells.entry(cell).or_insert([0; PageClass::COUNT])[number] += 1;
            let mut place = None;
            if class != PageClass::Absent {
                let flags = self.details.flags(index);
                place = self.zones.map(|zones| (zones.node(flags), zones.zone(flags)));
                let order = self.details.order(index);
                if order.is_some() || index >= block_end {
                    block_order = order.unwrap_or(0);
                    block_end = index + (1 << block_order);
                    *part.orders.entry((number, block_order)).or_insert(0) += 1;
                }
            }
            let order = if index < block_end { block_order } else { 0 };
            let here = Use { place, class: number, order };
            match &mut run {
                Some((known, counts)) if *known == here => *counts = add(*counts, (1, stored)),
                _ => part.add(run.replace((here, (1, stored)))),
            }
        }
        part.add(run);
        Ok(part)
    }
}

impl BlockCounts {
    fn add(&mut self, run: Option<(Use, (u64, u64))>) {
        if let Some((place, counts)) = run {
            let sum = self.usage.entry(place).or_default();
            *sum = add(*sum, counts);
        }
    }
}

fn add(sum: (u64, u64), counts: (u64, u64)) -> (u64, u64) {
    (sum.0 + counts.0, sum.1 + counts.1)
}

/// The sums of all blocks.
struct Total {
    usage: BTreeMap<Use, (u64, u64)>,
    orders: BTreeMap<(usize, u32), u64>,
    map: Map,
    warnings: Vec<String>,
}

impl Total {
    fn new(pages: u64) -> Self {
        Self { usage: BTreeMap::new(), orders: BTreeMap::new(), map: Map::new(pages), warnings: Vec::new() }
    }

    fn add(&mut self, part: BlockCounts) {
        for (key, counts) in part.usage {
            let sum = self.usage.entry(key).or_default();
            *sum = add(*sum, counts);
        }
        for (key, count) in part.orders {
            *self.orders.entry(key).or_insert(0) += count;
        }
        part.cells.iter().for_each(|(cell, counts)| self.map.add(*cell, counts));
        // One example suffices.
        if self.warnings.is_empty() {
            self.warnings.extend(
                part.inconsistency.map(|inconsistency| format!("struct pages are damaged: {inconsistency}")),
            );
        }
    }

    fn census(self, heading: Heading, kernel: &Kernel, no_zones: bool) -> Census {
        let mut warnings = self.warnings;
        let mut classes = [(0, 0); PageClass::COUNT];
        let mut zones: BTreeMap<_, BTreeMap<_, u64>> = BTreeMap::new();
        let name = |number: usize| PageClass::ALL[number].name();
        for (key, counts) in &self.usage {
            classes[key.class] = add(classes[key.class], *counts);
            if let Some(place) = key.place {
                *zones.entry(place).or_default().entry(name(key.class)).or_default() += counts.0;
            }
        }
        // Only confidential guests have unaccepted memory, so most kernels lack its type without a loss.
        let undecided = classes[PageClass::Undecided as usize].0 > 0;
        for gap in kernel.undecidable().iter().filter(|gap| undecided || gap.class != PageClass::Unaccepted) {
            warnings.push(format!("{}: VMCOREINFO has no {}", gap.class.name(), gap.missing));
        }
        if no_zones {
            warnings.push("nodes and zones: VMCOREINFO does not say where page.flags holds them".into());
        }
        let mut orders: BTreeMap<&'static str, BTreeMap<u32, u64>> = BTreeMap::new();
        for ((number, order), count) in self.orders {
            orders.entry(name(number)).or_default().insert(order, count);
        }
        Census {
            heading,
            page_size: kernel.page_size().bytes() as u64,
            pages: classes.iter().map(|(pages, _)| pages).sum(),
            classes: classes
                .into_iter()
                .enumerate()
                .filter(|(_, (pages, _))| *pages > 0)
                .map(|(number, (pages, in_dump))| ClassCount { class: name(number), pages, in_dump })
                .collect(),
            zones: zones
                .into_iter()
                .map(|((node, zone), classes)| ZoneCount { node, zone, classes })
                .collect(),
            usage: self
                .usage
                .into_iter()
                .map(|(Use { place, class, order }, (pages, in_dump))| Usage {
                    place,
                    class: name(class),
                    order,
                    pages,
                    in_dump,
                })
                .collect(),
            orders,
            class_names: PageClass::ALL.map(PageClass::name).into(),
            map: self.map,
            warnings,
        }
    }
}
