//! The trace's totals against the kernel's counters.

use serde::Serialize;

use super::context::{Context, ms};
use crate::counters::{Pressure, VmstatDelta};
use crate::model::{Model, Reclaimer, ReclaimerStats};

/// A figure of the trace against the kernel's.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    /// The figure.
    pub what: &'static str,
    /// By the trace.
    pub trace: f64,
    /// By the kernel's counters.
    pub counted: f64,
    /// The counters.
    pub counters: &'static str,
    /// How the two compare.
    pub verdict: Verdict,
    /// Why they may differ.
    pub note: Option<&'static str>,
}

/// How the two figures compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The same.
    Equal,
    /// Within 1 % or 100.
    Close,
    /// More than that apart.
    Differs,
}

impl Verdict {
    fn of(trace: f64, counted: f64) -> Self {
        let apart = (trace - counted).abs();
        if apart == 0.0 {
            Self::Equal
        } else if apart <= 100.0 || apart <= 0.01 * counted.max(trace) {
            Self::Close
        } else {
            Self::Differs
        }
    }
}

pub(super) fn all(
    model: &Model,
    context: &Context,
    vmstat: Option<&VmstatDelta>,
    pressure: Option<Pressure>,
) -> Vec<Check> {
    let mut checks = Vec::new();
    if let Some(vmstat) = vmstat {
        pages(model, context, vmstat, &mut checks);
        counts(model, context, vmstat, &mut checks);
    }
    checks.extend(pressure.map(|pressure| psi(model, pressure)));
    checks
}

/// Adds a check, unless this kernel has no such counter.
fn push(
    checks: &mut Vec<Check>,
    what: &'static str,
    trace: u64,
    (counted, counters): (Option<u64>, &'static str),
    note: Option<&'static str>,
) {
    if let Some(counted) = counted {
        let (trace, counted) = (trace as f64, counted as f64);
        checks.push(Check { what, trace, counted, counters, verdict: Verdict::of(trace, counted), note });
    }
}

fn pages(model: &Model, context: &Context, vmstat: &VmstatDelta, checks: &mut Vec<Check>) {
    if context.missing_lru("mm_vmscan_lru_isolate").is_some() {
        return;
    }
    let sum = |reclaimers: &[Reclaimer]| {
        let stats = reclaimers.iter().filter_map(|reclaimer| model.by_reclaimer.get(reclaimer));
        stats.map(ReclaimerStats::all).fold((0_u64, 0_u64), |(scanned, reclaimed), pages| {
            (scanned.saturating_add(context.scanned(pages)), reclaimed.saturating_add(pages.reclaimed))
        })
    };
    use Reclaimer::{Direct, Kswapd, Memcg, Node, Other, Proactive, SoftLimit};
    let (tasks, note): (&[Reclaimer], _) = if vmstat.includes_memcg {
        (&[Direct, Memcg, Proactive, SoftLimit, Node, Other], "this kernel counts memcg reclaim too")
    } else {
        // Soft limit and the others act on the whole machine's behalf, and count as such.
        (&[Direct, SoftLimit, Node, Other], "this kernel does not count memcg reclaim")
    };
    let (tasks, kswapd, all) = (sum(tasks), sum(&[Kswapd]), sum(&Reclaimer::ALL));
    let scan_tasks = (
        &["pgscan_direct", "pgscan_khugepaged", "pgscan_proactive"][..],
        "pgscan_direct + khugepaged + proactive",
    );
    let steal_tasks = (
        &["pgsteal_direct", "pgsteal_khugepaged", "pgsteal_proactive"][..],
        "pgsteal_direct + khugepaged + proactive",
    );
    for (what, trace, (names, counters), note) in [
        ("pages scanned by tasks", tasks.0, scan_tasks, Some(note)),
        ("pages reclaimed by tasks", tasks.1, steal_tasks, Some(note)),
        ("pages scanned by kswapd", kswapd.0, (&["pgscan_kswapd"][..], "pgscan_kswapd"), None),
        ("pages reclaimed by kswapd", kswapd.1, (&["pgsteal_kswapd"][..], "pgsteal_kswapd"), None),
        (
            "pages scanned by all",
            all.0,
            (&["pgscan_anon", "pgscan_file"][..], "pgscan_anon + pgscan_file"),
            None,
        ),
        (
            "pages reclaimed by all",
            all.1,
            (&["pgsteal_anon", "pgsteal_file"][..], "pgsteal_anon + pgsteal_file"),
            None,
        ),
    ] {
        push(checks, what, trace, (vmstat.sum(names), counters), note);
    }
}

fn counts(model: &Model, context: &Context, vmstat: &VmstatDelta, checks: &mut Vec<Check>) {
    if context.missing(&["mm_vmscan_direct_reclaim_begin"]).is_none() {
        let begun = model.by_reclaimer.get(&Reclaimer::Direct).map_or(0, |stats| stats.intervals.begun);
        let note = "counted again where reclaim starts over before it fails";
        push(checks, "direct reclaims", begun, (vmstat.sum_of("allocstall"), "allocstall_*"), Some(note));
    }
    if context.missing(&["mm_vmscan_kswapd_wake"]).is_none() {
        let wakeups = model.kswapd.values().map(|kswapd| kswapd.wakeups + kswapd.rewakeups).sum();
        push(
            checks,
            "kswapd wakeups and re-wakeups",
            wakeups,
            (vmstat.get("pageoutrun"), "pageoutrun"),
            None,
        );
    }
    if context.missing_any(&["mm_vmscan_write_folio", "mm_vmscan_writepage"]).is_none() {
        let written = model.by_reclaimer.values().map(ReclaimerStats::written).sum();
        let note = "the counter has pages, the trace folios, which may be larger";
        let counters = (vmstat.get("nr_vmscan_write"), "nr_vmscan_write");
        push(checks, "pages written by reclaim", written, counters, Some(note));
    }
}

/// The time with a task in reclaim is at most PSI's `some`, which counts reclaim, and more.
fn psi(model: &Model, pressure: Pressure) -> Check {
    let trace = ms(model.some_ns);
    let counted = pressure.some_us as f64 / 1e3;
    // The kernel updates the totals every two seconds.
    const LAG_MS: f64 = 2_000.0;
    let verdict = if trace <= counted {
        Verdict::Equal
    } else if trace - counted <= (0.05 * trace).max(LAG_MS.min(trace)) {
        Verdict::Close
    } else {
        Verdict::Differs
    };
    Check {
        what: "ms with a task in reclaim, at most PSI's",
        trace,
        counted,
        counters: "/proc/pressure/memory some",
        verdict,
        note: Some("PSI also counts compaction, thrashing and swap-in, and is up to 2 s old"),
    }
}
