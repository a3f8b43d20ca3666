use serde::Serialize;

/// How a run ended. What is not [`Complete`](Self::Complete) says why in one sentence, or in its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "how", content = "why")]
pub enum Outcome {
    /// The output has everything it was to have.
    Complete,
    /// Nothing was to be written.
    DryRun,
    /// Pages of the source could not be read; the output has all others.
    PagesUnreadable(String),
    /// The source itself lacks pages; the output has all that it holds.
    SourceIncomplete(String),
    /// The user cancelled the run.
    Cancelled,
    /// The time limit was reached.
    TimeLimit,
    /// The size limit was reached.
    SizeLimit,
    DiskFull(String),
    /// The output could not be written.
    WriteFailed(String),
    /// The source, or the part of the output written before, could no longer be read.
    ReadFailed(String),
}

impl Outcome {
    /// Returns whether everything requested was done.
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Complete | Self::DryRun)
    }

    /// Returns whether the run reached its end, with every page that could be read.
    pub fn is_at_end(&self) -> bool {
        self.is_success() || matches!(self, Self::PagesUnreadable(_) | Self::SourceIncomplete(_))
    }

    /// Returns why not everything requested was done.
    pub fn why(&self) -> Option<&str> {
        match self {
            Self::Complete | Self::DryRun => None,
            Self::Cancelled => Some("stopped by a signal"),
            Self::TimeLimit => Some("the time limit is reached"),
            Self::SizeLimit => Some("the size limit is reached"),
            Self::PagesUnreadable(why)
            | Self::SourceIncomplete(why)
            | Self::DiskFull(why)
            | Self::WriteFailed(why)
            | Self::ReadFailed(why) => Some(why),
        }
    }
}
