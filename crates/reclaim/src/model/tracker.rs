use std::collections::HashMap;

use pagehaul_trace::Event;

use super::tally::grow;
use super::task::{Awake, Open, Task};
use super::{Class, Model, NodeTally, Pages, SLOWEST, Slow, Timeline};
use crate::decode::{Happening, List, Reason, Shrunk, StretchKind};

/// Adds up a [`Model`], event by event in the order of time.
#[derive(Debug, Default)]
pub struct Tracker {
    model: Model,
    tasks: Vec<Task>,
    /// Where in `tasks` a PID is, and the one seen last, which is that of most events.
    places: HashMap<i32, usize>,
    last: Option<(i32, usize)>,
    started: bool,
    /// Stretches open in all tasks, and since when there is one.
    open: usize,
    someone_since: u64,
    /// Longest stretches so far; cut back when it is twice too long.
    slow: Vec<Slow>,
    /// Shorter ones cannot be among the longest any more.
    slow_floor: u64,
}

/// Pages the older lists ask for at once (SWAP_CLUSTER_MAX): what asks for more is MGLRU.
const SWAP_CLUSTER_MAX: u64 = 32;
/// Stretches that nest in one task; more is a trace that makes no sense.
const MAX_NESTED: usize = 8;

impl Tracker {
    /// Begins at the first event.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins at a known time, before the first event.
    pub fn starting_at(begin_ns: u64) -> Self {
        let mut tracker = Self::default();
        tracker.start(begin_ns);
        tracker
    }

    fn start(&mut self, ts: u64) {
        self.started = true;
        self.model.begin_ns = ts;
        self.model.timeline = Timeline::start(ts);
    }

    /// Takes an event of any kind, with what it means for reclaim, if anything.
    #[inline]
    pub fn event(&mut self, event: &Event<'_>, happening: Option<Happening>) {
        let ts = event.ts();
        if !self.started {
            self.start(ts);
        }
        self.model.events += 1;
        self.model.end_ns = self.model.end_ns.max(ts);
        if event.after_gap() {
            self.gap(event.cpu());
        }
        let Some(happening) = happening else { return };
        let pid = event.pid();
        let at = match self.last {
            Some((last, at)) if last == pid => at,
            _ => self.place(event, pid),
        };
        self.tasks[at].cpu = event.cpu();
        self.take(ts, at, happening);
    }

    /// Where a task is, made if it is new.
    fn place(&mut self, event: &Event<'_>, pid: i32) -> usize {
        let tasks = &mut self.tasks;
        let at = *self.places.entry(pid).or_insert_with(|| {
            tasks.push(Task::new(pid, event.comm().unwrap_or_default()));
            tasks.len() - 1
        });
        let comm = &mut self.tasks[at].tally.comm;
        if comm.is_empty() {
            event.comm().unwrap_or_default().clone_into(comm);
        }
        self.last = Some((pid, at));
        at
    }

    /// Events of a CPU were lost: stretches of tasks last seen there may have ended, and others begun.
    fn gap(&mut self, cpu: u32) {
        for task in self.tasks.iter_mut().filter(|task| task.cpu == cpu) {
            task.open.iter_mut().for_each(|open| open.uncertain = true);
            task.slab = None;
            task.compact = None;
        }
    }

    fn take(&mut self, ts: u64, at: usize, happening: Happening) {
        match happening {
            Happening::Begin { kind, order, requested, memcg, .. } => {
                self.begin(ts, at, kind, order, requested, memcg)
            }
            Happening::End { kind, reclaimed } => self.end(ts, at, kind, reclaimed),
            Happening::KswapdWake { nid, order, .. } => self.kswapd_wake(ts, at, nid, order),
            Happening::KswapdSleep { nid } => self.kswapd_sleep(ts, at, nid),
            Happening::WakeupRequest { nid, zone, order } => {
                *self.model.wakeup_requests.entry(order).or_default() += 1;
                self.model.nodes.entry(nid).or_default().wakeup_requests += 1;
                self.model.zones.entry(zone).or_default().wakeup_requests += 1;
                self.tasks[at].tally.wakeup_requests += 1;
            }
            Happening::Isolate { zone, requested, scanned, skipped, taken, list } => {
                self.isolate(ts, at, zone, Pages { scanned, taken, reclaimed: 0 }, skipped, list);
                self.model.limits.mglru_seen |= requested > SWAP_CLUSTER_MAX;
            }
            Happening::Shrink(shrunk) => self.shrink(ts, at, shrunk),
            Happening::Deactivate { taken, deactivated, .. } => {
                let tally = self.tally(at);
                grow(&mut tally.active_taken, taken);
                grow(&mut tally.deactivated, deactivated);
            }
            Happening::Named { scanned, reclaimed, .. } => {
                self.tally(at).named.add(Pages { scanned, taken: scanned, reclaimed });
            }
            Happening::Write { file, sync } => self.write(ts, at, file, sync),
            Happening::Throttled { nid, ns, reason } => self.throttled(ts, at, nid, ns, reason),
            Happening::SlabStart { shrinker, .. } => self.tasks[at].slab = Some((shrinker, ts)),
            Happening::SlabEnd { shrinker, freed } => self.slab_end(ts, at, shrinker, freed),
            Happening::CompactBegin => self.tasks[at].compact = Some(ts),
            Happening::CompactEnd => self.compact_end(ts, at),
            Happening::CompactMigrated { moved, failed } => {
                grow(&mut self.model.compaction.moved, moved);
                grow(&mut self.model.compaction.failed, failed);
            }
            Happening::KcompactdWake => self.tasks[at].kcompactd = true,
        }
    }

    /// The totals a task's pages count for.
    fn tally(&mut self, at: usize) -> &mut super::Tally {
        let class = self.tasks[at].class();
        self.model.tallies.entry(class).or_default()
    }

    fn begin(
        &mut self,
        ts: u64,
        at: usize,
        kind: StretchKind,
        order: i32,
        requested: bool,
        memcg: Option<u64>,
    ) {
        let class = Class::of(kind, requested);
        let task = &mut self.tasks[at];
        task.direct |= kind == StretchKind::Direct;
        if task.open.iter().any(|open| open.kind == kind) || task.open.len() >= MAX_NESTED {
            self.model.limits.unmatched_begins += task.open.len() as u64;
            let lost = task.open.len();
            task.open.clear();
            self.fewer_open(ts, lost);
        }
        if self.open == 0 {
            self.someone_since = ts;
        }
        self.open += 1;
        let task = &mut self.tasks[at];
        task.open.push(Open {
            kind,
            class,
            begin: ts,
            order,
            memcg,
            throttled_ns: 0,
            throttled_until: ts,
            shrinkers_ns: 0,
            compaction_ns: 0,
            scanned: 0,
            reclaimed: 0,
            written: 0,
            uncertain: false,
        });
        self.model.tallies.entry(class).or_default().stretches.begun += 1;
        self.tasks[at].tally.stretches.begun += 1;
        if let Some(memcg) = memcg {
            self.model.memcgs.entry(memcg).or_default().begun += 1;
        }
    }

    fn end(&mut self, ts: u64, at: usize, kind: StretchKind, reclaimed: u64) {
        let task = &mut self.tasks[at];
        let Some(depth) = task.open.iter().rposition(|open| open.kind == kind) else {
            self.model.limits.unmatched_ends += 1;
            return;
        };
        // What nests in it has lost its end.
        let closed = task.open.len() - depth;
        self.model.limits.unmatched_begins += closed as u64 - 1;
        task.open.truncate(depth + 1);
        let open = task.open.pop();
        self.fewer_open(ts, closed);
        if let Some(open) = open {
            self.close(ts, at, &open, reclaimed, false);
        }
    }

    fn fewer_open(&mut self, ts: u64, count: usize) {
        self.open = self.open.saturating_sub(count);
        if self.open == 0 {
            grow(&mut self.model.someone_ns, ts.saturating_sub(self.someone_since));
        }
    }

    fn close(&mut self, ts: u64, at: usize, open: &Open, reclaimed: u64, unfinished: bool) {
        let ns = ts.saturating_sub(open.begin);
        let model = &mut self.model;
        let certain = !unfinished && !open.uncertain;
        model.limits.unfinished += u64::from(unfinished);
        model.limits.uncertain += u64::from(open.uncertain);
        let task = &mut self.tasks[at];
        let by_memcg = open.memcg.map(|memcg| model.memcgs.entry(memcg).or_default());
        let by_class = &mut model.tallies.entry(open.class).or_default().stretches;
        for stretches in [Some(by_class), Some(&mut task.tally.stretches), by_memcg].into_iter().flatten() {
            grow(&mut stretches.ns, ns);
            grow(&mut stretches.reported, reclaimed);
            if certain {
                stretches.durations.add(ns);
            }
        }
        if open.class == Class::Direct && certain {
            task.tally.direct.add(ns);
            model.orders.entry(open.order).or_default().add(ns);
        }
        grow(&mut model.causes.stretches_ns, ns);
        grow(&mut model.causes.shrinkers_ns, open.shrinkers_ns);
        grow(&mut model.causes.compaction_ns, open.compaction_ns);
        model.timeline.spread(open.begin, ts, |moment, ns| {
            if open.class == Class::Direct {
                grow(&mut moment.direct_ns, ns)
            } else {
                grow(&mut moment.memcg_ns, ns)
            }
        });
        if ns < self.slow_floor {
            return;
        }
        let (pid, comm) = (task.pid, task.tally.comm.clone());
        self.slow.push(Slow {
            pid,
            comm,
            class: open.class,
            begin_ns: open.begin,
            duration_ns: ns,
            order: open.order,
            throttled_ns: open.throttled_ns,
            shrinkers_ns: open.shrinkers_ns,
            compaction_ns: open.compaction_ns,
            scanned: open.scanned,
            reclaimed: open.reclaimed,
            written: open.written,
            unfinished,
        });
        if self.slow.len() >= 64 * SLOWEST {
            self.keep_slowest();
        }
    }

    fn keep_slowest(&mut self) {
        self.slow.sort_by_key(|slow| (std::cmp::Reverse(slow.duration_ns), slow.begin_ns, slow.pid));
        self.slow.truncate(SLOWEST);
        if let [.., last] = &self.slow[..]
            && self.slow.len() == SLOWEST
        {
            self.slow_floor = last.duration_ns;
        }
    }

    fn kswapd_wake(&mut self, ts: u64, at: usize, nid: i32, order: i32) {
        let known = self.model.kswapd.entry(nid).or_default();
        let task = &mut self.tasks[at];
        let awake = task.kswapd.get_or_insert(Awake { nid, since: None });
        awake.nid = nid;
        if awake.since.is_some() {
            known.rewakeups += 1;
        } else {
            known.wakeups += 1;
            *known.orders.entry(order).or_default() += 1;
            awake.since = Some(ts);
        }
    }

    fn kswapd_sleep(&mut self, ts: u64, at: usize, nid: i32) {
        let first = !self.model.kswapd.contains_key(&nid);
        let task = &mut self.tasks[at];
        let since = task.kswapd.get_or_insert(Awake { nid, since: None }).since.take();
        // Its first word is that it sleeps: it was awake from the begin. Later, a wake is missing, and nothing is known.
        let since = since.or_else(|| {
            self.model.limits.awake_at_begin += u64::from(first);
            first.then_some(self.model.begin_ns)
        });
        if let Some(since) = since {
            self.awake(nid, since, ts, true);
        }
    }

    fn awake(&mut self, nid: i32, since: u64, ts: u64, finished: bool) {
        let ns = ts.saturating_sub(since);
        let kswapd = self.model.kswapd.entry(nid).or_default();
        grow(&mut kswapd.awake_ns, ns);
        if finished {
            kswapd.awake.add(ns);
        }
        self.model.timeline.spread(since, ts, |moment, ns| grow(&mut moment.kswapd_ns, ns));
    }

    /// A kswapd that is at work before it was ever seen to wake was awake from the begin.
    fn note_awake(&mut self, at: usize) {
        let Some(awake) = self.tasks[at].kswapd.as_mut() else { return };
        if awake.since.is_none() && !self.model.kswapd.contains_key(&awake.nid) {
            self.model.kswapd.entry(awake.nid).or_default();
            self.model.limits.awake_at_begin += 1;
            awake.since = Some(self.model.begin_ns);
        }
    }

    fn isolate(&mut self, ts: u64, at: usize, zone: i32, pages: Pages, skipped: u64, list: List) {
        self.note_awake(at);
        let List::Inactive { file } = list else { return };
        let tally = self.tally(at);
        tally.pages[usize::from(file)].add(pages);
        grow(&mut tally.skipped, skipped);
        self.model.zones.entry(zone).or_default().pages.add(pages);
        self.tasks[at].tally.pages.add(pages);
        grow(&mut self.model.timeline.at(ts).scanned, pages.scanned);
        if let Some(open) = self.tasks[at].open.last_mut() {
            grow(&mut open.scanned, pages.scanned);
        }
    }

    fn shrink(&mut self, ts: u64, at: usize, shrunk: Shrunk) {
        let class = self.tasks[at].class();
        let tally = self.model.tallies.entry(class).or_default();
        grow(&mut tally.pages[usize::from(shrunk.file)].reclaimed, shrunk.reclaimed);
        grow(&mut tally.dirty, shrunk.dirty);
        grow(&mut tally.writeback, shrunk.writeback);
        grow(&mut tally.immediate, shrunk.immediate);
        grow(&mut tally.activated, shrunk.activated);
        let pages = Pages { scanned: shrunk.scanned, taken: shrunk.scanned, reclaimed: shrunk.reclaimed };
        let NodeTally { kswapd, tasks, .. } = self.model.nodes.entry(shrunk.nid).or_default();
        let moment = self.model.timeline.at(ts);
        if class == Class::Kswapd {
            kswapd.add(pages);
            grow(&mut moment.kswapd_reclaimed, shrunk.reclaimed);
        } else {
            tasks.add(pages);
            grow(&mut moment.task_reclaimed, shrunk.reclaimed);
        }
        grow(&mut self.tasks[at].tally.pages.reclaimed, shrunk.reclaimed);
        if let Some(open) = self.tasks[at].open.last_mut() {
            grow(&mut open.reclaimed, shrunk.reclaimed);
        }
    }

    fn write(&mut self, ts: u64, at: usize, file: bool, sync: bool) {
        self.tally(at).writes[usize::from(file)][usize::from(sync)] += 1;
        self.tasks[at].tally.writes += 1;
        self.model.timeline.at(ts).written += 1;
        if let Some(open) = self.tasks[at].open.last_mut() {
            open.written += 1;
        }
    }

    fn throttled(&mut self, ts: u64, at: usize, nid: i32, ns: u64, reason: Reason) {
        let task = &mut self.tasks[at];
        match task.open.last_mut() {
            Some(open) => {
                // The kernel measures in jiffies, and rounds: two waits cannot overlap, nor begin before the stretch.
                let from = ts.saturating_sub(ns).max(open.throttled_until).min(ts);
                open.throttled_until = ts;
                let ns = ts - from;
                grow(&mut open.throttled_ns, ns);
                grow(&mut self.tasks[at].tally.throttled_ns, ns);
                self.model.timeline.spread(from, ts, |moment, ns| grow(&mut moment.throttled_ns, ns));
                self.model.causes.throttled.entry(reason).or_default().add(ns);
            }
            None => self.model.causes.kswapd_throttled.entry(reason).or_default().add(ns),
        }
        if nid >= 0 {
            self.model.nodes.entry(nid).or_default().throttled.add(ns);
        }
    }

    fn slab_end(&mut self, ts: u64, at: usize, shrinker: u32, freed: u64) {
        let task = &mut self.tasks[at];
        let Some((_, begin)) = task.slab.take().filter(|&(begun, _)| begun == shrinker) else { return };
        let ns = ts.saturating_sub(begin);
        let tally = self.model.shrinkers.entry(shrinker).or_default();
        grow(&mut tally.freed, freed);
        match task.open.last_mut() {
            Some(open) => {
                grow(&mut open.shrinkers_ns, ns);
                tally.tasks.add(ns);
            }
            None => tally.kswapd.add(ns),
        }
    }

    fn compact_end(&mut self, ts: u64, at: usize) {
        let task = &mut self.tasks[at];
        let Some(begin) = task.compact.take() else { return };
        let ns = ts.saturating_sub(begin);
        if task.kcompactd {
            self.model.compaction.kcompactd.add(ns);
        } else {
            self.model.compaction.direct.add(ns);
            if let Some(open) = task.open.last_mut() {
                grow(&mut open.compaction_ns, ns);
            }
        }
    }

    /// Ends: what is open counts up to the last event, or to `end_ns` if that is later.
    pub fn finish(mut self, end_ns: Option<u64>) -> Model {
        let end = end_ns.map_or(self.model.end_ns, |end| end.max(self.model.end_ns));
        self.model.end_ns = end;
        if self.open > 0 {
            self.fewer_open(end, self.open);
        }
        for at in 0..self.tasks.len() {
            for open in std::mem::take(&mut self.tasks[at].open) {
                self.close(end, at, &open, 0, true);
            }
            let task = &self.tasks[at];
            if task.direct {
                grow(&mut self.model.wakeup_requests_by_reclaimers, task.tally.wakeup_requests);
            }
            if let Some(Awake { nid, since: Some(since) }) = task.kswapd {
                self.awake(nid, since, end, false);
                self.model.limits.unfinished += 1;
            }
        }
        self.model.tasks =
            std::mem::take(&mut self.tasks).into_iter().map(|task| (task.pid, task.tally)).collect();
        self.keep_slowest();
        self.model.slowest = self.slow;
        self.model
    }
}
