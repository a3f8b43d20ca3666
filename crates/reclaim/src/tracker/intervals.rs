//! Begin and end of the intervals that tasks spend in reclaim.

use super::Tracker;
use super::task::OpenInterval;
use crate::decode::IntervalKind;
use crate::model::{Reclaimer, Stall, accumulate};

/// Intervals that nest in one task; deeper nesting is a sign of a damaged trace.
const MAX_NESTED: usize = 8;

impl Tracker {
    pub(super) fn begin(
        &mut self,
        ts: u64,
        at: usize,
        kind: IntervalKind,
        order: i32,
        proactive: bool,
        memcg: Option<u64>,
    ) {
        let open = &mut self.tasks[at].open;
        if open.iter().any(|open| open.kind == kind) || open.len() >= MAX_NESTED {
            let lost = open.len();
            open.clear();
            self.model.completeness.unmatched_begins += lost as u64;
            self.closed(ts, lost);
        }
        if self.open == 0 {
            self.some_since = ts;
        }
        self.open += 1;
        let reclaimer = Reclaimer::of(kind, proactive);
        let task = &mut self.tasks[at];
        task.stats.intervals.begun += 1;
        let stall = Stall {
            pid: task.pid,
            comm: String::new(),
            reclaimer,
            begin_ns: ts,
            duration_ns: 0,
            order,
            throttled_ns: 0,
            shrinkers_ns: 0,
            compaction_ns: 0,
            scanned: 0,
            reclaimed: 0,
            written: 0,
            unfinished: false,
            uncertain: false,
        };
        task.open.push(OpenInterval { kind, memcg, throttled_until: ts, uncertain: false, stall });
        self.model.by_reclaimer.entry(reclaimer).or_default().intervals.begun += 1;
        if let Some(memcg) = memcg {
            self.model.memcgs.entry(memcg).or_default().begun += 1;
        }
    }

    pub(super) fn end(&mut self, ts: u64, at: usize, kind: IntervalKind, reclaimed: u64) {
        let open = &mut self.tasks[at].open;
        let Some(depth) = open.iter().rposition(|open| open.kind == kind) else {
            self.model.completeness.unmatched_ends += 1;
            return;
        };
        // Intervals nested in it have lost their ends.
        let count = open.len() - depth;
        self.model.completeness.unmatched_begins += count as u64 - 1;
        open.truncate(depth + 1);
        let open = open.pop();
        self.closed(ts, count);
        if let Some(open) = open {
            self.close(ts, at, open, reclaimed, false);
        }
    }

    /// Counts intervals that are no longer open.
    pub(super) fn closed(&mut self, ts: u64, count: usize) {
        self.open = self.open.saturating_sub(count);
        if self.open == 0 {
            accumulate(&mut self.model.some_ns, ts.saturating_sub(self.some_since));
        }
    }

    /// Adds up an interval. `reclaimed` is what its end reports.
    pub(super) fn close(&mut self, ts: u64, at: usize, open: OpenInterval, reclaimed: u64, unfinished: bool) {
        let OpenInterval { memcg, uncertain, stall, .. } = open;
        let ns = ts.saturating_sub(stall.begin_ns);
        let certain = !unfinished && !uncertain;
        let model = &mut self.model;
        model.completeness.unfinished += u64::from(unfinished);
        model.completeness.uncertain += u64::from(uncertain);
        let by_memcg = memcg.map(|memcg| model.memcgs.entry(memcg).or_default());
        let by_reclaimer = &mut model.by_reclaimer.entry(stall.reclaimer).or_default().intervals;
        let by_task = &mut self.tasks[at].stats.intervals;
        for intervals in [Some(by_reclaimer), Some(by_task), by_memcg].into_iter().flatten() {
            accumulate(&mut intervals.ns, ns);
            accumulate(&mut intervals.reported, reclaimed);
            if certain {
                intervals.durations.add(ns);
            }
        }
        let direct = stall.reclaimer == Reclaimer::Direct;
        if direct && certain {
            model.orders.entry(stall.order).or_default().add(ns);
        }
        accumulate(&mut model.causes.intervals_ns, ns);
        accumulate(&mut model.causes.shrinkers_ns, stall.shrinkers_ns);
        accumulate(&mut model.causes.compaction_ns, stall.compaction_ns);
        model.timeline.spread(stall.begin_ns, ts, |slice, ns| {
            accumulate(if direct { &mut slice.direct_ns } else { &mut slice.memcg_ns }, ns);
        });
        if self.model.intervals.is_some() || self.slowest.admits(ns) {
            let comm = self.tasks[at].stats.comm.clone();
            let stall = Stall { comm, duration_ns: ns, unfinished, uncertain, ..stall };
            if let Some(all) = &mut self.model.intervals {
                all.stalls.push(stall.clone());
            }
            self.slowest.add(stall);
        }
    }
}
