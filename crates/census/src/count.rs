//! Counts every struct page once, on every CPU.

use pagehaul_pool::map_numbers;
use std::collections::BTreeMap;

use crate::census::{Census, ClassCount, Heading, ZoneCount};
use crate::map::Map;
use pagehaul_kernel::{Details, Kernel, KernelError, PageClass, PageScanner, Zones};
use pagehaul_physmem::{PhysMemory, ReadError, bits};

/// The counts of one block of struct pages.
struct BlockCounts {
    classes: [(u64, u64); PageClass::COUNT],
    zones: BTreeMap<(u64, &'static str), [u64; PageClass::COUNT]>,
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
    let blocks = kernel.blocks(memory.ranges().end().div_ceil(page_size.bytes() as u64));
    let worker = || Worker::new(memory, kernel, zones);
    let parts = map_numbers("census", threads, blocks, worker, Worker::count);
    let mut total = Total::new(memory.ranges().bytes() >> page_size.shift());
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
            cell_pages: Map::new(memory.ranges().bytes() >> kernel.page_size().shift()).cell_pages,
        }
    }

    /// Counts a block; returns none if it has no memory.
    fn count(&mut self, block: u64) -> Option<Result<BlockCounts, KernelError>> {
        let first = self.kernel.block_pfns(block).start;
        self.memory.ranges().mark_pages(first, self.kernel.page_size().shift(), false, &mut self.exists);
        if self.exists.iter().all(|word| *word == 0) {
            return None;
        }
        Some(self.count_existing(block, first))
    }

    fn count_existing(&mut self, block: u64, first: u64) -> Result<BlockCounts, KernelError> {
        let unreadable =
            |source: ReadError| KernelError::Read { what: "which pages are in the dump", source };
        self.memory
            .mark_stored_pages(self.kernel.page_size(), first, &mut self.stored, &mut self.parts)
            .map_err(unreadable)?;
        let report = self.scanner.scan(block, &mut self.classes)?;
        self.kernel.details(self.view.as_mut(), block, &self.classes, &mut self.details);
        let mut part = BlockCounts {
            classes: [(0, 0); PageClass::COUNT],
            zones: BTreeMap::new(),
            orders: BTreeMap::new(),
            cells: BTreeMap::new(),
            inconsistency: report
                .inconsistency
                .map(|inconsistency| format!("PFN {:#x}: {}", inconsistency.pfn, inconsistency.what)),
        };
        // The tail pages of a block have no order.
        let mut block_end = 0;
        for index in bits::ones(&self.exists) {
            let class = self.classes[index];
            let number = class as usize;
            part.classes[number].0 += 1;
            part.classes[number].1 += u64::from(bits::get(&self.stored, index));
            let cell = (first + index as u64) / self.cell_pages;
            part.cells.entry(cell).or_insert([0; PageClass::COUNT])[number] += 1;
            if class == PageClass::Absent {
                continue;
            }
            if let Some(zones) = self.zones {
                let flags = self.details.flags(index);
                let here = (zones.node(flags), zones.zone(flags));
                part.zones.entry(here).or_insert([0; PageClass::COUNT])[number] += 1;
            }
            match self.details.order(index) {
                Some(order) => {
                    *part.orders.entry((number, order)).or_insert(0) += 1;
                    block_end = index + (1 << order);
                }
                None if index >= block_end => *part.orders.entry((number, 0)).or_insert(0) += 1,
                None => {}
            }
        }
        Ok(part)
    }
}

/// The sums of all blocks.
struct Total {
    pages: u64,
    classes: [(u64, u64); PageClass::COUNT],
    zones: BTreeMap<(u64, &'static str), [u64; PageClass::COUNT]>,
    orders: BTreeMap<(usize, u32), u64>,
    map: Map,
    warnings: Vec<String>,
}

impl Total {
    fn new(pages: u64) -> Self {
        Self {
            pages: 0,
            classes: [(0, 0); PageClass::COUNT],
            zones: BTreeMap::new(),
            orders: BTreeMap::new(),
            map: Map::new(pages),
            warnings: Vec::new(),
        }
    }

    fn add(&mut self, part: BlockCounts) {
        for (sum, (pages, in_dump)) in self.classes.iter_mut().zip(part.classes) {
            *sum = (sum.0 + pages, sum.1 + in_dump);
            self.pages += pages;
        }
        for (place, counts) in part.zones {
            let sums = self.zones.entry(place).or_insert([0; PageClass::COUNT]);
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
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
        // Only confidential guests have unaccepted memory, so most kernels lack its type without a loss.
        let undecided = self.classes.get(PageClass::Undecided as usize).is_some_and(|(pages, _)| *pages > 0);
        for gap in kernel.undecidable().iter().filter(|gap| undecided || gap.class != PageClass::Unaccepted) {
            warnings.push(format!("{}: VMCOREINFO has no {}", gap.class.name(), gap.missing));
        }
        if no_zones {
            warnings.push("nodes and zones: VMCOREINFO does not say where page.flags holds them".into());
        }
        let name = |number: usize| PageClass::ALL[number].name();
        let mut orders: BTreeMap<&'static str, BTreeMap<u32, u64>> = BTreeMap::new();
        for ((number, order), count) in self.orders {
            orders.entry(name(number)).or_default().insert(order, count);
        }
        let counted = |counts: [u64; PageClass::COUNT]| {
            counts
                .into_iter()
                .enumerate()
                .filter(|(_, count)| *count > 0)
                .map(|(at, count)| (name(at), count))
                .collect()
        };
        Census {
            heading,
            page_size: kernel.page_size().bytes() as u64,
            pages: self.pages,
            classes: self
                .classes
                .into_iter()
                .enumerate()
                .filter(|(_, (pages, _))| *pages > 0)
                .map(|(number, (pages, in_dump))| ClassCount { class: name(number), pages, in_dump })
                .collect(),
            zones: self
                .zones
                .into_iter()
                .map(|((node, zone), counts)| ZoneCount { node, zone, classes: counted(counts) })
                .collect(),
            orders,
            class_names: PageClass::ALL.map(PageClass::name).into(),
            map: self.map,
            warnings,
        }
    }
}
