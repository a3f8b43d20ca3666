use std::collections::BTreeMap;

use serde::Serialize;

use crate::unit::Unit;

/// Upper bound of linear buckets; the last one also counts all larger values.
const LINEAR_BUCKETS: u64 = 4096;

/// The percentiles that reports show.
pub const PERCENTILES: [(&str, f64); 6] =
    [("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99)];

/// A histogram of latencies.
#[derive(Debug, Clone)]
pub struct Histogram {
    unit: Unit,
    /// `log2[0]` counts 0 and 1, `log2[i]` counts 2^i to 2^(i+1) - 1, in the unit.
    log2: [u64; 64],
    linear: Option<Linear>,
    /// For percentiles: buckets of less than 1 % of the value, in nanoseconds. `None` if the latencies were counted in the
    /// kernel: then the log2 buckets have to do.
    fine: Option<Box<hdrhistogram::Histogram<u64>>>,
    count: u64,
    total_ns: u128,
    max_ns: Option<u64>,
    min_ns: Option<u64>,
}

#[derive(Debug, Clone)]
struct Linear {
    step: u64,
    rows: BTreeMap<u64, u64>,
}

/// A bucket of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Smallest value, in the histogram's unit.
    pub low: u64,
    /// Largest value, in the histogram's unit.
    pub high: u64,
    /// Number of values.
    pub count: u64,
}

impl Histogram {
    /// Creates an empty histogram. `step` adds linear buckets of this many units to those by powers of two.
    pub fn new(unit: Unit, step: Option<u64>) -> Self {
        // Two significant digits: an error below 1 %. Fails only for other than 1 to 5 digits.
        let fine = hdrhistogram::Histogram::new(2).ok().map(Box::new);
        let linear = step.map(|step| Linear { step: step.max(1), rows: BTreeMap::new() });
        Self { unit, log2: [0; 64], linear, fine, count: 0, total_ns: 0, max_ns: None, min_ns: None }
    }

    /// Creates a histogram from counts made by the kernel: `counts[i]` values of 2^i to 2^(i+1) - 1
    /// nanoseconds, `counts[0]` of 0 and 1. Its percentiles are upper ends of buckets.
    pub(crate) fn from_log2_counts(counts: [u64; 64], total_ns: u128) -> Self {
        let mut histogram = Self::new(Unit::Nanoseconds, None);
        histogram.count = counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        histogram.log2 = counts;
        histogram.total_ns = total_ns;
        histogram.fine = None;
        histogram
    }

    /// Adds a latency in nanoseconds.
    pub fn record(&mut self, ns: u64) {
        let value = ns / self.unit.nanoseconds();
        self.log2[bucket(value)] += 1;
        if let Some(linear) = &mut self.linear {
            *linear.rows.entry((value / linear.step).min(LINEAR_BUCKETS - 1)).or_default() += 1;
        }
        if let Some(fine) = &mut self.fine {
            // Cannot fail: the range grows as needed, up to 36 years here.
            let _ = fine.record(ns.min(1 << 60));
        }
        self.count += 1;
        self.total_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(Some(ns));
        self.min_ns = Some(self.min_ns.unwrap_or(ns).min(ns));
    }

    /// Adds all values of another histogram with the same unit and step.
    pub fn merge(&mut self, other: &Self) {
        for (sum, count) in self.log2.iter_mut().zip(other.log2) {
            *sum = sum.saturating_add(count);
        }
        if let (Some(linear), Some(others)) = (&mut self.linear, &other.linear) {
            for (row, count) in &others.rows {
                *linear.rows.entry(*row).or_default() += count;
            }
        }
        match (&mut self.fine, &other.fine) {
            (Some(fine), Some(others)) => {
                // Cannot fail: this histogram grows as needed.
                let _ = fine.add(others.as_ref());
            }
            (fine, _) => *fine = None,
        }
        self.count = self.count.saturating_add(other.count);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.min_ns = [self.min_ns, other.min_ns].into_iter().flatten().min();
    }

    /// Returns the unit.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the exact sum in nanoseconds.
    pub fn total_ns(&self) -> u128 {
        self.total_ns
    }

    /// Returns the mean in nanoseconds; 0 if empty.
    pub fn mean_ns(&self) -> u128 {
        self.total_ns.checked_div(u128::from(self.count)).unwrap_or(0)
    }

    /// Returns the exact maximum in nanoseconds, if single values are known.
    pub fn max_ns(&self) -> Option<u64> {
        self.max_ns
    }

    /// Returns the exact minimum in nanoseconds, if single values are known.
    pub fn min_ns(&self) -> Option<u64> {
        self.min_ns
    }

    /// Returns whether percentiles are upper ends of log2 buckets. Otherwise their error is below 1 %.
    pub fn percentiles_are_bounds(&self) -> bool {
        self.fine.is_none()
    }

    /// Returns the value in nanoseconds that `percent` of the latencies do not exceed, with an error below 1
    /// %, or the upper end of its log2 bucket. `None` if empty.
    pub fn percentile_ns(&self, percent: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        match &self.fine {
            Some(fine) => Some(fine.value_at_quantile(percent / 100.0).min(self.max_ns.unwrap_or(u64::MAX))),
            None => {
                let wanted = (percent / 100.0 * self.count as f64).ceil() as u64;
                let mut seen = 0_u64;
                let at = self.log2.iter().position(|count| {
                    seen = seen.saturating_add(*count);
                    seen >= wanted.max(1)
                });
                at.map(|at| range(at).1.saturating_mul(self.unit.nanoseconds()))
            }
        }
    }

    /// Returns the buckets by powers of two, from 0 to the last with a count.
    pub fn log2_buckets(&self) -> Vec<Bucket> {
        let last = self.log2.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        let row = |(at, count): (usize, &u64)| {
            let (low, high) = range(at);
            Bucket { low, high, count: *count }
        };
        self.log2.iter().take(last).enumerate().map(row).collect()
    }

    /// Returns the linear buckets from the first to the last with a count; `None` without a step.
    pub fn linear_buckets(&self) -> Option<Vec<Bucket>> {
        let linear = self.linear.as_ref()?;
        let (Some((first, _)), Some((last, _))) =
            (linear.rows.first_key_value(), linear.rows.last_key_value())
        else {
            return Some(Vec::new());
        };
        let row = |at: u64| Bucket {
            low: at * linear.step,
            high: if at == LINEAR_BUCKETS - 1 { u64::MAX } else { (at + 1) * linear.step - 1 },
            count: linear.rows.get(&at).copied().unwrap_or(0),
        };
        Some((*first..=*last).map(row).collect())
    }
}

/// JSON of a histogram.
#[derive(Serialize)]
struct Json {
    unit: Unit,
    count: u64,
    total_ns: u64,
    mean_ns: u64,
    min_ns: Option<u64>,
    max_ns: Option<u64>,
    percentiles_are_bounds: bool,
    percentiles_ns: Vec<(&'static str, Option<u64>)>,
    log2: Vec<Bucket>,
    #[serde(skip_serializing_if = "Option::is_none")]
    linear: Option<Vec<Bucket>>,
}

impl Serialize for Histogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let saturate = |ns: u128| u64::try_from(ns).unwrap_or(u64::MAX);
        let json = Json {
            unit: self.unit,
            count: self.count,
            total_ns: saturate(self.total_ns),
            mean_ns: saturate(self.mean_ns()),
            min_ns: self.min_ns,
            max_ns: self.max_ns,
            percentiles_are_bounds: self.percentiles_are_bounds(),
            percentiles_ns: PERCENTILES.map(|(name, percent)| (name, self.percentile_ns(percent))).to_vec(),
            log2: self.log2_buckets(),
            linear: self.linear_buckets(),
        };
        json.serialize(serializer)
    }
}

/// Returns the bucket of a value: bcc's `bpf_log2l` less one.
fn bucket(value: u64) -> usize {
    value.checked_ilog2().unwrap_or(0) as usize
}

/// Returns the smallest and the largest value of a bucket.
fn range(bucket: usize) -> (u64, u64) {
    let low = if bucket == 0 { 0 } else { 1 << bucket };
    let high = if bucket >= 63 { u64::MAX } else { (1 << (bucket + 1)) - 1 };
    (low, high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_are_those_of_funclatency() {
        let mut histogram = Histogram::new(Unit::Nanoseconds, None);
        for value in [0, 1, 2, 3, 4, 7, 8, 1023, 1024, u64::MAX] {
            histogram.record(value);
        }
        let rows = histogram.log2_buckets();
        let find = |low| rows.iter().find(|row| row.low == low).map(|row| (row.high, row.count));
        assert_eq!(find(0), Some((1, 2)));
        assert_eq!(find(2), Some((3, 2)));
        assert_eq!(find(4), Some((7, 2)));
        assert_eq!(find(8), Some((15, 1)));
        assert_eq!(find(512), Some((1023, 1)));
        assert_eq!(find(1024), Some((2047, 1)));
        assert_eq!(find(1 << 63), Some((u64::MAX, 1)));
    }

    #[test]
    fn units_divide_before_they_count_as_bcc_does() {
        let mut histogram = Histogram::new(Unit::Microseconds, Some(10));
        for ns in [999, 1_999, 2_000, 25_500] {
            histogram.record(ns);
        }
        let rows: Vec<(u64, u64)> = histogram.log2_buckets().iter().map(|row| (row.low, row.count)).collect();
        assert_eq!(rows, [(0, 2), (2, 1), (4, 0), (8, 0), (16, 1)]);
        let rows: Vec<(u64, u64)> =
            histogram.linear_buckets().unwrap().iter().map(|row| (row.low, row.count)).collect();
        assert_eq!(rows, [(0, 3), (10, 0), (20, 1)]);
        assert_eq!(histogram.total_ns(), 30_498);
    }

    #[test]
    fn kernel_counts_give_bounds_for_percentiles() {
        let mut counts = [0; 64];
        counts[10] = 99;
        counts[20] = 1;
        let histogram = Histogram::from_log2_counts(counts, 12);
        assert_eq!(histogram.percentile_ns(50.0), Some(2047));
        assert_eq!(histogram.percentile_ns(99.0), Some(2047));
        assert_eq!(histogram.percentile_ns(99.9), Some((1 << 21) - 1));
        assert!(histogram.percentiles_are_bounds());
    }

    proptest! {
        #[test]
        fn no_row_loses_a_value(values in proptest::collection::vec(any::<u64>(), 0..200), step in 1_u64..1_000_000) {
            let mut histogram = Histogram::new(Unit::Nanoseconds, Some(step));
            let mut halves = [histogram.clone(), histogram.clone()];
            for (i, value) in values.iter().enumerate() {
                histogram.record(*value);
                halves[i % 2].record(*value);
            }
            let sum = |rows: Vec<Bucket>| rows.iter().map(|row| row.count).sum::<u64>();
            prop_assert_eq!(sum(histogram.log2_buckets()), values.len() as u64);
            prop_assert_eq!(sum(histogram.linear_buckets().unwrap()), values.len() as u64);
            for row in histogram.log2_buckets() {
                let inside = values.iter().filter(|value| (row.low..=row.high).contains(value)).count();
                prop_assert_eq!(inside as u64, row.count);
            }
            let [mut first, second] = halves;
            first.merge(&second);
            prop_assert_eq!(first.log2_buckets(), histogram.log2_buckets());
            prop_assert_eq!(first.linear_buckets(), histogram.linear_buckets());
            prop_assert_eq!(first.max_ns(), histogram.max_ns());
            prop_assert_eq!(first.percentile_ns(90.0), histogram.percentile_ns(90.0));
        }

        #[test]
        fn percentiles_are_good_to_one_per_cent(mut values in proptest::collection::vec(1_u64..1 << 40, 1..300)) {
            let mut histogram = Histogram::new(Unit::Microseconds, None);
            for value in &values {
                histogram.record(*value);
            }
            values.sort_unstable();
            let exact = values[(values.len() * 9).div_ceil(10) - 1];
            let found = histogram.percentile_ns(90.0).unwrap();
            prop_assert!(found.abs_diff(exact) as f64 <= 0.01 * exact as f64 + 1.0, "{found} for {exact}");
        }
    }
}
