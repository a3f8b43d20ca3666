//! Tables beyond the rows: by order, node, zone, control group, task, cause, shrinker.

use pagehaul_trace::TraceInfo;
use serde::Serialize;

use super::analysis::Context;
use crate::counters::zone_names;
use crate::model::{Class, Model, Pages, Stretches, grow};
use crate::{Bucket, Durations};

/// A table.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// Its heading.
    pub title: &'static str,
    /// What it says, in a sentence.
    pub about: &'static str,
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows of as many cells.
    pub rows: Vec<Vec<Datum>>,
    /// Rows left out at the end.
    pub left_out: usize,
}

/// A column.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Column {
    /// Its heading, with the unit.
    pub name: &'static str,
    /// Cells are numbers, and stand at the right.
    pub number: bool,
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Datum {
    /// Words.
    Text(String),
    /// A whole number.
    Count(u64),
    /// A number with a fraction.
    Number(f64),
    /// Nothing known.
    None,
}

/// Stretches of one class.
#[derive(Debug, Clone, Serialize)]
pub struct StallClass {
    /// Who reclaimed.
    pub class: Class,
    /// Its name.
    pub name: &'static str,
    /// Stretches begun.
    pub count: u64,
    /// Milliseconds in them all.
    pub total_ms: f64,
    /// Milliseconds at percentiles: 50, 90, 95, 99, 99.9 and the longest.
    pub percentiles_ms: Vec<(f64, f64)>,
    /// How many took how long.
    pub histogram: Vec<Bucket>,
}

/// Rows of tables that could have thousands.
const MOST_ROWS: usize = 15;

pub(super) fn stalls(model: &Model) -> Vec<StallClass> {
    let of = |class: Class, stretches: &Stretches| StallClass {
        class,
        name: class.name(),
        count: stretches.begun,
        total_ms: ms(stretches.ns),
        percentiles_ms: [50.0, 90.0, 95.0, 99.0, 99.9, 100.0]
            .iter()
            .filter_map(|&percent| {
                let durations = &stretches.durations;
                let ns = if percent == 100.0 {
                    (durations.count() > 0).then(|| durations.max_ns())
                } else {
                    durations.percentile_ns(percent)
                };
                Some((percent, ms(ns?)))
            })
            .collect(),
        histogram: stretches.durations.buckets(),
    };
    let known = Class::ALL.iter().filter_map(|&class| Some((class, &model.tallies.get(&class)?.stretches)));
    known
        .filter(|(_, stretches)| stretches.begun > 0)
        .map(|(class, stretches)| of(class, stretches))
        .collect()
}

pub(super) fn all(model: &Model, context: &Context, info: &TraceInfo) -> Vec<Table> {
    let tables = [
        classes(model, context),
        causes(model),
        shrinkers(model, context, info),
        slowest(model),
        tasks(model, context),
        memcgs(model, info),
        orders(model),
        nodes(model),
        zones(model, context, info),
        fates(model),
    ];
    tables.into_iter().filter(|table| !table.rows.is_empty()).collect()
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn text(text: impl Into<String>) -> Datum {
    Datum::Text(text.into())
}

fn percentile(durations: &Durations, percent: f64) -> Datum {
    durations.percentile_ns(percent).map_or(Datum::None, |ns| Datum::Number(ms(ns)))
}

fn longest(durations: &Durations) -> Datum {
    if durations.count() == 0 { Datum::None } else { Datum::Number(ms(durations.max_ns())) }
}

/// Builds a table; names of columns that end in `:` hold words.
fn table(title: &'static str, about: &'static str, columns: &[&'static str]) -> Table {
    let column =
        |name: &&'static str| Column { name: name.trim_end_matches(':'), number: !name.ends_with(':') };
    Table { title, about, columns: columns.iter().map(column).collect(), rows: Vec::new(), left_out: 0 }
}

impl Table {
    fn cut(mut self) -> Self {
        self.left_out = self.rows.len().saturating_sub(MOST_ROWS);
        self.rows.truncate(MOST_ROWS);
        self
    }
}

fn classes(model: &Model, context: &Context) -> Table {
    let mut out = table(
        "Who reclaimed",
        "Pages by the reason for reclaim; efficiency is reclaimed of scanned.",
        &["by:", "scanned", "reclaimed", "efficiency %", "written", "skipped", "named"],
    );
    for class in Class::ALL {
        let Some(tally) = model.tallies.get(&class) else { continue };
        let all = tally.all();
        let scanned = all.counted(context.mglru == Some(true));
        let efficiency = if scanned > 0 {
            Datum::Number(100.0 * all.reclaimed as f64 / scanned as f64)
        } else {
            Datum::None
        };
        out.rows.push(vec![
            text(class.name()),
            Datum::Count(scanned),
            Datum::Count(all.reclaimed),
            efficiency,
            Datum::Count(tally.written()),
            Datum::Count(tally.skipped),
            Datum::Count(tally.named.reclaimed),
        ]);
    }
    out
}

fn causes(model: &Model) -> Table {
    let mut out = table(
        "Where the stalled time went",
        "Time of tasks inside stretches of reclaim. The rest is scanning, unmapping, handing pages to swap, and losing the CPU.",
        &["cause:", "count", "time (ms)", "% of stalls"],
    );
    let causes = &model.causes;
    let all = causes.stretches_ns;
    if all == 0 {
        return out;
    }
    let share = |ns: u64| Datum::Number(100.0 * ns as f64 / all as f64);
    let mut push = |name: String, count: Datum, ns: u64| {
        out.rows.push(vec![text(name), count, Datum::Number(ms(ns)), share(ns)]);
    };
    let throttled: u64 = causes.throttled.values().map(Durations::sum_ns).sum();
    let explained = throttled + causes.shrinkers_ns + causes.compaction_ns;
    for (reason, durations) in &causes.throttled {
        push(format!("throttled: {}", reason.name()), Datum::Count(durations.count()), durations.sum_ns());
    }
    let calls = model.shrinkers.values().map(|shrinker| shrinker.tasks.count()).sum();
    push("shrinkers".into(), Datum::Count(calls), causes.shrinkers_ns);
    if causes.compaction_ns > 0 {
        push("compaction inside reclaim".into(), Datum::None, causes.compaction_ns);
    }
    push("scanning and the rest".into(), Datum::None, all.saturating_sub(explained));
    let outside = &model.compaction.direct;
    if outside.count() > 0 {
        let name = text("direct compaction, beside reclaim");
        out.rows.push(vec![
            name,
            Datum::Count(outside.count()),
            Datum::Number(ms(outside.sum_ns())),
            Datum::None,
        ]);
    }
    let written: u64 = model
        .tallies
        .iter()
        .filter(|(class, _)| **class != Class::Kswapd)
        .map(|(_, tally)| tally.written())
        .sum();
    if written > 0 {
        out.rows.push(vec![
            text("pages written by tasks in reclaim"),
            Datum::Count(written),
            Datum::None,
            Datum::None,
        ]);
    }
    for (reason, durations) in &causes.kswapd_throttled {
        let name = text(format!("kswapd throttled: {}", reason.name()));
        out.rows.push(vec![
            name,
            Datum::Count(durations.count()),
            Datum::Number(ms(durations.sum_ns())),
            Datum::None,
        ]);
    }
    out
}

fn shrinkers(model: &Model, context: &Context, info: &TraceInfo) -> Table {
    let mut out = table(
        "Shrinkers",
        "Kernel caches asked to shrink, by the function that scans them.",
        &[
            "shrinker:",
            "calls by tasks",
            "time (ms)",
            "p99 (ms)",
            "max (ms)",
            "calls by others",
            "time (ms)",
            "freed",
        ],
    );
    let mut shrinkers: Vec<_> = model.shrinkers.iter().collect();
    shrinkers
        .sort_by_key(|(id, tally)| (std::cmp::Reverse(tally.tasks.sum_ns() + tally.kswapd.sum_ns()), **id));
    for (&id, tally) in shrinkers {
        out.rows.push(vec![
            text(context.decoder.shrinkers().name(id, &info.symbols)),
            Datum::Count(tally.tasks.count()),
            Datum::Number(ms(tally.tasks.sum_ns())),
            percentile(&tally.tasks, 99.0),
            longest(&tally.tasks),
            Datum::Count(tally.kswapd.count()),
            Datum::Number(ms(tally.kswapd.sum_ns())),
            Datum::Count(tally.freed),
        ]);
    }
    out.cut()
}

fn slowest(model: &Model) -> Table {
    let mut out = table(
        "Longest stretches",
        "When they began, in seconds of the trace, and what was done in them.",
        &[
            "task:",
            "for:",
            "began (s)",
            "took (ms)",
            "throttled",
            "shrinkers",
            "compaction",
            "order",
            "scanned",
            "reclaimed",
            "written",
        ],
    );
    for slow in &model.slowest {
        let unfinished = if slow.unfinished { ", unfinished" } else { "" };
        out.rows.push(vec![
            text(format!("{}-{}", slow.comm, slow.pid)),
            text(format!("{}{unfinished}", slow.class.name())),
            Datum::Number(slow.begin_ns.saturating_sub(model.begin_ns) as f64 / 1e9),
            Datum::Number(ms(slow.duration_ns)),
            Datum::Number(ms(slow.throttled_ns)),
            Datum::Number(ms(slow.shrinkers_ns)),
            Datum::Number(ms(slow.compaction_ns)),
            text(slow.order.to_string()),
            Datum::Count(slow.scanned),
            Datum::Count(slow.reclaimed),
            Datum::Count(slow.written),
        ]);
    }
    out.cut()
}

/// Columns of stretches, for tables by task and control group.
fn stretches_cells(stretches: &Stretches) -> [Datum; 5] {
    [
        Datum::Count(stretches.begun),
        Datum::Number(ms(stretches.ns)),
        percentile(&stretches.durations, 50.0),
        percentile(&stretches.durations, 99.0),
        longest(&stretches.durations),
    ]
}

fn tasks(model: &Model, context: &Context) -> Table {
    let mut out = table(
        "Tasks",
        "Tasks by the time they were stalled in reclaim of any kind, then the kernel's own threads.",
        &[
            "task:",
            "reclaims",
            "stalled (ms)",
            "p50 (ms)",
            "p99 (ms)",
            "max (ms)",
            "throttled (ms)",
            "scanned",
            "reclaimed",
            "written",
            "woke kswapd",
        ],
    );
    let mut tasks: Vec<_> = model
        .tasks
        .iter()
        .filter(|(_, task)| task.stretches.begun > 0 || task.pages != Pages::default())
        .collect();
    tasks.sort_by_key(|(pid, task)| (std::cmp::Reverse((task.stretches.ns, task.pages.reclaimed)), **pid));
    for (pid, task) in tasks {
        let mut row = vec![text(format!("{}-{pid}", task.comm))];
        row.extend(stretches_cells(&task.stretches));
        row.extend([
            Datum::Number(ms(task.throttled_ns)),
            Datum::Count(task.pages.counted(context.mglru == Some(true))),
            Datum::Count(task.pages.reclaimed),
            Datum::Count(task.writes),
            Datum::Count(task.wakeup_requests),
        ]);
        out.rows.push(row);
    }
    out.cut()
}

fn memcgs(model: &Model, info: &TraceInfo) -> Table {
    let columns = ["group:", "reclaims", "stalled (ms)", "p50 (ms)", "p99 (ms)", "max (ms)", "reclaimed"];
    let mut groups: Vec<(String, Stretches)> = Vec::new();
    let about = if model.memcgs.is_empty() {
        // Before 7.2 events do not name the group: the tasks' own stand in.
        let mut by_path = std::collections::BTreeMap::<&str, Stretches>::new();
        for (pid, task) in model.tasks.iter().filter(|(_, task)| task.stretches.begun > 0) {
            let Some(path) = info.task_cgroups.get(pid) else { continue };
            let sum = by_path.entry(path).or_default();
            grow(&mut sum.begun, task.stretches.begun);
            grow(&mut sum.ns, task.stretches.ns);
            grow(&mut sum.reported, task.stretches.reported);
            sum.durations.merge(&task.stretches.durations);
        }
        groups.extend(by_path.into_iter().map(|(path, stretches)| (path.to_owned(), stretches)));
        "Control groups of the tasks that reclaimed, for whatever reason: this kernel's events do not name the group at its limit."
    } else {
        let name = |id: u64| info.cgroup_ids.get(&id).cloned().unwrap_or_else(|| format!("id {id}"));
        groups.extend(model.memcgs.iter().map(|(&id, stretches)| (name(id), stretches.clone())));
        "Control groups whose limit, or request, made tasks reclaim."
    };
    groups.sort_by_key(|(path, stretches)| (std::cmp::Reverse(stretches.ns), path.clone()));
    let mut out = table("Control groups", about, &columns);
    for (path, stretches) in groups {
        let mut row = vec![text(path)];
        row.extend(stretches_cells(&stretches));
        row.push(Datum::Count(stretches.reported));
        out.rows.push(row);
    }
    out.cut()
}

fn orders(model: &Model) -> Table {
    let mut out = table(
        "Orders",
        "Direct reclaim and kswapd by the order of the allocation.",
        &[
            "order:",
            "direct reclaims",
            "stalled (ms)",
            "p50 (ms)",
            "p99 (ms)",
            "max (ms)",
            "wake requests",
            "kswapd wakeups",
        ],
    );
    let mut wakeups = std::collections::BTreeMap::<i32, u64>::new();
    for (&order, &count) in model.kswapd.values().flat_map(|kswapd| &kswapd.orders) {
        *wakeups.entry(order).or_default() += count;
    }
    let orders = model.orders.keys().chain(model.wakeup_requests.keys()).chain(wakeups.keys());
    let orders: std::collections::BTreeSet<i32> = orders.copied().collect();
    let none = Durations::default();
    for order in orders {
        let durations = model.orders.get(&order).unwrap_or(&none);
        out.rows.push(vec![
            text(order.to_string()),
            Datum::Count(durations.count()),
            Datum::Number(ms(durations.sum_ns())),
            percentile(durations, 50.0),
            percentile(durations, 99.0),
            longest(durations),
            Datum::Count(model.wakeup_requests.get(&order).copied().unwrap_or(0)),
            Datum::Count(wakeups.get(&order).copied().unwrap_or(0)),
        ]);
    }
    out
}

fn nodes(model: &Model) -> Table {
    let mut out = table(
        "Nodes",
        "Pages of each node's lists, and its kswapd.",
        &[
            "node:",
            "kswapd reclaimed",
            "tasks reclaimed",
            "wake requests",
            "wakeups",
            "re-wakeups",
            "awake (ms)",
            "throttled",
            "throttled (ms)",
        ],
    );
    let nodes: std::collections::BTreeSet<i32> =
        model.nodes.keys().chain(model.kswapd.keys()).copied().collect();
    for nid in nodes.into_iter().filter(|&nid| nid >= 0) {
        let node = model.nodes.get(&nid).cloned().unwrap_or_default();
        let kswapd = model.kswapd.get(&nid).cloned().unwrap_or_default();
        out.rows.push(vec![
            text(nid.to_string()),
            Datum::Count(node.kswapd.reclaimed),
            Datum::Count(node.tasks.reclaimed),
            Datum::Count(node.wakeup_requests),
            Datum::Count(kswapd.wakeups),
            Datum::Count(kswapd.rewakeups),
            Datum::Number(ms(kswapd.awake_ns)),
            Datum::Count(node.throttled.count()),
            Datum::Number(ms(node.throttled.sum_ns())),
        ]);
    }
    out
}

fn zones(model: &Model, context: &Context, info: &TraceInfo) -> Table {
    let mut out = table(
        "Zones",
        "By the highest zone the allocation could use; reclaim for control groups has no such limit, and counts for the last.",
        &["zone:", "scanned", "taken", "wake requests"],
    );
    let names = info.begin.as_ref().map(zone_names).unwrap_or_default();
    for (&zone, tally) in &model.zones {
        let name = usize::try_from(zone).ok().and_then(|zone| names.get(zone)).cloned();
        let unknown = if zone < 0 { "unknown".to_owned() } else { format!("zone {zone}") };
        out.rows.push(vec![
            text(name.unwrap_or(unknown)),
            Datum::Count(tally.pages.counted(context.mglru == Some(true))),
            Datum::Count(tally.pages.taken),
            Datum::Count(tally.wakeup_requests),
        ]);
    }
    out
}

fn fates(model: &Model) -> Table {
    let mut out = table(
        "What pages were found to be",
        "Of the pages taken off inactive lists, and of those moved off active ones.",
        &[
            "by:",
            "dirty",
            "under write-back",
            "marked for reclaim",
            "in use",
            "active taken",
            "made inactive",
        ],
    );
    for class in Class::ALL {
        let Some(tally) = model.tallies.get(&class) else { continue };
        out.rows.push(vec![
            text(class.name()),
            Datum::Count(tally.dirty),
            Datum::Count(tally.writeback),
            Datum::Count(tally.immediate),
            Datum::Count(tally.activated),
            Datum::Count(tally.active_taken),
            Datum::Count(tally.deactivated),
        ]);
    }
    out
}
