use serde::Serialize;

use crate::{Histogram, Missed, Row, Unit};

/// Latencies over a stretch of time.
#[derive(Debug, Clone)]
pub struct Report {
    /// How they were measured, in a few words.
    pub mechanism: String,
    /// One histogram, or one for each function.
    pub parts: Vec<Part>,
    /// What is not in them.
    pub missed: Missed,
}

/// The latencies of one function, or of everything asked for together.
#[derive(Debug, Clone)]
pub struct Part {
    /// The function, or START..END; empty for several together.
    pub name: String,
    /// Its latencies.
    pub histogram: Histogram,
}

/// The percentiles shown.
pub const PERCENTILES: [(&str, f64); 6] =
    [("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99)];

#[derive(Serialize)]
struct JsonReport<'a> {
    mechanism: &'a str,
    unit: Unit,
    parts: Vec<JsonPart<'a>>,
    missed: Missed,
}

#[derive(Serialize)]
struct JsonPart<'a> {
    name: &'a str,
    count: u64,
    total_ns: u64,
    average_ns: u64,
    shortest_ns: Option<u64>,
    longest_ns: Option<u64>,
    percentiles_exact: bool,
    percentiles_ns: Vec<(&'static str, Option<u64>)>,
    log2: Vec<Row>,
    #[serde(skip_serializing_if = "Option::is_none")]
    linear: Option<Vec<Row>>,
}

impl Serialize for Report {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let unit = self.parts.first().map_or(Unit::default(), |part| part.histogram.unit());
        let parts = self.parts.iter().map(JsonPart::of).collect();
        JsonReport { mechanism: &self.mechanism, unit, parts, missed: self.missed }.serialize(serializer)
    }
}

impl<'a> JsonPart<'a> {
    fn of(part: &'a Part) -> Self {
        let histogram = &part.histogram;
        let saturate = |ns: u128| u64::try_from(ns).unwrap_or(u64::MAX);
        Self {
            name: &part.name,
            count: histogram.count(),
            total_ns: saturate(histogram.total_ns()),
            average_ns: saturate(histogram.average_ns()),
            shortest_ns: histogram.shortest_ns(),
            longest_ns: histogram.longest_ns(),
            percentiles_exact: histogram.is_fine(),
            percentiles_ns: PERCENTILES
                .map(|(name, percent)| (name, histogram.percentile_ns(percent)))
                .to_vec(),
            log2: histogram.log2_rows(),
            linear: histogram.linear_rows(),
        }
    }
}
