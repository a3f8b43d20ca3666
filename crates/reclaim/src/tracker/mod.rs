//! Follows every task through the trace.

mod intervals;
mod kswapd;
mod pages;
mod task;

use std::collections::HashMap;

use pagehaul_trace::Event;

use crate::decode::ReclaimEvent;
use crate::model::{AllIntervals, Model, Pages, ReclaimerStats, SlowestStalls, Timeline, accumulate};
use task::{KswapdState, Task};

/// Adds up a [`Model`], event by event in the order of time.
#[derive(Debug, Default)]
pub struct Tracker {
    model: Model,
    tasks: Vec<Task>,
    /// The index in `tasks` by PID.
    by_pid: HashMap<i32, usize>,
    /// The PID and index of the last event's task, which is that of most events.
    last: Option<(i32, usize)>,
    started: bool,
    /// Intervals open in all tasks.
    open: usize,
    /// Since when there is one.
    some_since: u64,
    slowest: SlowestStalls,
}

/// Pages that the inactive and active lists ask for at once: more is a sign of MGLRU.
const SWAP_CLUSTER_MAX: u64 = 32;

impl Tracker {
    /// Begins at the first event.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins at a known time, before the first event.
    pub(crate) fn starting_at(begin_ns: u64) -> Self {
        let mut tracker = Self::default();
        tracker.start(begin_ns);
        tracker
    }

    /// Keeps all intervals.
    pub(crate) fn keep_intervals(&mut self) {
        self.model.intervals = Some(AllIntervals::default());
    }

    fn start(&mut self, ts: u64) {
        self.started = true;
        self.model.begin_ns = ts;
        self.model.timeline = Timeline::start(ts);
    }

    /// Adds a trace event, and what it means for reclaim, if anything.
    #[inline]
    pub fn event(&mut self, event: &Event<'_>, reclaim: Option<ReclaimEvent>) {
        let ts = event.ts();
        if !self.started {
            self.start(ts);
        }
        self.model.events += 1;
        self.model.end_ns = self.model.end_ns.max(ts);
        if event.after_gap() {
            self.lost_events(event.cpu());
        }
        let Some(reclaim) = reclaim else { return };
        let pid = event.pid();
        let at = match self.last {
            Some((last, at)) if last == pid => at,
            _ => self.task_index(event, pid),
        };
        self.tasks[at].cpu = event.cpu();
        self.apply(ts, at, reclaim);
    }

    /// Finds a task, or adds it.
    fn task_index(&mut self, event: &Event<'_>, pid: i32) -> usize {
        let tasks = &mut self.tasks;
        let at = *self.by_pid.entry(pid).or_insert_with(|| {
            tasks.push(Task::new(pid, event.comm().unwrap_or_default()));
            tasks.len() - 1
        });
        let comm = &mut self.tasks[at].stats.comm;
        if comm.is_empty() {
            event.comm().unwrap_or_default().clone_into(comm);
        }
        self.last = Some((pid, at));
        at
    }

    /// Events of a CPU were lost: intervals of tasks last seen there may have ended, and others begun.
    fn lost_events(&mut self, cpu: u32) {
        for task in self.tasks.iter_mut().filter(|task| task.cpu == cpu) {
            task.open.iter_mut().for_each(|open| open.uncertain = true);
            task.shrinker = None;
            task.compacting = None;
        }
    }

    fn apply(&mut self, ts: u64, at: usize, event: ReclaimEvent) {
        match event {
            ReclaimEvent::Begin { kind, order, proactive, memcg } => {
                self.begin(ts, at, kind, order, proactive, memcg)
            }
            ReclaimEvent::End { kind, reclaimed } => self.end(ts, at, kind, reclaimed),
            ReclaimEvent::KswapdWake { nid, order } => self.kswapd_wake(ts, at, nid, order),
            ReclaimEvent::KswapdSleep { nid } => self.kswapd_sleep(ts, at, nid),
            ReclaimEvent::WakeupKswapd { nid, zone, order } => {
                *self.model.wakeup_requests.entry(order).or_default() += 1;
                self.model.nodes.entry(nid).or_default().wakeup_requests += 1;
                self.model.zones.entry(zone).or_default().wakeup_requests += 1;
                self.tasks[at].stats.wakeup_requests += 1;
            }
            ReclaimEvent::LruIsolate { zone, requested, scanned, skipped, taken, list } => {
                self.lru_isolate(ts, at, zone, Pages { scanned, taken, reclaimed: 0 }, skipped, list);
                self.model.completeness.mglru_seen |= requested > SWAP_CLUSTER_MAX;
            }
            ReclaimEvent::ShrinkInactive(stat) => self.shrink_inactive(ts, at, stat),
            ReclaimEvent::ShrinkActive { taken, deactivated } => {
                let stats = self.stats(at);
                accumulate(&mut stats.active_taken, taken);
                accumulate(&mut stats.deactivated, deactivated);
            }
            ReclaimEvent::ReclaimPages { scanned, reclaimed } => {
                let by_address = &mut self.stats(at).by_address;
                accumulate(&mut by_address.scanned, scanned);
                accumulate(&mut by_address.reclaimed, reclaimed);
            }
            ReclaimEvent::WriteFolio { file, sync } => self.write_folio(at, file, sync),
            ReclaimEvent::Throttled { nid, ns, reason } => self.throttled(ts, at, nid, ns, reason),
            ReclaimEvent::ShrinkSlabStart { shrinker } => self.tasks[at].shrinker = Some((shrinker, ts)),
            ReclaimEvent::ShrinkSlabEnd { shrinker, freed } => self.shrink_slab_end(ts, at, shrinker, freed),
            ReclaimEvent::CompactionBegin => self.tasks[at].compacting = Some(ts),
            ReclaimEvent::CompactionEnd => self.compaction_end(ts, at),
            ReclaimEvent::KcompactdWake => self.tasks[at].is_kcompactd = true,
        }
    }

    /// The totals that the pages of a task count for.
    fn stats(&mut self, at: usize) -> &mut ReclaimerStats {
        self.model.by_reclaimer.entry(self.tasks[at].reclaimer()).or_default()
    }

    /// Ends the trace. Open intervals count up to the last event, or to `end_ns` if that is later.
    pub fn finish(mut self, end_ns: Option<u64>) -> Model {
        let end = end_ns.map_or(self.model.end_ns, |end| end.max(self.model.end_ns));
        self.model.end_ns = end;
        if self.open > 0 {
            self.closed(end, self.open);
        }
        for at in 0..self.tasks.len() {
            for open in std::mem::take(&mut self.tasks[at].open) {
                self.close(end, at, open, 0, true);
            }
            if let Some(KswapdState { nid, awake_since: Some(since) }) = self.tasks[at].kswapd {
                self.awake(nid, since, end);
                self.model.completeness.unfinished += 1;
            }
        }
        self.model.tasks = self.tasks.into_iter().map(|task| (task.pid, task.stats)).collect();
        self.model.slowest = self.slowest.finish();
        self.model
    }
}
