use serde::Serialize;

use crate::call_tracker::Missed;
use crate::histogram::Histogram;

/// Latencies over an interval.
#[derive(Debug, Clone, Serialize)]
pub struct LatencyReport {
    /// The mechanism that measured them.
    pub mechanism: String,
    /// One histogram, or one per function.
    pub histograms: Vec<NamedHistogram>,
    /// What could not be measured.
    pub missed: Missed,
    /// What the reader should know, one sentence each. Of several intervals, the last has it.
    pub warnings: Vec<String>,
}

/// The latencies of one function, or of all measured functions together.
#[derive(Debug, Clone, Serialize)]
pub struct NamedHistogram {
    /// The function or functions; empty for a pair of events.
    pub name: String,
    /// The latencies.
    #[serde(flatten)]
    pub histogram: Histogram,
}
