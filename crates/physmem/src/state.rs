use std::fmt;

use crate::ReadError;

/// What a source has of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageState {
    /// Its contents.
    Present,
    /// Nothing, on purpose: the dump excludes it.
    Excluded,
    /// Nothing, though it should: the writer was stopped before it, the file was truncated, or the part of a split set
    /// that has it was not given.
    Missing,
    /// Something that cannot be its contents.
    Damaged,
    /// Nothing: the machine has no memory there.
    Absent,
}

impl PageState {
    /// One word.
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
    /// What this says of the page that was asked for.
    pub fn state(&self) -> PageState {
        match self {
            Self::NotPresent { .. } => PageState::Absent,
            Self::NotInDump { .. } => PageState::Excluded,
            Self::Missing { .. } => PageState::Missing,
            Self::Damaged { .. } | Self::Io { .. } => PageState::Damaged,
        }
    }
}
