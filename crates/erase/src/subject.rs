use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What can be erased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Subject {
    /// Keys and what leads to them: keyrings, disk encryption, transforms, TLS and WireGuard, the random number generator.
    Keys,
    /// The text of the kernel's log.
    Log,
    /// Names of user tasks, and of the host.
    Names,
    /// What is left in free slab objects.
    FreeObjects,
}

impl Subject {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Keys, Self::Log, Self::Names, Self::FreeObjects];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Log => "log",
            Self::Names => "names",
            Self::FreeObjects => "free-objects",
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name is none of [`Subject::ALL`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` cannot be erased; expected keys, log, names or free-objects")]
pub struct UnknownSubject(String);

impl FromStr for Subject {
    type Err = UnknownSubject;

    fn from_str(text: &str) -> Result<Self, UnknownSubject> {
        let found = Self::ALL.into_iter().find(|subject| subject.name() == text);
        found.ok_or_else(|| UnknownSubject(text.to_owned()))
    }
}
