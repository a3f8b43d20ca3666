use std::collections::BTreeMap;

use serde::Serialize;

use crate::Unit;

/// Rows of a linear histogram; what is beyond is counted in the last.
const LINEAR_ROWS: u64 = 4096;

/// Durations, counted into buckets.
#[derive(Debug, Clone)]
pub struct Histogram {
    unit: Unit,
    /// `log2[0]` counts 0 and 1, `log2[i]` counts from 2^i to 2^(i+1) - 1, in the unit.
    log2: [u64; 64],
    linear: Option<Linear>,
    fine: Fine,
    count: u64,
    total_ns: u128,
    longest_ns: Option<u64>,
    shortest_ns: Option<u64>,
}

#[derive(Debug, Clone)]
struct Linear {
    step: u64,
    rows: BTreeMap<u64, u64>,
}

/// What percentiles come from.
#[derive(Debug, Clone)]
enum Fine {
    /// Buckets of less than 1 % of the value, in nanoseconds.
    Exact(Box<hdrhistogram::Histogram<u64>>),
    /// The durations themselves never left the kernel: the log2 buckets must do.
    Buckets,
}

/// A row of a histogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Smallest value in it, in the histogram's unit.
    pub low: u64,
    /// Largest value in it.
    pub high: u64,
    /// How many were.
    pub count: u64,
}

impl Histogram {
    /// An empty one. `step` asks for rows of this many units each, beside those by powers of two.
    pub fn new(unit: Unit, step: Option<u64>) -> Self {
        // Two digits are less than 1 % apart. It cannot fail for 1 to 5.
        let fine = hdrhistogram::Histogram::new(2).map_or(Fine::Buckets, |fine| Fine::Exact(Box::new(fine)));
        let linear = step.map(|step| Linear { step: step.max(1), rows: BTreeMap::new() });
        Self { unit, log2: [0; 64], linear, fine, count: 0, total_ns: 0, longest_ns: None, shortest_ns: None }
    }

    /// One made of counts the kernel made: values `2^i` to `2^(i+1) - 1` nanoseconds in `counts[i]`, those of 0 and 1 in
    /// `counts[0]`. It has no percentiles better than its buckets.
    pub fn of_counts(counts: [u64; 64], total_ns: u128) -> Self {
        let mut histogram = Self::new(Unit::Nanoseconds, None);
        histogram.count = counts.iter().fold(0, |sum: u64, count| sum.saturating_add(*count));
        histogram.log2 = counts;
        histogram.total_ns = total_ns;
        histogram.fine = Fine::Buckets;
        histogram
    }

    /// Counts a duration.
    pub fn add(&mut self, ns: u64) {
        let value = ns / self.unit.nanoseconds();
        self.log2[bucket(value)] += 1;
        if let Some(linear) = &mut self.linear {
            *linear.rows.entry((value / linear.step).min(LINEAR_ROWS - 1)).or_default() += 1;
        }
        if let Fine::Exact(fine) = &mut self.fine {
            // It grows up to what is asked for here, 36 years.
            let _ = fine.record(ns.min(1 << 60));
        }
        self.count += 1;
        self.total_ns += u128::from(ns);
        self.longest_ns = Some(self.longest_ns.map_or(ns, |longest| longest.max(ns)));
        self.shortest_ns = Some(self.shortest_ns.map_or(ns, |shortest| shortest.min(ns)));
    }

    /// Adds what another counted; both are in the same unit and have the same step.
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
            (Fine::Exact(fine), Fine::Exact(others)) => {
                // Fails only where one of them cannot grow, and ours can.
                let _ = fine.add(others.as_ref());
            }
            (fine, _) => *fine = Fine::Buckets,
        }
        self.count = self.count.saturating_add(other.count);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.longest_ns = self.longest_ns.max(other.longest_ns);
        self.shortest_ns = match (self.shortest_ns, other.shortest_ns) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }

    /// The unit.
    pub fn unit(&self) -> Unit {
        self.unit
    }

    /// How many durations were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Their sum, in nanoseconds.
    pub fn total_ns(&self) -> u128 {
        self.total_ns
    }

    /// Their mean, in nanoseconds; 0 where there are none.
    pub fn average_ns(&self) -> u128 {
        self.total_ns.checked_div(u128::from(self.count)).unwrap_or(0)
    }

    /// The longest in nanoseconds, where single durations are known.
    pub fn longest_ns(&self) -> Option<u64> {
        self.longest_ns
    }

    /// The shortest in nanoseconds, where single durations are known.
    pub fn shortest_ns(&self) -> Option<u64> {
        self.shortest_ns
    }

    /// Whether percentiles are good to 1 %, and not to a factor of two.
    pub fn is_fine(&self) -> bool {
        matches!(self.fine, Fine::Exact(_))
    }

    /// The value, in nanoseconds, that `percent` of the durations do not exceed: good to 1 %, or the upper end of the log2
    /// bucket. None where nothing was counted.
    pub fn percentile_ns(&self, percent: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        match &self.fine {
            Fine::Exact(fine) => {
                Some(fine.value_at_quantile(percent / 100.0).min(self.longest_ns.unwrap_or(u64::MAX)))
            }
            Fine::Buckets => {
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

    /// The rows by powers of two, from the first to the last that is not empty.
    pub fn log2_rows(&self) -> Vec<Row> {
        let last = self.log2.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        let row = |(at, count): (usize, &u64)| {
            let (low, high) = range(at);
            Row { low, high, count: *count }
        };
        self.log2.iter().take(last).enumerate().map(row).collect()
    }

    /// The rows of one step each, from the first that is not empty to the last; none if no step was asked for.
    pub fn linear_rows(&self) -> Option<Vec<Row>> {
        let linear = self.linear.as_ref()?;
        let (Some((first, _)), Some((last, _))) =
            (linear.rows.first_key_value(), linear.rows.last_key_value())
        else {
            return Some(Vec::new());
        };
        let row = |at: u64| Row {
            low: at * linear.step,
            high: if at == LINEAR_ROWS - 1 { u64::MAX } else { (at + 1) * linear.step - 1 },
            count: linear.rows.get(&at).copied().unwrap_or(0),
        };
        Some((*first..=*last).map(row).collect())
    }
}

/// The bucket of a value: what bcc's `bpf_log2l` gives, less one.
fn bucket(value: u64) -> usize {
    value.checked_ilog2().unwrap_or(0) as usize
}

/// The smallest and largest value of a bucket.
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
            histogram.add(value);
        }
        let rows = histogram.log2_rows();
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
            histogram.add(ns);
        }
        let rows: Vec<(u64, u64)> = histogram.log2_rows().iter().map(|row| (row.low, row.count)).collect();
        assert_eq!(rows, [(0, 2), (2, 1), (4, 0), (8, 0), (16, 1)]);
        let rows: Vec<(u64, u64)> =
            histogram.linear_rows().unwrap().iter().map(|row| (row.low, row.count)).collect();
        assert_eq!(rows, [(0, 3), (10, 0), (20, 1)]);
        assert_eq!(histogram.total_ns(), 30_498);
    }

    #[test]
    fn kernel_counts_give_bounds_for_percentiles() {
        let mut counts = [0; 64];
        counts[10] = 99;
        counts[20] = 1;
        let histogram = Histogram::of_counts(counts, 12);
        assert_eq!(histogram.percentile_ns(50.0), Some(2047));
        assert_eq!(histogram.percentile_ns(99.0), Some(2047));
        assert_eq!(histogram.percentile_ns(99.9), Some((1 << 21) - 1));
        assert!(!histogram.is_fine());
    }

    proptest! {
        #[test]
        fn no_row_loses_a_value(values in proptest::collection::vec(any::<u64>(), 0..200), step in 1_u64..1_000_000) {
            let mut histogram = Histogram::new(Unit::Nanoseconds, Some(step));
            let mut halves = [histogram.clone(), histogram.clone()];
            for (i, value) in values.iter().enumerate() {
                histogram.add(*value);
                halves[i % 2].add(*value);
            }
            let sum = |rows: Vec<Row>| rows.iter().map(|row| row.count).sum::<u64>();
            prop_assert_eq!(sum(histogram.log2_rows()), values.len() as u64);
            prop_assert_eq!(sum(histogram.linear_rows().unwrap()), values.len() as u64);
            for row in histogram.log2_rows() {
                let inside = values.iter().filter(|value| (row.low..=row.high).contains(value)).count();
                prop_assert_eq!(inside as u64, row.count);
            }
            let [mut first, second] = halves;
            first.merge(&second);
            prop_assert_eq!(first.log2_rows(), histogram.log2_rows());
            prop_assert_eq!(first.linear_rows(), histogram.linear_rows());
            prop_assert_eq!(first.longest_ns(), histogram.longest_ns());
            prop_assert_eq!(first.percentile_ns(90.0), histogram.percentile_ns(90.0));
        }

        #[test]
        fn percentiles_are_good_to_one_per_cent(mut values in proptest::collection::vec(1_u64..1 << 40, 1..300)) {
            let mut histogram = Histogram::new(Unit::Microseconds, None);
            for value in &values {
                histogram.add(*value);
            }
            values.sort_unstable();
            let exact = values[(values.len() * 9).div_ceil(10) - 1];
            let found = histogram.percentile_ns(90.0).unwrap();
            prop_assert!(found.abs_diff(exact) as f64 <= 0.01 * exact as f64 + 1.0, "{found} for {exact}");
        }
    }
}
