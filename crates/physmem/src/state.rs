use std::fmt;

use crate::error::ReadError;

/// State of a page in a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageState {
    /// The source has its contents.
    Present,
    /// The dump excludes it.
    Excluded,
    /// The source should have it and does not: the writer was stopped before it, the file was truncated, or the part of a split set
    /// that has it was not given.
    Missing,
    /// The source has data that cannot be its contents.
    Damaged,
    /// The machine has no memory there.
    Absent,
}

impl PageState {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Excluded => "excluded",
            Self::Missing => "missing",
            Self::Damaged => "damaged",
            Self::Absent => "absent",
        }
    }
}

impl fmt::Display for PageState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ReadError {
    /// Returns the state of the requested page.
    pub fn state(&self) -> PageState {
        match self {
            Self::NotPresent { .. } => PageState::Absent,
            Self::NotInDump { .. } => PageState::Excluded,
            Self::Missing { .. } => PageState::Missing,
            Self::Damaged { .. } | Self::Io { .. } => PageState::Damaged,
        }
    }
}
