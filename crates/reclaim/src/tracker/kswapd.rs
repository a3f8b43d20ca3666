//! Sleep and wakeups of kswapd.

use super::Tracker;
use super::task::KswapdState;
use crate::model::accumulate;

impl Tracker {
    pub(super) fn kswapd_wake(&mut self, ts: u64, at: usize, nid: i32, order: i32) {
        let stats = self.model.kswapd.entry(nid).or_default();
        let state = self.tasks[at].kswapd.get_or_insert(KswapdState { nid, awake_since: None });
        state.nid = nid;
        if state.awake_since.is_some() {
            stats.rewakeups += 1;
        } else {
            stats.wakeups += 1;
            *stats.orders.entry(order).or_default() += 1;
            state.awake_since = Some(ts);
        }
    }

    pub(super) fn kswapd_sleep(&mut self, ts: u64, at: usize, nid: i32) {
        let first = !self.model.kswapd.contains_key(&nid);
        let state = self.tasks[at].kswapd.get_or_insert(KswapdState { nid, awake_since: None });
        // If its first event is that it sleeps, it was awake from the begin. Later, a wakeup is missing, and nothing is known.
        let since = state.awake_since.take().or_else(|| {
            self.model.completeness.awake_at_begin += u64::from(first);
            first.then_some(self.model.begin_ns)
        });
        if let Some(since) = since {
            self.awake(nid, since, ts);
        }
    }

    /// Adds up a time that a kswapd was awake.
    pub(super) fn awake(&mut self, nid: i32, since: u64, ts: u64) {
        accumulate(&mut self.model.kswapd.entry(nid).or_default().awake_ns, ts.saturating_sub(since));
        if let Some(all) = &mut self.model.intervals {
            all.kswapd.push((nid, since, ts));
        }
        self.model.timeline.spread(since, ts, |slice, ns| accumulate(&mut slice.kswapd_ns, ns));
    }

    /// A kswapd that reclaims before its first wakeup was awake from the begin of the trace.
    pub(super) fn note_awake(&mut self, at: usize) {
        let Some(state) = self.tasks[at].kswapd.as_mut() else { return };
        if state.awake_since.is_none() && !self.model.kswapd.contains_key(&state.nid) {
            self.model.kswapd.entry(state.nid).or_default();
            self.model.completeness.awake_at_begin += 1;
            state.awake_since = Some(self.model.begin_ns);
        }
    }
}
