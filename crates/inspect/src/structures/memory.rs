//! Memory: zones, counters, the largest processes.

use std::collections::{HashMap, HashSet};

use pagehaul_btf::{Fault, Object};
use pagehaul_machine::{PageCount, PageSize};
use pagehaul_physmem::PageState;
use serde::Serialize;

use super::crash_notes::until_crash;
use super::per_cpu_chunks::per_cpu_chunks;
use super::tasks::{Task, Tasks};
use crate::machine::Machine;

/// Most nodes that are read (MAX_NUMNODES is 1,024).
const MAX_NODES: u64 = 1024;
/// Zones of a node (MAX_NR_ZONES is 5).
const MAX_ZONES: u64 = 8;
/// Pages of a process that are believed: 4 PiB.
const MAX_PAGES: i64 = 1 << 40;
/// Processes that are kept.
const LARGEST: usize = 10;

/// A zone with memory.
#[derive(Debug, Clone, Serialize)]
pub struct Zone {
    /// NUMA node.
    pub node: u64,
    /// Name.
    pub name: String,
    /// Pages that the allocator manages.
    pub managed: PageCount,
    /// Free pages, without those on per-CPU lists.
    pub free: PageCount,
    /// Free pages on per-CPU lists, which no counter of `free` has.
    pub per_cpu: PageCount,
    /// Watermarks: min, low, high.
    pub watermarks: [PageCount; 3],
    /// Free blocks of each order.
    pub orders: Vec<u64>,
}

/// A process and its memory in pages.
#[derive(Debug, Clone, Serialize)]
pub struct Process {
    /// Process ID.
    pub pid: u32,
    /// Name.
    pub comm: String,
    /// Anonymous pages.
    pub anon: PageCount,
    /// Pages of files.
    pub file: PageCount,
    /// Pages of shared memory.
    pub shmem: PageCount,
    /// Pages in swap.
    pub swap: PageCount,
}

impl Process {
    /// Returns the resident pages.
    pub fn rss(&self) -> PageCount {
        self.anon + self.file + self.shmem
    }
}

/// Memory of the machine, in pages.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Memory {
    /// Zones that have memory.
    pub zones: Vec<Zone>,
    /// Counters that the kernel has, by the names of `/proc/vmstat`, with the per-CPU parts: pages, or KiB where the name
    /// [says so](is_kib).
    pub counters: Vec<Counter>,
    /// What the managed pages are used for, by the kernel's counters. With `unaccounted` they add up to all of them.
    pub usage: Vec<Use>,
    /// Managed pages that `usage` does not have. Of counters: those of drivers and the kernel itself, page directories, pipes and
    /// what else has an owner that only struct pages tell.
    pub unaccounted: Option<i64>,
    /// Whether `usage` is by struct pages: then those that it lacks have no owner that is known.
    #[serde(skip)]
    pub by_pages: bool,
    /// Highest number of times in a row that kswapd of a node failed to free anything; at 16 it gives up.
    pub kswapd_failures: u64,
    /// Swap: total and free pages.
    pub swap: Option<(PageCount, PageCount)>,
    /// Tasks that reclaim memory, kswapd among them.
    pub reclaimers: Vec<String>,
    /// The largest processes by resident pages.
    pub processes: Vec<Process>,
    /// What could not be read.
    pub missing: Vec<String>,
}

/// The use of memory that slab caches are a part of.
pub const SLAB: &str = "slab and large kmalloc";

impl Memory {
    /// Returns a counter of pages.
    pub fn counter(&self, name: &str) -> Option<PageCount> {
        let (_, count) = self.counters.iter().find(|(known, _)| *known == name && !is_kib(known))?;
        Some(PageCount::new(*count))
    }

    /// Returns the pages of one use.
    pub fn used_for(&self, name: &str) -> PageCount {
        self.usage.iter().find(|(known, _)| *known == name).map_or(PageCount::ZERO, |(_, pages)| *pages)
    }

    /// Returns what reports call the pages that `usage` lacks.
    pub fn rest_name(&self) -> &'static str {
        if self.by_pages { "no owner known" } else { "the rest, not looked at" }
    }

    /// Returns the largest use of memory but free, and its pages.
    pub fn largest_use(&self) -> Option<Use> {
        let rest = self.unaccounted.and_then(|pages| u64::try_from(pages).ok());
        let rest = rest.map(|pages| (self.rest_name(), PageCount::new(pages)));
        let uses = self.usage.iter().copied().filter(|(name, _)| !name.starts_with("free")).chain(rest);
        uses.max_by_key(|(_, pages)| *pages).filter(|_| !self.usage.is_empty())
    }

    /// Returns managed and free pages of all zones.
    pub fn total(&self) -> (PageCount, PageCount) {
        let none = (PageCount::ZERO, PageCount::ZERO);
        self.zones.iter().fold(none, |(managed, free), zone| (managed + zone.managed, free + zone.free))
    }
}

/// Enumerators of `enum zone_stat_item` and `enum node_stat_item`, and names in `/proc/vmstat`. Kernels move counters
/// between zones and nodes: an enumerator that is in neither has no row.
const COUNTERS: [(&str, &str); 19] = [
    ("NR_INACTIVE_ANON", "nr_inactive_anon"),
    ("NR_ACTIVE_ANON", "nr_active_anon"),
    ("NR_INACTIVE_FILE", "nr_inactive_file"),
    ("NR_ACTIVE_FILE", "nr_active_file"),
    ("NR_UNEVICTABLE", "nr_unevictable"),
    ("NR_ANON_MAPPED", "nr_anon_pages"),
    ("NR_FILE_MAPPED", "nr_mapped"),
    ("NR_FILE_PAGES", "nr_file_pages"),
    ("NR_SHMEM", "nr_shmem"),
    ("NR_FILE_DIRTY", "nr_dirty"),
    ("NR_WRITEBACK", "nr_writeback"),
    ("NR_SLAB_RECLAIMABLE_B", "nr_slab_reclaimable"),
    ("NR_SLAB_UNRECLAIMABLE_B", "nr_slab_unreclaimable"),
    ("NR_KERNEL_STACK_KB", "nr_kernel_stack_kb"),
    ("NR_PAGETABLE", "nr_page_table_pages"),
    ("NR_ISOLATED_ANON", "nr_isolated_anon"),
    ("NR_ISOLATED_FILE", "nr_isolated_file"),
    ("NR_VMALLOC", "nr_vmalloc"),
    ("NR_SWAPCACHE", "nr_swapcached"),
];

/// A counter by its name in `/proc/vmstat`.
pub type Counter = (&'static str, u64);

/// A use of memory and its pages.
pub type Use = (&'static str, PageCount);

/// Returns the bytes that a counter counts.
pub(crate) fn counter_bytes((name, count): Counter, size: PageSize) -> u64 {
    if is_kib(name) { count.saturating_mul(1024) } else { PageCount::new(count).bytes(size) }
}

/// Returns whether a counter of `/proc/vmstat` counts KiB in place of pages.
pub fn is_kib(counter: &str) -> bool {
    counter.ends_with("_kb")
}

/// Reads everything about memory.
pub fn memory(machine: &Machine<'_>, tasks: &Tasks) -> Memory {
    let mut memory = Memory::default();
    let mut nodes = Vec::new();
    match self::nodes(machine) {
        Ok(found) => nodes = found,
        Err(why) => memory.missing.push(format!("zones: {why}")),
    }
    for (number, node) in nodes.iter().enumerate() {
        if let Err(why) = zones(machine, number as u64, node, &mut memory.zones) {
            memory.missing.push(format!("zones of node {number}: {why}"));
        }
        memory.kswapd_failures = memory.kswapd_failures.max(node.number("kswapd_failures").unwrap_or(0));
    }
    memory.counters = counters(machine);
    memory.swap = swap(machine).ok();
    memory.reclaimers = tasks.all.iter().filter(|task| task.reclaims).map(Task::label).collect();
    match processes(machine, tasks) {
        Ok(processes) => memory.processes = processes,
        Err(why) => memory.missing.push(format!("processes: {why}")),
    }
    memory.usage = usage(machine, &memory);
    if !memory.usage.is_empty() {
        let known: PageCount = memory.usage.iter().map(|(_, pages)| *pages).sum();
        memory.unaccounted = Some((memory.total().0.get() as i64).saturating_sub(known.get() as i64));
    }
    memory
}

/// Returns the NUMA nodes (`struct pglist_data`).
pub fn nodes<'a>(machine: &'a Machine<'_>) -> Result<Vec<Object<'a>>, Fault> {
    let Ok(table) = machine.symbol("node_data") else {
        return Ok(vec![machine.variable("contig_page_data", "pglist_data")?]);
    };
    let count = machine.u32("nr_node_ids").map_or(1, u64::from).clamp(1, MAX_NODES);
    let mut nodes = Vec::new();
    for node in 0..count {
        let address = machine.memory().u64(table.wrapping_add(8 * node))?;
        if address != 0 {
            nodes.push(machine.space().object(address, "pglist_data")?);
        }
    }
    Ok(nodes)
}

fn zones(machine: &Machine<'_>, number: u64, node: &Object<'_>, found: &mut Vec<Zone>) -> Result<(), Fault> {
    let free_item = machine.space().btf().enumerator("NR_FREE_PAGES").unwrap_or(0) as u64;
    for zone in zones_of(node)? {
        let managed = PageCount::new(zone.number("managed_pages")?);
        let mut watermarks = [PageCount::ZERO; 3];
        // a921444382b4 (5.0) renamed watermark.
        let marks = zone.any(&["_watermark", "watermark"])?;
        for (at, mark) in watermarks.iter_mut().enumerate() {
            *mark = PageCount::new(marks.index(at as u64)?.unsigned()?);
        }
        let areas = zone.get("free_area")?;
        let orders = (0..areas.len().min(32)).map(|order| areas.index(order)?.number("nr_free"));
        let (per_cpu, diff) = per_cpu_counts(machine, &zone, free_item);
        let free = zone.get("vm_stat")?.index(free_item)?.signed()?.saturating_add(diff).max(0) as u64;
        let (free, per_cpu) = (PageCount::new(free), PageCount::new(per_cpu));
        found.push(Zone {
            node: number,
            name: zone.get("name")?.text()?,
            managed,
            free,
            per_cpu,
            watermarks,
            orders: orders.collect::<Result<_, _>>()?,
        });
    }
    Ok(())
}

/// Returns the zones of a node that have memory.
pub fn zones_of<'a>(node: &Object<'a>) -> Result<Vec<Object<'a>>, Fault> {
    let zones = node.get("node_zones")?;
    let mut found = Vec::new();
    for index in 0..zones.len().min(MAX_ZONES) {
        let zone = zones.index(index)?;
        if zone.number("managed_pages")? > 0 {
            found.push(zone);
        }
    }
    Ok(found)
}

/// Returns the per-CPU lists of a zone (`struct per_cpu_pages`) on a CPU. 28f836b6777b (5.14) split `pageset`.
pub(crate) fn per_cpu_pages<'a>(
    machine: &'a Machine<'_>,
    zone: &Object<'a>,
    cpu: u64,
) -> Result<Object<'a>, Fault> {
    let at = |member: &str, record: &str| {
        machine.space().object(machine.on_cpu(zone.get(member)?.pointer()?, cpu)?, record)
    };
    match at("per_cpu_pageset", "per_cpu_pages") {
        Err(Fault::NoField { .. }) => at("pageset", "per_cpu_pageset")?.get("pcp"),
        found => found,
    }
}

/// Pages on per-CPU lists, and the parts of a counter that CPUs have not added yet.
fn per_cpu_counts(machine: &Machine<'_>, zone: &Object<'_>, item: u64) -> (u64, i64) {
    let space = machine.space();
    let mut pages = 0;
    let mut diff = 0;
    for cpu in machine.cpu_mask("__cpu_possible_mask").unwrap_or_default() {
        let at = |member: &str, record: &str| {
            let area = zone.get(member)?.pointer()?;
            space.object(machine.on_cpu(area, cpu)?, record)
        };
        let lists = per_cpu_pages(machine, zone, cpu);
        pages = lists.and_then(|lists| lists.number("count")).unwrap_or(0).saturating_add(pages);
        let stats = at("per_cpu_zonestats", "per_cpu_zonestat").or_else(|_| at("pageset", "per_cpu_pageset"));
        let part = stats.and_then(|stats| stats.get("vm_stat_diff")?.index(item)?.signed());
        diff = part.unwrap_or(0).saturating_add(diff);
    }
    (pages, diff)
}

/// Counters of memory (`enum zone_stat_item`, `enum node_stat_item`), with the parts that CPUs have not added yet.
pub struct Counters<'a> {
    machine: &'a Machine<'a>,
    nodes: Vec<Object<'a>>,
    zones: Vec<Object<'a>>,
    zone_items: Vec<(String, i64)>,
    node_items: Vec<(String, i64)>,
    cpus: Vec<u64>,
}

impl<'a> Counters<'a> {
    /// Finds the zones, nodes and CPUs whose parts are added.
    pub fn new(machine: &'a Machine<'_>) -> Result<Self, Fault> {
        let nodes = nodes(machine)?;
        let zones = nodes.iter().map(zones_of).collect::<Result<Vec<_>, Fault>>()?;
        let btf = machine.space().btf();
        Ok(Self {
            machine,
            zones: zones.into_iter().flatten().collect(),
            nodes,
            zone_items: btf.enum_with("NR_FREE_PAGES"),
            node_items: btf.enum_with("NR_LRU_BASE"),
            cpus: until_crash(machine).unwrap_or_default(),
        })
    }

    /// Returns a counter by its enumerator, without parts that cannot be read; `None` if it cannot be read at all.
    pub fn get(&self, enumerator: &str) -> Option<i64> {
        self.of(enumerator, false).ok().flatten()
    }

    /// Returns a counter by its enumerator, if the source has all parts of it; `None` if the kernel has no such counter.
    pub fn read(&self, enumerator: &str) -> Result<Option<i64>, Fault> {
        if self.machine.space().btf().is_empty() {
            return Err(self.machine.space().no_type(enumerator));
        }
        self.of(enumerator, true)
    }

    /// Kernels move counters between zones and nodes.
    fn of(&self, enumerator: &str, whole: bool) -> Result<Option<i64>, Fault> {
        let value = |items: &[(String, i64)]| {
            items.iter().find(|(known, _)| known == enumerator).map(|(_, value)| *value as u64)
        };
        if let Some(item) = value(&self.node_items) {
            let sum = self.sum("vm_node_stat", item, &self.nodes, whole, |node, cpu| {
                let stats = self.of_cpu(node, "per_cpu_nodestats", "per_cpu_nodestat", cpu)?;
                stats.get("vm_node_stat_diff")
            });
            return sum.map(Some);
        }
        let Some(item) = value(&self.zone_items) else { return Ok(None) };
        let sum = self.sum("vm_zone_stat", item, &self.zones, whole, |zone, cpu| {
            // 28f836b6777b (5.14) split `pageset`.
            let stats = self.of_cpu(zone, "per_cpu_zonestats", "per_cpu_zonestat", cpu);
            let stats = match stats {
                Err(Fault::NoField { .. }) => self.of_cpu(zone, "pageset", "per_cpu_pageset", cpu),
                stats => stats,
            };
            stats?.get("vm_stat_diff")
        });
        sum.map(Some)
    }

    fn of_cpu(&self, owner: &Object<'_>, member: &str, record: &str, cpu: u64) -> Result<Object<'a>, Fault> {
        let area = owner.get(member)?.pointer()?;
        self.machine.space().object(self.machine.on_cpu(area, cpu)?, record)
    }

    fn sum(
        &self,
        table: &str,
        item: u64,
        owners: &[Object<'_>],
        whole: bool,
        parts: impl Fn(&Object<'_>, u64) -> Result<Object<'a>, Fault>,
    ) -> Result<i64, Fault> {
        let at = self.machine.symbol(table)?.wrapping_add(8 * item);
        let mut total = self.machine.memory().u64(at)? as i64;
        for owner in owners {
            for cpu in &self.cpus {
                match parts(owner, *cpu).and_then(|parts| parts.index(item)?.signed()) {
                    Ok(part) => total = total.saturating_add(part),
                    Err(why) if whole && is_lost(&why) => return Err(why),
                    Err(_) => {}
                }
            }
        }
        Ok(total)
    }
}

/// Whether the source should have what could not be read.
fn is_lost(why: &Fault) -> bool {
    matches!(why, Fault::Unreadable(why) if matches!(why.state(), PageState::Missing | PageState::Damaged))
}

fn counters(machine: &Machine<'_>) -> Vec<Counter> {
    let mut found = Vec::new();
    if let Ok(counters) = Counters::new(machine) {
        let counts = COUNTERS
            .into_iter()
            .filter_map(|(enumerator, name)| Some((name, counters.get(enumerator)?.max(0) as u64)));
        found.extend(counts);
    }
    if !found.iter().any(|(name, _)| *name == "nr_vmalloc")
        && let Ok(pages) = machine.u64("nr_vmalloc_pages")
    {
        found.push(("nr_vmalloc", pages));
    }
    found
}

fn swap(machine: &Machine<'_>) -> Result<(PageCount, PageCount), Fault> {
    let total = machine.u64("total_swap_pages")?;
    let free = machine.u64("nr_swap_pages")? as i64;
    Ok((PageCount::new(total), PageCount::new(free.max(0) as u64)))
}

fn processes(machine: &Machine<'_>, tasks: &Tasks) -> Result<Vec<Process>, Fault> {
    let items = machine.space().btf().enum_with("MM_ANONPAGES");
    let item = |name: &str, default: u64| {
        items.iter().find(|(known, _)| known == name).map_or(default, |(_, value)| *value as u64)
    };
    let indices =
        [item("MM_ANONPAGES", 1), item("MM_FILEPAGES", 0), item("MM_SHMEMPAGES", 3), item("MM_SWAPENTS", 2)];
    // Before f1a7941243c1, each thread keeps a part.
    let mut parts: HashMap<(u64, u64), i64> = HashMap::new();
    if machine.space().has("task_struct", "rss_stat") {
        for thread in tasks.all.iter().filter(|thread| thread.mm.0 != 0) {
            let thread_counts =
                machine.space().object(thread.address.0, "task_struct")?.get("rss_stat.count")?;
            for index in indices {
                let part = parts.entry((thread.mm.0, index)).or_default();
                *part = part.saturating_add(thread_counts.index(index)?.signed()?);
            }
        }
    }
    // f1a7941243c1 (6.2) made them per-CPU counters: their sums are read of processes only that can be among the largest.
    let record = machine.space().record("mm_struct")?;
    let counters = |mm: u64| Object::new(machine.space(), mm, record).get("rss_stat");
    let mut seen = HashSet::new();
    let mut candidates: Vec<(i64, &Task)> = Vec::new();
    for task in tasks.all.iter().filter(|task| task.mm.0 != 0) {
        if seen.insert(task.mm.0) {
            let counters = counters(task.mm.0)?;
            let count = |index: &u64| {
                let count = match counters.get("count") {
                    Ok(counts) => counts.index(*index)?.signed()?,
                    Err(_) => counters.index(*index)?.get("count")?.signed()?,
                };
                let part = parts.get(&(task.mm.0, *index)).copied().unwrap_or(0);
                Ok::<i64, Fault>(count.saturating_add(part).clamp(0, MAX_PAGES))
            };
            // All but swap.
            let sum: i64 = indices.iter().take(3).filter_map(|index| count(index).ok()).sum();
            candidates.push((sum, task));
        }
    }
    candidates.sort_by_key(|(sum, task)| (std::cmp::Reverse(*sum), task.tgid));
    let error = machine.percpu_counter_error().unwrap_or(0).saturating_mul(3);
    let mut found: Vec<Process> = Vec::new();
    for (sum, task) in candidates {
        let smallest = found.last().filter(|_| found.len() == LARGEST);
        if smallest.is_some_and(|smallest| smallest.rss().get() > sum.saturating_add(error) as u64) {
            break;
        }
        let counters = counters(task.mm.0)?;
        let count = |index: u64| -> Result<u64, Fault> {
            let value = match counters.get("count") {
                Ok(counts) => counts.index(index)?.signed()?,
                Err(_) => machine.percpu_counter(&counters.index(index)?)?,
            };
            let part = parts.get(&(task.mm.0, index)).copied().unwrap_or(0);
            Ok(value.saturating_add(part).clamp(0, MAX_PAGES) as u64)
        };
        let [anon, file, shmem, swap] = indices.map(|index| PageCount::new(count(index).unwrap_or(0)));
        found.push(Process { pid: task.tgid, comm: task.comm.clone(), anon, file, shmem, swap });
        found.sort_by(|a, b| b.rss().cmp(&a.rss()).then(a.pid.cmp(&b.pid)));
        found.truncate(LARGEST);
    }
    Ok(found)
}

/// Uses that counters know, each page in one of them; empty if a counter is missing.
fn usage(machine: &Machine<'_>, memory: &Memory) -> Vec<Use> {
    let uses = || {
        let counter = |name: &str| memory.counter(name);
        let less = |pages: PageCount, part: PageCount| PageCount::new(pages.get().saturating_sub(part.get()));
        let (_, free) = memory.total();
        let shmem = counter("nr_shmem")?;
        // b6038942480e (5.12) counts the swap cache, whose pages are anonymous memory or shmem that has left its file.
        let swap_cache = counter("nr_swapcached").unwrap_or_default();
        let stacks = memory.counters.iter().find(|(name, _)| *name == "nr_kernel_stack_kb");
        let stacks = stacks.map_or(0, |stacks| counter_bytes(*stacks, machine.page_size()));
        let stacks = PageCount::of_bytes(stacks, machine.page_size());
        let vmalloc = counter("nr_vmalloc")?;
        // ba14a194a434 (4.9): stacks are vmalloc areas, where the architecture has it so.
        let in_vmalloc = machine.space().has("task_struct", "stack_vm_area");
        Some(vec![
            ("anonymous", counter("nr_anon_pages")?),
            ("files", less(less(counter("nr_file_pages")?, shmem), swap_cache)),
            ("tmpfs and shared memory", shmem),
            ("huge pages", hugetlb_pages(machine).unwrap_or_default()),
            (SLAB, counter("nr_slab_reclaimable")? + counter("nr_slab_unreclaimable")?),
            ("vmalloc", if in_vmalloc { less(vmalloc, stacks) } else { vmalloc }),
            ("kernel stacks", stacks),
            ("page tables but directories", counter("nr_page_table_pages")?),
            ("per-CPU memory", per_cpu_chunks(machine).map_or(PageCount::ZERO, |chunks| chunks.pages)),
            ("free, per-CPU lists", memory.zones.iter().map(|zone| zone.per_cpu).sum()),
            ("free", free),
        ])
    };
    uses().unwrap_or_default()
}

/// Pages in the pools of HugeTLB.
pub fn hugetlb_pages(machine: &Machine<'_>) -> Result<PageCount, Fault> {
    let states = machine.symbol("hstates")?;
    let count = u64::from(machine.u32("hugetlb_max_hstate")?).min(8);
    let size = machine.space().size_of("hstate")?;
    let mut pages = PageCount::ZERO;
    for index in 0..count {
        let state = machine.space().object(states.wrapping_add(index * size), "hstate")?;
        let order = state.number("order")?.min(32);
        pages += PageCount::new(state.number("nr_huge_pages")?.saturating_mul(1 << order));
    }
    Ok(pages)
}
