//! Figures by reclaimer, cause, shrinker, task, memory cgroup, order, node and zone.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use pagehaul_trace::TraceInfo;

use super::context::{Context, ms};
use super::table::{Datum, Table, cells};
use crate::counters::zone_names;
use crate::histogram::DurationHistogram;
use crate::model::{Intervals, Model, Pages, Reclaimer, ReclaimerStats, accumulate};

pub(super) fn all(model: &Model, context: &Context, info: &TraceInfo) -> Vec<Table> {
    let tables = [
        reclaimers(model, context),
        causes(model),
        shrinkers(model, context, info),
        slowest(model),
        tasks(model, context),
        memcgs(model, info),
        orders(model),
        nodes(model),
        zones(model, context, info),
        page_states(model),
    ];
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

/// Cells of durations: p50, p99 and the longest, in milliseconds.
fn percentiles(durations: &DurationHistogram) -> [Datum; 3] {
    [50.0, 99.0, 100.0].map(|percent| durations.percentile_ns(percent).map(ms).into())
}

fn by_reclaimer(model: &Model) -> impl Iterator<Item = (Reclaimer, &ReclaimerStats)> {
    Reclaimer::ALL.into_iter().filter_map(|reclaimer| Some((reclaimer, model.by_reclaimer.get(&reclaimer)?)))
}

fn reclaimers(model: &Model, context: &Context) -> Table {
    let mut table = Table::new(
        "Reclaimers",
        "Pages by reclaimer. Efficiency is reclaimed of scanned; by address: madvise and DAMON.",
        "by:, scanned, reclaimed, efficiency %, written, skipped, by address",
    );
    for (reclaimer, stats) in by_reclaimer(model) {
        let all = stats.all();
        let scanned = context.scanned(all);
        let efficiency = (scanned > 0).then(|| 100.0 * all.reclaimed as f64 / scanned as f64);
        table.row(cells![
            reclaimer.name(),
            scanned,
            all.reclaimed,
            efficiency,
            stats.written(),
            stats.skipped,
            stats.by_address.reclaimed,
        ]);
    }
    table
}

fn causes(model: &Model) -> Table {
    let mut table = Table::new(
        "Causes of stalls",
        "What tasks in reclaim spent their time on. The rest is scanning, unmapping, submitting swap writes, and waiting for a CPU.",
        "cause:, count, time (ms), % of stalls",
    );
    let causes = &model.causes;
    let all = causes.intervals_ns;
    if all == 0 {
        return table;
    }
    let mut cause = |name: String, count: Option<u64>, ns: u64| {
        table.row(cells![name, count, ms(ns), 100.0 * ns as f64 / all as f64]);
    };
    let throttled: u64 = causes.throttled.values().map(DurationHistogram::sum_ns).sum();
    let explained = throttled + causes.shrinkers_ns + causes.compaction_ns;
    for (reason, durations) in &causes.throttled {
        cause(format!("throttled: {}", reason.name()), Some(durations.count()), durations.sum_ns());
    }
    let calls = model.shrinkers.values().map(|shrinker| shrinker.tasks.count()).sum();
    cause("shrinkers".into(), Some(calls), causes.shrinkers_ns);
    if causes.compaction_ns > 0 {
        cause("compaction inside reclaim".into(), None, causes.compaction_ns);
    }
    cause("scanning and the rest".into(), None, all.saturating_sub(explained));
    let mut other = |name: String, durations: &DurationHistogram| {
        if durations.count() > 0 {
            table.row(cells![name, durations.count(), ms(durations.sum_ns()), Datum::None]);
        }
    };
    other("direct compaction (not part of stalls)".into(), &model.direct_compaction);
    for (reason, durations) in &causes.kswapd_throttled {
        other(format!("kswapd throttled: {}", reason.name()), durations);
    }
    let tasks = by_reclaimer(model).filter(|(reclaimer, _)| *reclaimer != Reclaimer::Kswapd);
    let written: u64 = tasks.map(|(_, stats)| stats.written()).sum();
    if written > 0 {
        table.row(cells!["folios written by tasks in reclaim", written, Datum::None, Datum::None]);
    }
    table
}

fn shrinkers(model: &Model, context: &Context, info: &TraceInfo) -> Table {
    let mut table = Table::new(
        "Shrinkers",
        "Kernel caches asked to shrink, by the function that scans them.",
        "shrinker:, calls by tasks, time (ms), p99 (ms), max (ms), calls by others, time (ms), freed",
    );
    let mut shrinkers: Vec<_> = model.shrinkers.iter().collect();
    shrinkers.sort_by_key(|(id, stats)| (Reverse(stats.tasks.sum_ns() + stats.kswapd.sum_ns()), **id));
    for (&id, stats) in shrinkers {
        let [_, p99, max] = percentiles(&stats.tasks);
        table.row(cells![
            context.decoder.shrinkers().name(id, &info.symbols),
            stats.tasks.count(),
            ms(stats.tasks.sum_ns()),
            p99,
            max,
            stats.kswapd.count(),
            ms(stats.kswapd.sum_ns()),
            stats.freed,
        ]);
    }
    table.truncated()
}

fn slowest(model: &Model) -> Table {
    let mut table = Table::new(
        "Slowest stalls",
        "When they began, in seconds of the trace, and what the task did; times in milliseconds, pages.",
        "task:, for:, began (s), took (ms), throttled, shrinkers, compaction, order, scanned, reclaimed, written",
    );
    for stall in &model.slowest {
        let unfinished = if stall.unfinished { ", unfinished" } else { "" };
        table.row(cells![
            format!("{}-{}", stall.comm, stall.pid),
            format!("{}{unfinished}", stall.reclaimer.name()),
            stall.begin_ns.saturating_sub(model.begin_ns) as f64 / 1e9,
            ms(stall.duration_ns),
            ms(stall.throttled_ns),
            ms(stall.shrinkers_ns),
            ms(stall.compaction_ns),
            stall.order.to_string(),
            stall.scanned,
            stall.reclaimed,
            stall.written,
        ]);
    }
    table.truncated()
}

/// Cells of intervals: their number, time and percentiles.
fn interval_cells(intervals: &Intervals) -> impl Iterator<Item = Datum> {
    cells![intervals.begun, ms(intervals.ns)].into_iter().chain(percentiles(&intervals.durations))
}

fn tasks(model: &Model, context: &Context) -> Table {
    let mut table = Table::new(
        "Tasks",
        "Tasks by the time they stalled in reclaim of any kind, then the kernel's threads.",
        "task:, reclaims, stalled (ms), p50 (ms), p99 (ms), max (ms), throttled (ms), scanned, reclaimed, written, woke kswapd",
    );
    let mut tasks: Vec<_> = model
        .tasks
        .iter()
        .filter(|(_, task)| task.intervals.begun > 0 || task.pages != Pages::default())
        .collect();
    tasks.sort_by_key(|(pid, task)| (Reverse((task.intervals.ns, task.pages.reclaimed)), **pid));
    for (pid, task) in tasks {
        let pages = cells![
            ms(task.throttled_ns),
            context.scanned(task.pages),
            task.pages.reclaimed,
            task.writes,
            task.wakeup_requests,
        ];
        let name = Datum::from(format!("{}-{pid}", task.comm));
        table.row([name].into_iter().chain(interval_cells(&task.intervals)).chain(pages));
    }
    table.truncated()
}

fn memcgs(model: &Model, info: &TraceInfo) -> Table {
    let mut groups: Vec<(String, Intervals)> = Vec::new();
    let about = if model.memcgs.is_empty() {
        // Events before 7.2 do not name the memory cgroup: those of the tasks stand in.
        let mut by_path = BTreeMap::<&str, Intervals>::new();
        for (pid, task) in model.tasks.iter().filter(|(_, task)| task.intervals.begun > 0) {
            let Some(path) = info.task_cgroups.get(pid) else { continue };
            let sum = by_path.entry(path).or_default();
            accumulate(&mut sum.begun, task.intervals.begun);
            accumulate(&mut sum.ns, task.intervals.ns);
            accumulate(&mut sum.reported, task.intervals.reported);
            sum.durations.merge(&task.intervals.durations);
        }
        groups.extend(by_path.into_iter().map(|(path, intervals)| (path.to_owned(), intervals)));
        "Control groups of the tasks that reclaimed, for any reason: events of this kernel do not name the group at its limit."
    } else {
        let name = |id: u64| info.cgroup_ids.get(&id).cloned().unwrap_or_else(|| format!("id {id}"));
        groups.extend(model.memcgs.iter().map(|(&id, intervals)| (name(id), intervals.clone())));
        "Memory cgroups whose limit, or a request, made tasks reclaim."
    };
    groups.sort_by_key(|(path, intervals)| (Reverse(intervals.ns), path.clone()));
    let columns = "group:, reclaims, stalled (ms), p50 (ms), p99 (ms), max (ms), reclaimed";
    let mut table = Table::new("Control groups", about, columns);
    for (path, intervals) in groups {
        let reported = Datum::from(intervals.reported);
        table.row([path.into()].into_iter().chain(interval_cells(&intervals)).chain([reported]));
    }
    table.truncated()
}

fn orders(model: &Model) -> Table {
    let mut table = Table::new(
        "Orders",
        "Direct reclaim and kswapd by the order of the allocation.",
        "order:, direct reclaims, stalled (ms), p50 (ms), p99 (ms), max (ms), wake requests, kswapd wakeups",
    );
    let mut wakeups = BTreeMap::<i32, u64>::new();
    for (&order, &count) in model.kswapd.values().flat_map(|kswapd| &kswapd.orders) {
        *wakeups.entry(order).or_default() += count;
    }
    let orders = model.orders.keys().chain(model.wakeup_requests.keys()).chain(wakeups.keys());
    let none = DurationHistogram::default();
    for order in orders.copied().collect::<BTreeSet<i32>>() {
        let durations = model.orders.get(&order).unwrap_or(&none);
        let [p50, p99, max] = percentiles(durations);
        table.row(cells![
            order.to_string(),
            durations.count(),
            ms(durations.sum_ns()),
            p50,
            p99,
            max,
            model.wakeup_requests.get(&order).copied().unwrap_or(0),
            wakeups.get(&order).copied().unwrap_or(0),
        ]);
    }
    table
}

fn nodes(model: &Model) -> Table {
    let mut table = Table::new(
        "Nodes",
        "Pages of each node's lists, and its kswapd.",
        "node:, kswapd reclaimed, tasks reclaimed, wake requests, wakeups, re-wakeups, awake (ms), throttled, throttled (ms)",
    );
    let nodes: BTreeSet<i32> = model.nodes.keys().chain(model.kswapd.keys()).copied().collect();
    for nid in nodes.into_iter().filter(|&nid| nid >= 0) {
        let node = model.nodes.get(&nid).cloned().unwrap_or_default();
        let kswapd = model.kswapd.get(&nid).cloned().unwrap_or_default();
        table.row(cells![
            nid.to_string(),
            node.kswapd.reclaimed,
            node.tasks.reclaimed,
            node.wakeup_requests,
            kswapd.wakeups,
            kswapd.rewakeups,
            ms(kswapd.awake_ns),
            node.throttled.count(),
            ms(node.throttled.sum_ns()),
        ]);
    }
    table
}

fn zones(model: &Model, context: &Context, info: &TraceInfo) -> Table {
    let mut table = Table::new(
        "Zones",
        "By the highest zone that the allocation can use; memcg reclaim has no such limit, and counts for the last.",
        "zone:, scanned, taken, wake requests",
    );
    let names = info.begin.as_ref().map(zone_names).unwrap_or_default();
    for (&zone, stats) in &model.zones {
        let name = usize::try_from(zone).ok().and_then(|zone| names.get(zone)).cloned();
        let unknown = if zone < 0 { "unknown".to_owned() } else { format!("zone {zone}") };
        table.row(cells![
            name.unwrap_or(unknown),
            context.scanned(stats.pages),
            stats.pages.taken,
            stats.wakeup_requests,
        ]);
    }
    table
}

fn page_states(model: &Model) -> Table {
    let mut table = Table::new(
        "Page states",
        "Of the pages taken off inactive lists, and of those moved off active ones.",
        "by:, dirty, under writeback, immediate reclaim, activated, active taken, deactivated",
    );
    for (reclaimer, stats) in by_reclaimer(model) {
        table.row(cells![
            reclaimer.name(),
            stats.dirty,
            stats.writeback,
            stats.immediate,
            stats.activated,
            stats.active_taken,
            stats.deactivated,
        ]);
    }
    table
}
