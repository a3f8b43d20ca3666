use super::tally::grow;

/// A slice of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds tasks spent in direct reclaim.
    pub direct_ns: u64,
    /// In other stretches.
    pub memcg_ns: u64,
    /// Nanoseconds kswapds were awake.
    pub kswapd_ns: u64,
    /// Nanoseconds tasks waited on purpose.
    pub throttled_ns: u64,
    /// Pages reclaimed by kswapd.
    pub kswapd_reclaimed: u64,
    /// By tasks.
    pub task_reclaimed: u64,
    /// Pages looked at by all.
    pub scanned: u64,
    /// Pages written by reclaim.
    pub written: u64,
}

/// Slices of equal length. The length doubles as the trace gets longer, so that there are never more than 512.
#[derive(Debug, Clone, Default)]
pub struct Timeline {
    /// When the first begins.
    pub begin_ns: u64,
    /// Length of each.
    pub slice_ns: u64,
    /// The slices.
    pub moments: Vec<Moment>,
}

const MOST: usize = 512;
const FIRST_SLICE_NS: u64 = 100_000;

impl Timeline {
    /// Begins at a time.
    pub fn start(begin_ns: u64) -> Self {
        Self { begin_ns, slice_ns: FIRST_SLICE_NS, moments: Vec::new() }
    }

    /// The slice of a time.
    pub fn at(&mut self, ts: u64) -> &mut Moment {
        let at = self.index(ts);
        if self.moments.len() <= at {
            self.moments.resize(at + 1, Moment::default());
        }
        &mut self.moments[at]
    }

    /// Spreads a duration over the slices it covers.
    pub fn spread(&mut self, from: u64, to: u64, mut add: impl FnMut(&mut Moment, u64)) {
        let (from, to) = (from.max(self.begin_ns), to.max(self.begin_ns));
        self.at(to);
        let mut at = from;
        while at < to {
            let end = (at - self.begin_ns) / self.slice_ns;
            let end = self.begin_ns.saturating_add((end + 1).saturating_mul(self.slice_ns)).min(to);
            let ns = end - at;
            let index = self.index(at);
            if let Some(moment) = self.moments.get_mut(index) {
                add(moment, ns);
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
        self.moments = self.moments.chunks(2).map(|pair| pair.iter().fold(Moment::default(), sum)).collect();
    }
}

fn sum(mut all: Moment, part: &Moment) -> Moment {
    grow(&mut all.direct_ns, part.direct_ns);
    grow(&mut all.memcg_ns, part.memcg_ns);
    grow(&mut all.kswapd_ns, part.kswapd_ns);
    grow(&mut all.throttled_ns, part.throttled_ns);
    grow(&mut all.kswapd_reclaimed, part.kswapd_reclaimed);
    grow(&mut all.task_reclaimed, part.task_reclaimed);
    grow(&mut all.scanned, part.scanned);
    grow(&mut all.written, part.written);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_as_slices_grow() {
        let mut timeline = Timeline::start(1_000);
        for step in 0..10_000_u64 {
            timeline.at(1_000 + step * 77_777).scanned += 1;
        }
        timeline.spread(500, 600_000_000, |moment, ns| moment.direct_ns += ns);
        assert!(timeline.moments.len() <= MOST);
        assert_eq!(timeline.moments.iter().map(|moment| moment.scanned).sum::<u64>(), 10_000);
        assert_eq!(timeline.moments.iter().map(|moment| moment.direct_ns).sum::<u64>(), 600_000_000 - 1_000);
        timeline.at(u64::MAX).written += 1;
        assert!(timeline.moments.len() <= MOST);
    }
}
