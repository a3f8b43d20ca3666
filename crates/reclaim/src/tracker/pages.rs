//! What tasks do while they reclaim: scan pages, write folios, sleep, call shrinkers, compact.

use super::Tracker;
use crate::decode::{LruList, ReclaimStat, ThrottleReason};
use crate::model::{NodeStats, Pages, Reclaimer, accumulate};

impl Tracker {
    pub(super) fn lru_isolate(
        &mut self,
        ts: u64,
        at: usize,
        zone: i32,
        pages: Pages,
        skipped: u64,
        list: LruList,
    ) {
        self.note_awake(at);
        let LruList::Inactive { file } = list else { return };
        let stats = self.stats(at);
        stats.pages[usize::from(file)].add(pages);
        accumulate(&mut stats.skipped, skipped);
        self.model.zones.entry(zone).or_default().pages.add(pages);
        self.model.timeline.at(ts);
        let task = &mut self.tasks[at];
        task.stats.pages.add(pages);
        if let Some(stall) = task.stall() {
            accumulate(&mut stall.scanned, pages.scanned);
        }
    }

    pub(super) fn shrink_inactive(&mut self, ts: u64, at: usize, stat: ReclaimStat) {
        let reclaimer = self.tasks[at].reclaimer();
        let stats = self.model.by_reclaimer.entry(reclaimer).or_default();
        accumulate(&mut stats.pages[usize::from(stat.file)].reclaimed, stat.reclaimed);
        accumulate(&mut stats.dirty, stat.dirty);
        accumulate(&mut stats.writeback, stat.writeback);
        accumulate(&mut stats.immediate, stat.immediate);
        accumulate(&mut stats.activated, stat.activated);
        let NodeStats { kswapd, tasks, .. } = self.model.nodes.entry(stat.nid).or_default();
        let slice = self.model.timeline.at(ts);
        let (pages, reclaimed) = if reclaimer == Reclaimer::Kswapd {
            (kswapd, &mut slice.kswapd_reclaimed)
        } else {
            (tasks, &mut slice.task_reclaimed)
        };
        pages.add(Pages { scanned: stat.scanned, taken: stat.scanned, reclaimed: stat.reclaimed });
        accumulate(reclaimed, stat.reclaimed);
        let task = &mut self.tasks[at];
        accumulate(&mut task.stats.pages.reclaimed, stat.reclaimed);
        if let Some(stall) = task.stall() {
            accumulate(&mut stall.reclaimed, stat.reclaimed);
        }
    }

    pub(super) fn write_folio(&mut self, at: usize, file: bool, sync: bool) {
        self.stats(at).writes[usize::from(file)][usize::from(sync)] += 1;
        let task = &mut self.tasks[at];
        task.stats.writes += 1;
        if let Some(stall) = task.stall() {
            stall.written += 1;
        }
    }

    pub(super) fn throttled(&mut self, ts: u64, at: usize, nid: i32, ns: u64, reason: ThrottleReason) {
        let task = &mut self.tasks[at];
        if let Some(open) = task.open.last_mut() {
            // The kernel measures in jiffies, and rounds: two sleeps cannot overlap, nor begin before the interval.
            let from = ts.saturating_sub(ns).max(open.throttled_until).min(ts);
            open.throttled_until = ts;
            accumulate(&mut open.stall.throttled_ns, ts - from);
            accumulate(&mut task.stats.throttled_ns, ts - from);
            self.model.timeline.spread(from, ts, |slice, ns| accumulate(&mut slice.throttled_ns, ns));
            self.model.causes.throttled.entry(reason).or_default().add(ts - from);
        } else {
            self.model.causes.kswapd_throttled.entry(reason).or_default().add(ns);
        }
        if nid >= 0 {
            self.model.nodes.entry(nid).or_default().throttled.add(ns);
        }
    }

    pub(super) fn shrink_slab_end(&mut self, ts: u64, at: usize, shrinker: u32, freed: u64) {
        let task = &mut self.tasks[at];
        let Some((_, begin)) = task.shrinker.take().filter(|&(begun, _)| begun == shrinker) else { return };
        let ns = ts.saturating_sub(begin);
        let stats = self.model.shrinkers.entry(shrinker).or_default();
        accumulate(&mut stats.freed, freed);
        match task.stall() {
            Some(stall) => {
                accumulate(&mut stall.shrinkers_ns, ns);
                stats.tasks.add(ns);
            }
            None => stats.kswapd.add(ns),
        }
    }

    pub(super) fn compaction_end(&mut self, ts: u64, at: usize) {
        let task = &mut self.tasks[at];
        let Some(begin) = task.compacting.take().filter(|_| !task.is_kcompactd) else { return };
        let ns = ts.saturating_sub(begin);
        self.model.direct_compaction.add(ns);
        if let Some(stall) = task.stall() {
            accumulate(&mut stall.compaction_ns, ns);
        }
    }
}
