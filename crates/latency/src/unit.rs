use serde::Serialize;

/// The unit of buckets and printed latencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub enum Unit {
    /// Nanoseconds.
    #[default]
    #[serde(rename = "nsecs")]
    Nanoseconds,
    /// Microseconds.
    #[serde(rename = "usecs")]
    Microseconds,
    /// Milliseconds.
    #[serde(rename = "msecs")]
    Milliseconds,
}

impl Unit {
    /// Returns the nanoseconds in one unit.
    pub fn nanoseconds(self) -> u64 {
        match self {
            Self::Nanoseconds => 1,
            Self::Microseconds => 1_000,
            Self::Milliseconds => 1_000_000,
        }
    }

    /// Returns the name that funclatency prints.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "nsecs",
            Self::Microseconds => "usecs",
            Self::Milliseconds => "msecs",
        }
    }
}
