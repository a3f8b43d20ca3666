//! Dumps of one crash that a run extracts at the same time: one after the other names its tables.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The crashes of a run.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    crashes: Mutex<BTreeMap<String, Turn>>,
}

/// The lock of a crash. The value says whether a dump had it before: what another found of the tables may be old.
pub(crate) type Turn = Arc<Mutex<bool>>;

impl Turns {
    /// Returns the lock of a crash.
    pub(crate) fn of(&self, id: &str) -> Turn {
        let mut crashes = self.crashes.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(crashes.entry(id.to_owned()).or_default())
    }
}
