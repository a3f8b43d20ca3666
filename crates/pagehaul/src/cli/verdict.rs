//! What verifying a file can conclude.

use serde::Serialize;

/// What is known of a file after all of it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// Every byte has a checksum, and none has changed.
    Intact,
    /// All of it can be read. What changed without making it unreadable goes unnoticed.
    Readable,
    /// Something is missing, unreadable or changed.
    Damaged,
}

impl Verdict {
    /// The verdict on a file in which faults were `found` or not, and of which `all` has checksums or not.
    pub(super) fn new(found: bool, all: bool) -> Self {
        match (found, all) {
            (true, _) => Self::Damaged,
            (false, true) => Self::Intact,
            (false, false) => Self::Readable,
        }
    }

    /// Whether nothing has changed, if that can be known.
    pub(super) fn intact(self) -> Option<bool> {
        match self {
            Self::Intact => Some(true),
            Self::Readable => None,
            Self::Damaged => Some(false),
        }
    }

    /// The last line of a report. `remedy` is what would have shown changes.
    pub(super) fn line(self, remedy: &str) -> String {
        match self {
            Self::Intact => "intact".to_owned(),
            Self::Readable => {
                format!("readable; without checksums changed bytes can go unnoticed ({remedy})")
            }
            Self::Damaged => "DAMAGED OR INCOMPLETE".to_owned(),
        }
    }
}
