//! Tables of what triage reads: memory, tasks, stacks, modules, slab caches, vmalloc.

use std::collections::{BTreeMap, HashMap};

use pagehaul_inspect::{Machine, Memory, StackTrace, TriageReport, Vmalloc};

use super::{longs, texts};
use crate::table::{Key, Table, Values};
use pagehaul_redact::Redaction;

/// Makes the tables of a triage report.
pub(crate) fn inside(
    machine: &Machine<'_>,
    report: &TriageReport,
    key: &Key,
    redaction: Option<&Redaction>,
) -> Vec<Table> {
    let stacks = report.stacks(machine);
    let ids: HashMap<u32, u64> =
        stacks.iter().filter_map(|task| Some((task.pid, stack_id(task.stack.as_ref()?)))).collect();
    let distinct: BTreeMap<u64, &StackTrace> =
        stacks.iter().filter_map(|task| task.stack.as_ref()).map(|stack| (stack_id(stack), stack)).collect();
    vec![
        memory_state(&report.memory, report.vmalloc.as_ref(), key),
        tasks(report, &ids, key, redaction),
        stacks_of(&distinct.into_iter().collect::<Vec<_>>(), key),
        modules(report, key),
        slab_caches(report, key),
        vmalloc_callers(report, key),
    ]
}

/// Equal for equal names, on any machine.
fn stack_id(stack: &StackTrace) -> u64 {
    let names: Vec<&str> = stack.frames.iter().map(|frame| frame.function.as_str()).collect();
    twox_hash::XxHash3_64::oneshot(names.join("\n").as_bytes())
}

fn hex(id: u64) -> String {
    format!("{id:016x}")
}

/// A counter: node, zone, item, value, unit. Node -1 is all nodes.
type Counter<'a> = (i32, Option<&'a str>, &'a str, i64, &'a str);

fn memory_state(memory: &Memory, vmalloc: Option<&Vmalloc>, key: &Key) -> Table {
    let mut rows: Vec<Counter<'_>> = Vec::new();
    let long = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    for zone in &memory.zones {
        let [min, low, high] = zone.watermarks;
        let items = [
            ("managed", zone.managed),
            ("free", zone.free),
            ("free_per_cpu", zone.per_cpu),
            ("min", min),
            ("low", low),
            ("high", high),
        ];
        let node = i32::try_from(zone.node).unwrap_or(i32::MAX);
        rows.extend(
            items.map(|(item, pages)| (node, Some(zone.name.as_str()), item, long(pages.get()), "pages")),
        );
    }
    let mut all = |item, value, unit| rows.push((-1, None, item, value, unit));
    for (item, value) in &memory.counters {
        all(item, long(*value), if pagehaul_inspect::is_kib(item) { "KiB" } else { "pages" });
    }
    if let Some(pages) = memory.unaccounted {
        all("unaccounted", pages, "pages");
    }
    if let Some((total, free)) = memory.swap {
        all("swap_total", long(total.get()), "pages");
        all("swap_free", long(free.get()), "pages");
    }
    if !memory.zones.is_empty() {
        all("kswapd_failures", long(memory.kswapd_failures), "count");
    }
    if let Some(vmalloc) = vmalloc {
        all("vmalloc_areas", long(vmalloc.areas), "count");
        all("vmalloc", long(vmalloc.bytes), "bytes");
        if let Some(pages) = vmalloc.backlog_pages {
            all("vmalloc_backlog", long(pages.get()), "pages");
        }
    }
    let columns = [
        ("node", Values::int(rows.iter().map(|row| Some(row.0)))),
        ("zone", Values::text(rows.iter().map(|row| row.1))),
        ("item", texts(&rows, |row| row.2)),
        ("value", longs(&rows, |row| row.3)),
        ("unit", texts(&rows, |row| row.4)),
    ];
    Table::new("memory_state", key, columns)
}

fn tasks(
    report: &TriageReport,
    stacks: &HashMap<u32, u64>,
    key: &Key,
    redaction: Option<&Redaction>,
) -> Table {
    let tasks = report.tasks.all.as_slice();
    let comm = |task: &pagehaul_inspect::Task| match redaction {
        Some(redaction) if task.kernel_thread => redaction.kernel_name(&task.comm),
        Some(redaction) => redaction.name("comm", &task.comm),
        None => task.comm.clone(),
    };
    let crashed: Vec<_> =
        report.cpus.iter().filter(|cpu| cpu.crashed).map(|cpu| cpu.task_address()).collect();
    let nanoseconds = |seconds: f64| (0.0..9e9).contains(&seconds).then_some((seconds * 1e9) as i64);
    let columns = [
        ("pid", Values::int(tasks.iter().map(|task| Some(task.pid)))),
        ("tgid", Values::int(tasks.iter().map(|task| Some(task.tgid)))),
        ("ppid", Values::int(tasks.iter().map(|task| Some(task.ppid)))),
        ("comm", texts(tasks, comm)),
        ("state", texts(tasks, |task| task.state)),
        ("cpu", Values::int(tasks.iter().map(|task| Some(task.cpu)))),
        ("kthread", Values::Bool(tasks.iter().map(|task| Some(task.kernel_thread)).collect())),
        ("since_run_ns", Values::long(tasks.iter().map(|task| task.seconds_since_run.and_then(nanoseconds)))),
        ("stack_id", Values::text(tasks.iter().map(|task| stacks.get(&task.pid).map(|id| hex(*id))))),
        (
            "crashing",
            Values::Bool(tasks.iter().map(|task| Some(crashed.contains(&Some(task.address)))).collect()),
        ),
    ];
    Table::new("tasks", key, columns)
}

fn stacks_of(stacks: &[(u64, &StackTrace)], key: &Key) -> Table {
    let names = |stack: &StackTrace| stack.frames.iter().map(|frame| frame.function.clone()).collect();
    let reliable = |stack: &StackTrace| stack.complete && !stack.frames.iter().any(|frame| frame.guess);
    let columns = [
        ("stack_id", texts(stacks, |(id, _)| hex(*id))),
        ("frames", Values::texts(stacks.iter().map(|(_, stack)| names(stack)))),
        ("depth", Values::int(stacks.iter().map(|(_, stack)| Some(stack.frames.len())))),
        ("reliable", Values::Bool(stacks.iter().map(|(_, stack)| Some(reliable(stack))).collect())),
    ];
    Table::new("stacks", key, columns)
}

fn modules(report: &TriageReport, key: &Key) -> Table {
    let modules = report.modules.as_slice();
    let columns = [
        ("name", texts(modules, |module| module.name.as_str())),
        ("size_bytes", longs(modules, |module| module.size)),
        ("version", Values::text(modules.iter().map(|module| module.version.clone()))),
        ("taint", texts(modules, |module| module.taints.as_str())),
    ];
    Table::new("modules", key, columns)
}

fn slab_caches(report: &TriageReport, key: &Key) -> Table {
    let caches = report.slab.as_slice();
    let columns = [
        ("name", texts(caches, |cache| cache.name.as_str())),
        ("object_bytes", longs(caches, |cache| cache.object_size)),
        ("objects", longs(caches, |cache| cache.objects)),
        ("slabs", longs(caches, |cache| cache.slabs)),
        ("bytes", longs(caches, |cache| cache.bytes)),
    ];
    Table::new("slab_caches", key, columns)
}

fn vmalloc_callers(report: &TriageReport, key: &Key) -> Table {
    let callers = report.vmalloc.as_ref().map_or(&[][..], |vmalloc| vmalloc.callers.as_slice());
    let columns = [
        ("caller", texts(callers, |caller| caller.caller.as_str())),
        ("areas", longs(callers, |caller| caller.areas)),
        ("bytes", longs(callers, |caller| caller.bytes)),
    ];
    Table::new("vmalloc_callers", key, columns)
}
