use serde::Serialize;

/// The unit in which durations are counted and printed.
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
    /// Nanoseconds in one of it.
    pub fn nanoseconds(self) -> u64 {
        match self {
            Self::Nanoseconds => 1,
            Self::Microseconds => 1_000,
            Self::Milliseconds => 1_000_000,
        }
    }

    /// Its name as funclatency prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "nsecs",
            Self::Microseconds => "usecs",
            Self::Milliseconds => "msecs",
        }
    }
}
