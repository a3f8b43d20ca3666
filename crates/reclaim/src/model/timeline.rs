use super::stats::accumulate;

/// A slice of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimeSlice {
    /// Nanoseconds tasks spent in direct reclaim.
    pub direct_ns: u64,
    /// In other intervals.
    pub memcg_ns: u64,
    /// Nanoseconds kswapds were awake.
    pub kswapd_ns: u64,
    /// Nanoseconds tasks waited on purpose.
    pub throttled_ns: u64,
    /// Pages reclaimed by kswapd.
    pub kswapd_reclaimed: u64,
    /// By tasks.
    pub task_reclaimed: u64,
}

/// Slices of equal length. The length doubles as the trace gets longer, so that there are never more than 512.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// When the first begins.
    pub begin_ns: u64,
    /// Length of each.
    pub slice_ns: u64,
    /// The slices.
    pub slices: Vec<TimeSlice>,
}

const MOST: usize = 512;
const FIRST_SLICE_NS: u64 = 100_000;

impl Timeline {
    /// Begins at a time.
    pub fn start(begin_ns: u64) -> Self {
        Self { begin_ns, slice_ns: FIRST_SLICE_NS, slices: Vec::new() }
    }

    /// The slice of a time.
    pub fn at(&mut self, ts: u64) -> &mut TimeSlice {
        let at = self.index(ts);
        if self.slices.len() <= at {
            self.slices.resize(at + 1, TimeSlice::default());
        }
        &mut self.slices[at]
    }

    /// Spreads a duration over the slices it covers.
    pub fn spread(&mut self, from: u64, to: u64, mut add: impl FnMut(&mut TimeSlice, u64)) {
        let (from, to) = (from.max(self.begin_ns), to.max(self.begin_ns));
        self.at(to);
        let mut at = from;
        while at < to {
            let end = (at - self.begin_ns) / self.slice_ns;
            let end = self.begin_ns.saturating_add((end + 1).saturating_mul(self.slice_ns)).min(to);
            let ns = end - at;
            let index = self.index(at);
            if let Some(slice) = self.slices.get_mut(index) {
                add(slice, ns);
            }
            if end == at {
                break;
            }
            at = end;
        }
    }

    fn index(&mut self, ts: u64) -> usize {
        let since = ts.saturating_sub(self.begin_ns);
        while since / self.slice_ns >= MOST as u64 {
            self.halve();
        }
        (since / self.slice_ns) as usize
    }

    fn halve(&mut self) {
        self.slice_ns = self.slice_ns.saturating_mul(2);
        self.slices = self.slices.chunks(2).map(|pair| pair.iter().fold(TimeSlice::default(), sum)).collect();
    }
}

fn sum(mut all: TimeSlice, part: &TimeSlice) -> TimeSlice {
    accumulate(&mut all.direct_ns, part.direct_ns);
    accumulate(&mut all.memcg_ns, part.memcg_ns);
    accumulate(&mut all.kswapd_ns, part.kswapd_ns);
    accumulate(&mut all.throttled_ns, part.throttled_ns);
    accumulate(&mut all.kswapd_reclaimed, part.kswapd_reclaimed);
    accumulate(&mut all.task_reclaimed, part.task_reclaimed);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_as_slices_grow() {
        let mut timeline = Timeline::start(1_000);
        for step in 0..10_000_u64 {
            timeline.at(1_000 + step * 77_777).task_reclaimed += 1;
        }
        timeline.spread(500, 600_000_000, |slice, ns| slice.direct_ns += ns);
        assert!(timeline.slices.len() <= MOST);
        assert_eq!(timeline.slices.iter().map(|slice| slice.task_reclaimed).sum::<u64>(), 10_000);
        assert_eq!(timeline.slices.iter().map(|slice| slice.direct_ns).sum::<u64>(), 600_000_000 - 1_000);
        timeline.at(u64::MAX).task_reclaimed += 1;
        assert!(timeline.slices.len() <= MOST);
    }
}
