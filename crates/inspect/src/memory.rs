//! Memory: zones, counters, the largest processes.

use std::collections::{HashMap, HashSet};

use pagehaul_btf::{Fault, Object};
use pagehaul_machine::{PageCount, PageSize};
use serde::Serialize;

use crate::crash_notes::until_crash;
use crate::{Machine, Task, Tasks};

/// Most nodes that are read (MAX_NUMNODES is 1,024).
const MOST_NODES: u64 = 1024;
/// Zones of a node (MAX_NR_ZONES is 5).
const MOST_ZONES: u64 = 8;
/// Pages of a process that are believed: 4 PiB.
const MOST_PAGES: i64 = 1 << 40;
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
    /// Managed pages that no counter explains: allocated by drivers and the kernel itself.
    pub unaccounted: Option<i64>,
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

impl Memory {
    /// Returns a counter of pages.
    pub fn counter(&self, name: &str) -> Option<PageCount> {
        let (_, count) = self.counters.iter().find(|(known, _)| *known == name && !is_kib(known))?;
        Some(PageCount::new(*count))
    }

    /// Returns managed and free pages of all zones.
    pub fn total(&self) -> (PageCount, PageCount) {
        let none = (PageCount::ZERO, PageCount::ZERO);
        self.zones.iter().fold(none, |(managed, free), zone| (managed + zone.managed, free + zone.free))
    }
}

/// Enumerators of `enum zone_stat_item` and `enum node_stat_item`, and names in `/proc/vmstat`. Kernels move counters
/// between zones and nodes: an enumerator that is in neither has no row.
const COUNTERS: [(&str, &str); 18] = [
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
];

/// A counter by its name in `/proc/vmstat`.
pub type Counter = (&'static str, u64);

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
    memory.counters = counters(machine, &nodes);
    memory.swap = swap(machine).ok();
    memory.reclaimers = tasks.all.iter().filter(|task| task.reclaims).map(Task::label).collect();
    match processes(machine, tasks) {
        Ok(processes) => memory.processes = processes,
        Err(why) => memory.missing.push(format!("processes: {why}")),
    }
    memory.unaccounted = unaccounted(machine, &memory);
    memory
}

/// Returns the NUMA nodes (`struct pglist_data`).
pub(crate) fn nodes<'a>(machine: &'a Machine<'_>) -> Result<Vec<Object<'a>>, Fault> {
    let Ok(table) = machine.symbol("node_data") else {
        return Ok(vec![machine.variable("contig_page_data", "pglist_data")?]);
    };
    let count = machine.u32("nr_node_ids").map_or(1, u64::from).clamp(1, MOST_NODES);
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
pub(crate) fn zones_of<'a>(node: &Object<'a>) -> Result<Vec<Object<'a>>, Fault> {
    let zones = node.get("node_zones")?;
    let mut found = Vec::new();
    for index in 0..zones.len().min(MOST_ZONES) {
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
    at("per_cpu_pageset", "per_cpu_pages").or_else(|_| at("pageset", "per_cpu_pageset")?.get("pcp"))
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
        pages += lists.and_then(|lists| lists.number("count")).unwrap_or(0);
        let stats = at("per_cpu_zonestats", "per_cpu_zonestat").or_else(|_| at("pageset", "per_cpu_pageset"));
        let part = stats.and_then(|stats| stats.get("vm_stat_diff")?.index(item)?.signed());
        diff += part.unwrap_or(0);
    }
    (pages, diff)
}

fn counters(machine: &Machine<'_>, nodes: &[Object<'_>]) -> Vec<(&'static str, u64)> {
    let btf = machine.space().btf();
    let zone_items = btf.enum_with("NR_FREE_PAGES");
    let node_items = btf.enum_with("NR_LRU_BASE");
    let value = |items: &[(String, i64)], name: &str| {
        items.iter().find(|(known, _)| known == name).map(|(_, value)| *value as u64)
    };
    let total = |table: &str, item: u64| -> Option<i64> {
        Some(machine.memory().u64(machine.symbol(table).ok()?.wrapping_add(8 * item)).ok()? as i64)
    };
    let cpus = until_crash(machine).unwrap_or_default();
    let mut found = Vec::new();
    for (enumerator, name) in COUNTERS {
        let count = match (value(&node_items, enumerator), value(&zone_items, enumerator)) {
            (Some(item), _) => total("vm_node_stat", item).map(|count| {
                let parts = nodes.iter().flat_map(|node| cpus.iter().map(move |cpu| (node, *cpu)));
                let part = |(node, cpu): (&Object<'_>, u64)| -> Option<i64> {
                    let area = node.get("per_cpu_nodestats").ok()?.pointer().ok()?;
                    let area = machine.on_cpu(area, cpu).ok()?;
                    let stats = machine.space().object(area, "per_cpu_nodestat").ok()?;
                    stats.get("vm_node_stat_diff").ok()?.index(item).ok()?.signed().ok()
                };
                count + parts.filter_map(part).sum::<i64>()
            }),
            (None, Some(item)) => total("vm_zone_stat", item),
            (None, None) => None,
        };
        if let Some(count) = count {
            found.push((name, count.max(0) as u64));
        }
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
                Ok::<i64, Fault>(count.saturating_add(part).clamp(0, MOST_PAGES))
            };
            // All but swap.
            let sum: i64 = indices.iter().take(3).filter_map(|index| count(index).ok()).sum();
            candidates.push((sum, task));
        }
    }
    candidates.sort_by_key(|(sum, task)| (std::cmp::Reverse(*sum), task.tgid));
    let error = 3 * machine.percpu_counter_error().unwrap_or(0);
    let mut found: Vec<Process> = Vec::new();
    for (sum, task) in candidates {
        let smallest = found.last().filter(|_| found.len() == LARGEST);
        if smallest.is_some_and(|smallest| smallest.rss().get() > (sum + error) as u64) {
            break;
        }
        let counters = counters(task.mm.0)?;
        let count = |index: u64| -> Result<u64, Fault> {
            let value = match counters.get("count") {
                Ok(counts) => counts.index(index)?.signed()?,
                Err(_) => machine.percpu_counter(&counters.index(index)?)?,
            };
            let part = parts.get(&(task.mm.0, index)).copied().unwrap_or(0);
            Ok(value.saturating_add(part).clamp(0, MOST_PAGES) as u64)
        };
        let [anon, file, shmem, swap] = indices.map(|index| PageCount::new(count(index).unwrap_or(0)));
        found.push(Process { pid: task.tgid, comm: task.comm.clone(), anon, file, shmem, swap });
        found.sort_by(|a, b| b.rss().cmp(&a.rss()).then(a.pid.cmp(&b.pid)));
        found.truncate(LARGEST);
    }
    Ok(found)
}

/// Managed pages less everything that is counted.
fn unaccounted(machine: &Machine<'_>, memory: &Memory) -> Option<i64> {
    let (managed, free) = memory.total();
    let per_cpu: PageCount = memory.zones.iter().map(|zone| zone.per_cpu).sum();
    let counted = [
        "nr_inactive_anon",
        "nr_active_anon",
        "nr_inactive_file",
        "nr_active_file",
        "nr_unevictable",
        "nr_isolated_anon",
        "nr_isolated_file",
        "nr_slab_reclaimable",
        "nr_slab_unreclaimable",
        "nr_page_table_pages",
        "nr_vmalloc",
    ];
    let known: Option<PageCount> = counted.iter().map(|name| memory.counter(name)).sum();
    // Kernel stacks are in the vmalloc space since 4.9, and counted there.
    let known = known? + free + per_cpu + hugetlb(machine).unwrap_or_default();
    Some((managed.get() as i64).saturating_sub(known.get() as i64))
}

/// Pages in the pools of HugeTLB.
fn hugetlb(machine: &Machine<'_>) -> Result<PageCount, Fault> {
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
