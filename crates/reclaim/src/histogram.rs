use hdrhistogram::Histogram;
use serde::Serialize;

/// A histogram of durations. Percentiles are within 0.5 % or half a microsecond; sum and maximum are exact.
#[derive(Debug, Clone, Default)]
pub struct DurationHistogram {
    /// Made with the first duration: most tasks have none.
    histogram: Option<Histogram<u32>>,
    count: u64,
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
}

/// The resolution in nanoseconds: reports show microseconds.
const RESOLUTION: u64 = 512;
/// Durations above this, 36 years, are damage.
const MAX: u64 = 1 << 60;

/// A bar of a log2 histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Shortest duration in it, microseconds.
    pub from_us: u64,
    /// Longest duration in it, microseconds.
    pub to_us: u64,
    /// How many durations it holds.
    pub count: u64,
}

impl DurationHistogram {
    /// Adds a duration.
    pub fn add(&mut self, ns: u64) {
        if self.histogram.is_none() {
            // Two digits keep values within 1 %. Creating one fails only for other bounds or digits.
            self.histogram = Histogram::new_with_bounds(RESOLUTION, 1 << 24, 2).ok();
            if let Some(histogram) = &mut self.histogram {
                histogram.auto(true);
            }
        }
        if let Some(histogram) = &mut self.histogram {
            // It grows up to any value.
            let _ = histogram.record(ns.min(MAX));
        }
        self.min_ns = if self.count == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
    }

    /// Adds all durations of another histogram.
    pub fn merge(&mut self, other: &Self) {
        match (&mut self.histogram, &other.histogram) {
            (_, None) => return,
            (Some(mine), Some(theirs)) => {
                // It grows up to any value.
                let _ = mine.add(theirs);
            }
            (mine, theirs) => mine.clone_from(theirs),
        }
        self.min_ns = if self.count == 0 { other.min_ns } else { self.min_ns.min(other.min_ns) };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// Returns the number of durations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum in nanoseconds.
    pub(crate) fn sum_ns(&self) -> u64 {
        self.sum_ns
    }

    /// Returns the longest duration in nanoseconds; none if there is none.
    pub fn max_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max_ns)
    }

    /// Returns the duration in nanoseconds that `percent` of all do not exceed, the longest for 100; none if there is none.
    pub fn percentile_ns(&self, percent: f64) -> Option<u64> {
        if percent >= 100.0 {
            return self.max_ns();
        }
        let histogram = self.histogram.as_ref()?;
        let value = histogram.median_equivalent(histogram.value_at_quantile(percent / 100.0));
        Some(value.clamp(self.min_ns, self.max_ns))
    }

    /// Returns the log2 histogram in microseconds from the first bar with a count to the last: [0, 1], [2, 3], [4, 7] …
    pub fn buckets(&self) -> Vec<Bucket> {
        let mut buckets: Vec<Bucket> = Vec::new();
        let Some(histogram) = &self.histogram else { return buckets };
        for step in histogram.iter_recorded() {
            let us = histogram.median_equivalent(step.value_iterated_to()) / 1000;
            let octave = us.max(1).ilog2();
            let from_us = if octave == 0 { 0 } else { 1 << octave };
            let count = u64::from(step.count_at_value());
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[u64]) -> DurationHistogram {
        let mut durations = DurationHistogram::default();
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

    #[test]
    fn any_duration_is_counted() {
        let all = of(&[0, 1, u64::MAX]);
        assert_eq!((all.count(), all.sum_ns(), all.max_ns()), (3, u64::MAX, Some(u64::MAX)));
        assert_eq!(all.buckets().iter().map(|bar| bar.count).sum::<u64>(), 3);
        assert_eq!((of(&[]).percentile_ns(50.0), of(&[]).max_ns()), (None, None));
    }

    proptest! {
        #[test]
        fn percentiles_are_close(mut values in prop::collection::vec(0_u64..10_000_000_000, 1..200), percent in 0.0_f64..100.0) {
            let durations = of(&values);
            values.sort_unstable();
            let rank = ((percent / 100.0 * values.len() as f64).ceil() as usize).max(1);
            let exact = values[rank - 1] as f64;
            let found = durations.percentile_ns(percent).unwrap() as f64;
            prop_assert!((found - exact).abs() <= exact * 0.005 + 512.0, "{found} for {exact}");
            prop_assert_eq!(durations.max_ns(), values.last().copied());
            prop_assert_eq!(durations.sum_ns(), values.iter().sum::<u64>());
            prop_assert_eq!(durations.buckets().iter().map(|bar| bar.count).sum::<u64>(), values.len() as u64);
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
