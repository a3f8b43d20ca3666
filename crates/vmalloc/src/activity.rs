//! Counts the `vmalloc:` trace events.

use std::collections::{BTreeMap, HashMap};

use pagehaul_latency::{Histogram, Unit};
use pagehaul_trace::{Event, EventFormat, PerFormat, Slot, Symbols};
use serde::Serialize;

use crate::usage::{AreaTotal, NamedTotal};

/// Functions between an allocation and its caller, as prefixes: what follows `vmalloc` or `kvmalloc` is a
/// variant of it.
const INNER: [&str; 13] = [
    "trace_event_raw_event",
    "alloc_vmap_area",
    "__get_vm_area",
    "get_vm_area",
    "__vmalloc",
    "vmalloc",
    "vzalloc",
    "kvmalloc",
    "__kvmalloc",
    "vmap",
    "vm_map_ram",
    "__ioremap",
    "ioremap",
];

/// Counts over an interval.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Counts {
    /// Areas allocated.
    pub allocated: AreaTotal,
    /// Allocations that found no free address range.
    pub failed: AreaTotal,
    /// Areas freed; they wait for a purge.
    pub freed: u64,
    /// Pages freed but not purged, at the last free.
    pub lazy_pages: Option<u64>,
    /// Largest number of lazily freed pages.
    pub lazy_peak_pages: u64,
    /// The kernel purges above this number of pages.
    pub lazy_limit_pages: Option<u64>,
    /// Purges.
    pub purges: u64,
    /// Areas purged.
    pub purged: u64,
    /// Largest number of areas in one purge.
    pub largest_purge: u64,
    /// By allocating function, most areas first, if stacks were recorded.
    pub callers: Vec<NamedTotal>,
    /// By task, most areas first.
    pub tasks: Vec<NamedTotal>,
    /// The range searched for free addresses, as (first address, one past the last); the widest seen.
    pub range: Option<(u64, u64)>,
}

/// Counts vmalloc events.
pub struct Activity {
    symbols: Symbols,
    roles: PerFormat<Role>,
    counts: Counts,
    /// By address. Resolved when first seen, because a module may be unloaded later.
    callers: HashMap<u64, NamedTotal>,
    tasks: BTreeMap<i32, AreaTotal>,
    task_names: HashMap<i32, String>,
    /// By CPU: an allocation that waits for its stack, or a stack that waits for its allocation.
    waiting: HashMap<u32, Waiting>,
    purge_sizes: Histogram,
}

#[derive(Debug, Clone, Copy)]
enum Waiting {
    Allocation(i32, u64),
    Stack(i32, u64),
}

#[derive(Debug, Clone, Copy)]
enum Role {
    Other,
    Alloc { size: Slot, failed: Slot, range: Option<(Slot, Slot)> },
    Free { lazy: Slot, limit: Slot },
    Purge { count: Slot },
    Stack(Slot),
}

impl Activity {
    /// `symbols` resolves the addresses of stacks.
    pub fn new(symbols: Symbols) -> Self {
        Self {
            symbols,
            roles: PerFormat::default(),
            counts: Counts::default(),
            callers: HashMap::new(),
            tasks: BTreeMap::new(),
            task_names: HashMap::new(),
            waiting: HashMap::new(),
            purge_sizes: Histogram::new(Unit::Nanoseconds, None),
        }
    }

    /// Processes an event.
    pub fn event(&mut self, event: &Event<'_>) {
        let role = *self.roles.entry(event.format()).get_or_insert_with(|| role(event.format()));
        match role {
            Role::Other => {}
            Role::Alloc { size, failed, range } => {
                let bytes = event.u64(size).unwrap_or(0);
                if event.u64(failed).unwrap_or(0) != 0 {
                    self.counts.failed.add(bytes);
                    return;
                }
                self.counts.allocated.add(bytes);
                self.tasks.entry(event.pid()).or_default().add(bytes);
                if let Some(comm) = event.comm() {
                    self.task_names.entry(event.pid()).or_insert_with(|| comm.to_owned());
                }
                let range = range.and_then(|(start, end)| event.u64(start).zip(event.u64(end)));
                self.widen(range);
                match self.waiting.remove(&event.cpu()) {
                    Some(Waiting::Stack(pid, caller)) if pid == event.pid() => {
                        self.count_caller(caller, bytes);
                    }
                    _ => drop(self.waiting.insert(event.cpu(), Waiting::Allocation(event.pid(), bytes))),
                }
            }
            Role::Free { lazy, limit } => {
                self.counts.freed += 1;
                self.counts.lazy_pages = event.u64(lazy);
                self.counts.lazy_limit_pages = event.u64(limit);
                self.counts.lazy_peak_pages =
                    self.counts.lazy_peak_pages.max(self.counts.lazy_pages.unwrap_or(0));
            }
            Role::Purge { count } => {
                let areas = event.u64(count).unwrap_or(0);
                self.counts.purges += 1;
                self.counts.purged += areas;
                self.counts.largest_purge = self.counts.largest_purge.max(areas);
                self.purge_sizes.record(areas);
            }
            Role::Stack(slot) => {
                let Some(caller) = self.caller(event, slot) else { return };
                match self.waiting.remove(&event.cpu()) {
                    Some(Waiting::Allocation(pid, bytes)) if pid == event.pid() => {
                        self.count_caller(caller, bytes);
                    }
                    _ => drop(self.waiting.insert(event.cpu(), Waiting::Stack(event.pid(), caller))),
                }
            }
        }
    }

    /// Replaces the symbols, because modules come and go.
    pub(crate) fn set_symbols(&mut self, symbols: Symbols) {
        self.symbols = symbols;
    }

    fn count_caller(&mut self, address: u64, bytes: u64) {
        let name = || self.symbols.containing(address).unwrap_or("(unknown)").to_owned();
        let caller = self
            .callers
            .entry(address)
            .or_insert_with(|| NamedTotal { name: name(), total: AreaTotal::default() });
        caller.total.add(bytes);
    }

    /// Returns the address of the first function in a stack that does not belong to vmalloc.
    fn caller(&self, event: &Event<'_>, slot: Slot) -> Option<u64> {
        let mut last = None;
        for address in event.elements(slot)? {
            let Some(name) = self.symbols.containing(address) else { continue };
            last = Some(address);
            if !INNER.iter().any(|inner| name.starts_with(inner)) {
                break;
            }
        }
        last
    }

    fn widen(&mut self, range: Option<(u64, u64)>) {
        let length = |range: (u64, u64)| range.1.saturating_sub(range.0);
        if let Some(range) = range
            && self.counts.range.is_none_or(|known| length(known) < length(range))
        {
            self.counts.range = Some(range);
        }
    }

    /// Returns the counts since the last call, and the histogram of areas per purge.
    pub fn take(&mut self) -> (Counts, Histogram) {
        let mut counts = std::mem::take(&mut self.counts);
        let mut callers: HashMap<String, AreaTotal> = HashMap::new();
        for (_, caller) in self.callers.drain() {
            *callers.entry(caller.name).or_default() += caller.total;
        }
        counts.callers = ranked(callers.into_iter());
        let tasks = std::mem::take(&mut self.tasks);
        counts.tasks = ranked(tasks.into_iter().map(|(pid, total)| {
            let name = self.task_names.get(&pid).map_or("<...>", String::as_str);
            (format!("{name}-{pid}"), total)
        }));
        let sizes = std::mem::replace(&mut self.purge_sizes, Histogram::new(Unit::Nanoseconds, None));
        // The backlog persists while nothing is freed.
        self.counts.lazy_pages = counts.lazy_pages;
        self.counts.lazy_limit_pages = counts.lazy_limit_pages;
        self.counts.range = counts.range;
        (counts, sizes)
    }
}

fn ranked(totals: impl Iterator<Item = (String, AreaTotal)>) -> Vec<NamedTotal> {
    let mut list: Vec<_> = totals.map(|(name, total)| NamedTotal { name, total }).collect();
    list.sort_by(|a, b| b.total.areas.cmp(&a.total.areas).then_with(|| a.name.cmp(&b.name)));
    list
}

fn role(format: &EventFormat) -> Role {
    let slot = |name| format.slot(name);
    let role = match format.name.as_str() {
        "alloc_vmap_area" => slot("size").zip(slot("failed")).map(|(size, failed)| Role::Alloc {
            size,
            failed,
            range: slot("vstart").zip(slot("vend")),
        }),
        "free_vmap_area_noflush" => {
            slot("nr_lazy").zip(slot("nr_lazy_max")).map(|(lazy, limit)| Role::Free { lazy, limit })
        }
        "purge_vmap_area_lazy" => slot("npurged").map(|count| Role::Purge { count }),
        "kernel_stack" => slot("caller").map(Role::Stack),
        _ => None,
    };
    role.unwrap_or(Role::Other)
}
