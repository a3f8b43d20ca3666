//! Memory: zones, counters, processes, slab caches, vmalloc.

use pagehaul_inspect::{Part, TriageReport, is_kib};
use pagehaul_machine::PageCount;
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, count, counted};

use super::lines::{Lines as _, at_least};

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

/// What memory is used for, in one line; empty if it is not known.
pub(super) fn about(report: &TriageReport) -> String {
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
    facts.join(", ")
}

pub(super) fn memory(report: &TriageReport, out: &mut String, full: bool) {
    let memory = &report.memory;
    let size = |pages: PageCount| bytes(pages.bytes(report.system.page_size));
    let about = about(report);
    if about.is_empty() {
        put!(out, "\nMemory: not known");
        return;
    }
    put!(out, "\nMemory: {about}");
    if !memory.zones.is_empty() {
        out.put_table(&zones(report));
    }
    if !memory.reclaimers.is_empty() {
        put!(out, "  {}", reclaimers(report));
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
    for table in [orders(report), counters(report), processes(report), caches(report)] {
        out.push('\n');
        out.put_table(&table);
    }
    if report.vmalloc.is_some() {
        put!(out, "\nvmalloc: {}", vmalloc(report));
        out.put_table(&callers(report));
    }
}

/// Everything but the uses, with a title each.
#[cfg(feature = "html")]
pub(super) fn tables(report: &TriageReport) -> Vec<(String, Table)> {
    let mut tables = vec![
        ("Zones".to_owned(), zones(report)),
        ("Processes".into(), processes(report)),
        ("Slab caches".into(), caches(report)),
        (format!("vmalloc: {}", vmalloc(report)), callers(report)),
        ("Free blocks".into(), orders(report)),
        ("Counters".into(), counters(report)),
    ];
    if !report.memory.reclaimers.is_empty() {
        let mut reclaimers_only = Table::new([""; 0]);
        reclaimers_only.row([reclaimers(report)]);
        tables.insert(1, ("Tasks in reclaim".into(), reclaimers_only));
    }
    tables
}

fn reclaimers(report: &TriageReport) -> String {
    let reclaimers = &report.memory.reclaimers;
    let names = reclaimers.iter().take(ROWS).cloned().collect::<Vec<_>>().join(", ");
    format!("in reclaim: {}: {names}", counted(reclaimers.len() as u64, "task"))
}

fn zones(report: &TriageReport) -> Table {
    let mut table = Table::new(["zone (pages)", "managed", "free", "per-CPU lists", "min", "low", "high"]);
    for zone in &report.memory.zones {
        let [min, low, high] = zone.watermarks;
        let numbers = [zone.managed, zone.free, zone.per_cpu, min, low, high].map(|pages| count(pages.get()));
        table.row([vec![format!("{} {}", zone.node, zone.name)], numbers.to_vec()].concat());
    }
    table
}

fn orders(report: &TriageReport) -> Table {
    let zones = &report.memory.zones;
    let orders = zones.iter().map(|zone| zone.orders.len()).max().unwrap_or(0);
    let header =
        ["free blocks by order".to_owned()].into_iter().chain((0..orders).map(|order| order.to_string()));
    let mut table = Table::new(header);
    for zone in zones {
        let name = format!("{} {}", zone.node, zone.name);
        table.row([name].into_iter().chain(zone.orders.iter().map(|number| count(*number))));
    }
    table
}

fn counters(report: &TriageReport) -> Table {
    let mut table = Table::new(["counter", "pages"]);
    table.rows(report.memory.counters.iter().map(|(name, value)| {
        let unit = if is_kib(name) { " KiB" } else { "" };
        [(*name).to_owned(), count(*value) + unit]
    }));
    if let Some((total, free)) = report.memory.swap {
        table.row(["swap total".to_owned(), count(total.get())]);
        table.row(["swap free".to_owned(), count(free.get())]);
    }
    table
}

fn processes(report: &TriageReport) -> Table {
    let size = |pages: PageCount| bytes(pages.bytes(report.system.page_size));
    let mut table = Table::new(["process", "pid", "resident", "anonymous", "file", "shared memory", "swap"]);
    for process in &report.memory.processes {
        let sizes = [process.rss(), process.anon, process.file, process.shmem, process.swap];
        let sizes = sizes.map(size);
        table.row([vec![process.comm.clone(), process.pid.to_string()], sizes.to_vec()].concat());
    }
    table
}

fn caches(report: &TriageReport) -> Table {
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
    table
}

fn vmalloc(report: &TriageReport) -> String {
    let Some(vmalloc) = &report.vmalloc else { return "not known".into() };
    let backlog = vmalloc.backlog_pages.map_or_else(
        || "unknown backlog".to_owned(),
        |pages| format!("{} freed but not purged", bytes(pages.bytes(report.system.page_size))),
    );
    let least = at_least(report, Part::Vmalloc);
    format!("{least}{} areas, {}, {backlog}", count(vmalloc.areas), bytes(vmalloc.bytes))
}

fn callers(report: &TriageReport) -> Table {
    let mut table = Table::new(["caller", "bytes", "areas"]);
    let callers = report.vmalloc.iter().flat_map(|vmalloc| &vmalloc.callers);
    table.rows(callers.take(ROWS).map(|row| [row.caller.clone(), bytes(row.bytes), count(row.areas)]));
    table
}
