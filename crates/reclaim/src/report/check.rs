//! The trace's totals against what the kernel counted by itself.

use serde::Serialize;

use super::analysis::Context;
use crate::counters::{Pressure, VmstatDelta};
use crate::model::{Class, Model};

/// One comparison.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    /// What is compared.
    pub what: &'static str,
    /// By the trace.
    pub trace: f64,
    /// By the kernel's counters.
    pub counted: f64,
    /// The counters.
    pub counters: String,
    /// What it comes to.
    pub verdict: Verdict,
    /// Why they may differ.
    pub note: Option<&'static str>,
}

/// How the two compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The same.
    Equal,
    /// Within one per cent, or a hundred.
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
    if let Some(pressure) = pressure {
        checks.push(psi(model, pressure));
    }
    checks
}

fn push(
    checks: &mut Vec<Check>,
    what: &'static str,
    trace: u64,
    counted: Option<u64>,
    counters: &str,
    note: Option<&'static str>,
) {
    if let Some(counted) = counted {
        let (trace, counted) = (trace as f64, counted as f64);
        let verdict = Verdict::of(trace, counted);
        checks.push(Check { what, trace, counted, counters: counters.to_owned(), verdict, note });
    }
}

fn pages(model: &Model, context: &Context, vmstat: &VmstatDelta, checks: &mut Vec<Check>) {
    if context.missing_lru("mm_vmscan_lru_isolate").is_some() {
        return;
    }
    let mglru = context.mglru == Some(true);
    let sum = |classes: &[Class]| {
        let tallies = classes.iter().filter_map(|class| model.tallies.get(class));
        tallies.fold((0, 0), |sum, tally| {
            let all = tally.all();
            (sum.0 + all.counted(mglru), sum.1 + all.reclaimed)
        })
    };
    use Class::{Direct, Kswapd, Memcg, Node, Other, Proactive, SoftLimit};
    let (tasks, note): (&[Class], _) = if vmstat.includes_memcg {
        (
            &[Direct, Memcg, Proactive, SoftLimit, Node, Other],
            Some("this kernel counts reclaim of control groups too"),
        )
    } else {
        // Soft limit and the rest act on the whole machine's behalf, and count as such.
        (&[Direct, SoftLimit, Node, Other], Some("this kernel leaves reclaim of control groups out"))
    };
    let direct = sum(tasks);
    let counters = ["pgscan_direct", "pgscan_khugepaged", "pgscan_proactive"];
    push(
        checks,
        "pages scanned by tasks",
        direct.0,
        vmstat.sum(&counters),
        "pgscan_direct + khugepaged + proactive",
        note,
    );
    let counters = ["pgsteal_direct", "pgsteal_khugepaged", "pgsteal_proactive"];
    push(
        checks,
        "pages reclaimed by tasks",
        direct.1,
        vmstat.sum(&counters),
        "pgsteal_direct + khugepaged + proactive",
        note,
    );
    let kswapd = sum(&[Kswapd]);
    push(checks, "pages scanned by kswapd", kswapd.0, vmstat.get("pgscan_kswapd"), "pgscan_kswapd", None);
    push(checks, "pages reclaimed by kswapd", kswapd.1, vmstat.get("pgsteal_kswapd"), "pgsteal_kswapd", None);
    let all = sum(&Class::ALL);
    push(
        checks,
        "pages scanned by all",
        all.0,
        vmstat.sum(&["pgscan_anon", "pgscan_file"]),
        "pgscan_anon + pgscan_file",
        None,
    );
    push(
        checks,
        "pages reclaimed by all",
        all.1,
        vmstat.sum(&["pgsteal_anon", "pgsteal_file"]),
        "pgsteal_anon + pgsteal_file",
        None,
    );
}

fn counts(model: &Model, context: &Context, vmstat: &VmstatDelta, checks: &mut Vec<Check>) {
    if context.missing(&["mm_vmscan_direct_reclaim_begin"]).is_none() {
        let begun = model.direct().begun;
        let retried = Some("counted again where reclaim starts over before it fails");
        push(checks, "direct reclaims", begun, vmstat.sum_of("allocstall"), "allocstall_*", retried);
    }
    if context.missing(&["mm_vmscan_kswapd_wake"]).is_none() {
        let wakes = model.kswapd.values().map(|kswapd| kswapd.wakeups + kswapd.rewakeups).sum();
        push(checks, "kswapd wakeups and re-wakeups", wakes, vmstat.get("pageoutrun"), "pageoutrun", None);
    }
    if context.missing_any(&["mm_vmscan_write_folio", "mm_vmscan_writepage"]).is_none() {
        let written = model.tallies.values().map(crate::model::Tally::written).sum();
        let folios = Some("the counter has pages, the trace folios, which may be larger");
        push(
            checks,
            "pages written by reclaim",
            written,
            vmstat.get("nr_vmscan_write"),
            "nr_vmscan_write",
            folios,
        );
    }
}

/// Someone is in reclaim at most as long as PSI says that someone waits for memory: it counts reclaim, and more.
fn psi(model: &Model, pressure: Pressure) -> Check {
    let trace = model.someone_ns as f64 / 1e6;
    let counted = pressure.some_us as f64 / 1e3;
    // The kernel brings the totals up to date every two seconds.
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
        counters: "/proc/pressure/memory some".into(),
        verdict,
        note: Some("PSI also counts compaction, thrashing and swap-in, and is up to 2 s old"),
    }
}
