use serde::Serialize;

use crate::{Bucket, Histogram, Missed, Unit};

/// Latencies over an interval.
#[derive(Debug, Clone)]
pub struct Report {
    /// The mechanism that measured them.
    pub mechanism: String,
    /// One histogram, or one per function.
    pub histograms: Vec<NamedHistogram>,
    /// What could not be measured.
    pub missed: Missed,
}

/// The latencies of one function, or of all measured functions together.
#[derive(Debug, Clone)]
pub struct NamedHistogram {
    /// The function or functions; empty for a pair of events.
    pub name: String,
    /// The latencies.
    pub histogram: Histogram,
}

/// The percentiles that reports show.
pub const PERCENTILES: [(&str, f64); 6] =
    [("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99)];

#[derive(Serialize)]
struct JsonReport<'a> {
    mechanism: &'a str,
    unit: Unit,
    histograms: Vec<JsonPart<'a>>,
    missed: Missed,
}

#[derive(Serialize)]
struct JsonPart<'a> {
    name: &'a str,
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

impl Serialize for Report {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let unit = self.histograms.first().map_or(Unit::default(), |entry| entry.histogram.unit());
        let histograms = self.histograms.iter().map(JsonPart::of).collect();
        JsonReport { mechanism: &self.mechanism, unit, histograms, missed: self.missed }.serialize(serializer)
    }
}

impl<'a> JsonPart<'a> {
    fn of(entry: &'a NamedHistogram) -> Self {
        let histogram = &entry.histogram;
        let saturate = |ns: u128| u64::try_from(ns).unwrap_or(u64::MAX);
        Self {
            name: &entry.name,
            count: histogram.count(),
            total_ns: saturate(histogram.total_ns()),
            mean_ns: saturate(histogram.mean_ns()),
            min_ns: histogram.min_ns(),
            max_ns: histogram.max_ns(),
            percentiles_are_bounds: histogram.percentiles_are_bounds(),
            percentiles_ns: PERCENTILES
                .map(|(name, percent)| (name, histogram.percentile_ns(percent)))
                .to_vec(),
            log2: histogram.log2_buckets(),
            linear: histogram.linear_buckets(),
        }
    }
}
