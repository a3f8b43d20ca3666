use serde::Serialize;

/// Durations in a fixed-size histogram: counts by size, with a relative error below 1.6 %; sum, minimum and maximum exact.
#[derive(Debug, Clone, Default)]
pub struct Durations {
    counts: Vec<u64>,
    count: u64,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
}

/// Steps an octave is cut into.
const STEPS: u64 = 32;
const STEP_BITS: u32 = STEPS.trailing_zeros();

/// A bar of a log2 histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Shortest duration in it, microseconds.
    pub from_us: u64,
    /// Longest, microseconds.
    pub to_us: u64,
    /// How many.
    pub count: u64,
}

impl Durations {
    /// Adds one, in nanoseconds.
    pub fn add(&mut self, ns: u64) {
        let at = index(ns);
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.min_ns = if self.count == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// Adds all of another's.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(mine, theirs)| *mine += theirs);
        self.min_ns = if self.count == 0 { other.min_ns } else { self.min_ns.min(other.min_ns) };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All together, nanoseconds.
    pub fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// The longest, nanoseconds; 0 if there is none.
    pub fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// The duration that `percent` of all do not exceed, nanoseconds; none if there are none.
    pub fn percentile_ns(&self, percent: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let rank = (percent / 100.0 * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (at, &count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                // The middle of the step, but never outside what was seen.
                return Some(middle(at).clamp(self.min_ns, self.max_ns));
            }
        }
        Some(self.max_ns)
    }

    /// The log2 histogram in microseconds from the first bar with a count to the last: [0, 1], [2, 3], [4, 7] …
    pub fn buckets(&self) -> Vec<Bucket> {
        let mut buckets: Vec<Bucket> = Vec::new();
        for (at, &count) in self.counts.iter().enumerate().filter(|&(_, &count)| count > 0) {
            let us = middle(at) / 1000;
            let octave = us.max(1).ilog2();
            let from_us = if octave == 0 { 0 } else { 1 << octave };
            match buckets.last_mut() {
                Some(last) if last.from_us == from_us => last.count += count,
                last => {
                    // Empty bars between, so that the axis has no gaps.
                    let mut next = last.map_or(from_us, |last| last.to_us + 1);
                    while next < from_us {
                        buckets.push(Bucket { from_us: next, to_us: 2 * next - 1, count: 0 });
                        next *= 2;
                    }
                    buckets.push(Bucket { from_us, to_us: (2_u64 << octave) - 1, count });
                }
            }
        }
        buckets
    }
}

/// Values below 32 have a step each; above, every octave has 32.
fn index(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let octave = ns.ilog2() - STEP_BITS;
    let step = (ns >> octave) - STEPS;
    ((u64::from(octave) + 1) * STEPS + step) as usize
}

fn middle(at: usize) -> u64 {
    let at = at as u64;
    if at < STEPS {
        return at;
    }
    let octave = at / STEPS - 1;
    let start = (STEPS + at % STEPS) << octave;
    start + ((1_u64 << octave) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> Durations {
        let mut durations = Durations::default();
        values.iter().for_each(|&ns| durations.add(ns));
        durations
    }

    #[test]
    fn buckets_are_octaves_of_microseconds() {
        let durations = of(&[500, 1_500, 3_000, 17_000, 17_500]);
        let bars: Vec<_> =
            durations.buckets().iter().map(|bar| (bar.from_us, bar.to_us, bar.count)).collect();
        assert_eq!(bars, [(0, 1, 2), (2, 3, 1), (4, 7, 0), (8, 15, 0), (16, 31, 2)]);
        assert!(of(&[]).buckets().is_empty());
    }

    proptest! {
        #[test]
        fn percentiles_are_close(mut values in prop::collection::vec(0_u64..10_000_000_000, 1..200), percent in 0.0_f64..100.0) {
            let durations = of(&values);
            values.sort_unstable();
            let rank = ((percent / 100.0 * values.len() as f64).ceil() as usize).max(1);
            let exact = values[rank - 1] as f64;
            let found = durations.percentile_ns(percent).unwrap() as f64;
            prop_assert!((found - exact).abs() <= exact * 0.016 + 1.0, "{found} for {exact}");
            prop_assert_eq!(durations.max_ns(), *values.last().unwrap());
            prop_assert_eq!(durations.sum_ns(), values.iter().sum::<u64>());
            prop_assert_eq!(durations.buckets().iter().map(|bar| bar.count).sum::<u64>(), values.len() as u64);
        }

        #[test]
        fn any_duration_has_its_step(ns: u64) {
            let found = middle(index(ns)) as f64;
            prop_assert!((found - ns as f64).abs() <= ns as f64 * 0.016 + 1.0);
        }

        #[test]
        fn merging_is_adding(left in prop::collection::vec(0_u64..1_000_000, 0..50), right in prop::collection::vec(0_u64..1_000_000, 0..50)) {
            let mut merged = of(&left);
            merged.merge(&of(&right));
            let all = of(&[left, right].concat());
            prop_assert_eq!((merged.count(), merged.sum_ns(), merged.max_ns()), (all.count(), all.sum_ns(), all.max_ns()));
            prop_assert_eq!(merged.buckets(), all.buckets());
        }
    }
}
