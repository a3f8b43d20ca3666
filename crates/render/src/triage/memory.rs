//! Memory: zones, counters, processes, slab caches, vmalloc.

use pagehaul_inspect::{TriageReport, is_kib};
use pagehaul_machine::PageCount;
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, count, counted};

use super::lines::Lines as _;

/// Rows of slab caches and vmalloc callers.
const ROWS: usize = 10;

/// What of the page cache is not on the disk yet.
fn unwritten(report: &TriageReport) -> String {
    let counters = [("nr_dirty", "dirty"), ("nr_writeback", "under writeback")];
    let counts = counters.map(|(counter, name)| (report.memory.counter(counter).unwrap_or_default(), name));
    let counts = counts.iter().filter(|(pages, _)| *pages > PageCount::ZERO);
    let size = |pages: PageCount| bytes(pages.bytes(report.system.page_size));
    let notes: Vec<String> = counts.map(|(pages, name)| format!("{} {name}", size(*pages))).collect();
    if notes.is_empty() { String::new() } else { format!(" ({})", notes.join(", ")) }
}

pub(super) fn memory(report: &TriageReport, out: &mut String, full: bool) {
    let memory = &report.memory;
    let size = |pages: PageCount| bytes(pages.bytes(report.system.page_size));
    let mut facts = Vec::new();
    // A dump may lack them.
    if !memory.zones.is_empty() {
        let (managed, free) = memory.total();
        facts.push(format!("{} managed", size(managed)));
        if memory.usage.is_empty() {
            facts.push(format!("{} free", size(free)));
        }
    }
    for (name, pages) in memory.usage.iter().filter(|(_, pages)| *pages > PageCount::ZERO) {
        let notes = if *name == "files" { unwritten(report) } else { String::new() };
        facts.push(format!("{name} {}{notes}", size(*pages)));
    }
    if let Some(unaccounted) = memory.unaccounted.filter(|pages| *pages > 0) {
        facts.push(format!("{} {}", memory.rest_name(), size(PageCount::new(unaccounted as u64))));
    }
    if facts.is_empty() {
        put!(out, "\nMemory: not known");
        return;
    }
    put!(out, "\nMemory: {}", facts.join(", "));
    let mut table = Table::new(["zone (pages)", "managed", "free", "per-CPU lists", "min", "low", "high"]);
    for zone in &memory.zones {
        let [min, low, high] = zone.watermarks;
        let numbers = [zone.managed, zone.free, zone.per_cpu, min, low, high].map(|pages| count(pages.get()));
        table.row([vec![format!("{} {}", zone.node, zone.name)], numbers.to_vec()].concat());
    }
    if !memory.zones.is_empty() {
        out.put_table(&table);
    }
    if !memory.reclaimers.is_empty() {
        let names = memory.reclaimers.iter().take(ROWS).cloned().collect::<Vec<_>>().join(", ");
        put!(out, "  in reclaim: {}: {names}", counted(memory.reclaimers.len() as u64, "task"));
    }
    if !full {
        let largest = memory.processes.iter().take(3);
        let largest: Vec<String> =
            largest.map(|it| format!("{}/{} {}", it.comm, it.pid, size(it.rss()))).collect();
        if !largest.is_empty() {
            put!(out, "  largest processes: {}", largest.join(", "));
        }
        return;
    }
    let orders = memory.zones.iter().map(|zone| zone.orders.len()).max().unwrap_or(0);
    let header =
        ["free blocks by order".to_owned()].into_iter().chain((0..orders).map(|order| order.to_string()));
    let mut table = Table::new(header);
    for zone in &memory.zones {
        let name = format!("{} {}", zone.node, zone.name);
        table.row([name].into_iter().chain(zone.orders.iter().map(|number| count(*number))));
    }
    out.push('\n');
    out.put_table(&table);
    let mut table = Table::new(["counter", "pages"]);
    table.rows(memory.counters.iter().map(|(name, value)| {
        let unit = if is_kib(name) { " KiB" } else { "" };
        [(*name).to_owned(), count(*value) + unit]
    }));
    if let Some((total, free)) = memory.swap {
        table.row(["swap total".to_owned(), count(total.get())]);
        table.row(["swap free".to_owned(), count(free.get())]);
    }
    out.push('\n');
    out.put_table(&table);
    let mut table = Table::new(["process", "pid", "resident", "anonymous", "file", "shared memory", "swap"]);
    for process in &memory.processes {
        let sizes = [process.rss(), process.anon, process.file, process.shmem, process.swap];
        let sizes = sizes.map(&size);
        table.row([vec![process.comm.clone(), process.pid.to_string()], sizes.to_vec()].concat());
    }
    out.push('\n');
    out.put_table(&table);
    let mut table = Table::new(["slab cache", "bytes", "slabs", "objects", "object size"]);
    for cache in report.slab.iter().take(ROWS) {
        table.row([
            cache.name.clone(),
            bytes(cache.bytes),
            count(cache.slabs),
            count(cache.objects),
            cache.object_size.to_string(),
        ]);
    }
    out.push('\n');
    out.put_table(&table);
    if let Some(vmalloc) = &report.vmalloc {
        let backlog = vmalloc.backlog_pages.map_or_else(
            || "unknown backlog".to_owned(),
            |pages| format!("{} freed but not purged", size(pages)),
        );
        put!(out, "\nvmalloc: {} areas, {}, {backlog}", count(vmalloc.areas), bytes(vmalloc.bytes));
        let mut table = Table::new(["caller", "bytes", "areas"]);
        table.rows(
            vmalloc
                .callers
                .iter()
                .take(ROWS)
                .map(|row| [row.caller.clone(), bytes(row.bytes), count(row.areas)]),
        );
        out.put_table(&table);
    }
}
