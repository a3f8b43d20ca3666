use serde::{Deserialize, Serialize};

/// Which pages of user space a dump holds, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Memory cgroups whose pages are kept, with those of all cgroups below them: paths from the root of the hierarchy.
    pub cgroups: Vec<String>,
    /// Processes whose pages are kept: PIDs of the initial namespace.
    pub pids: Vec<u32>,
    /// File systems whose cached pages are left out: names of types.
    pub file_systems: Vec<String>,
}

impl Choice {
    /// Returns whether everything is kept.
    pub fn is_empty(&self) -> bool {
        !self.keeps_some() && self.file_systems.is_empty()
    }

    /// Returns whether only some owners' pages are kept.
    pub fn keeps_some(&self) -> bool {
        !self.cgroups.is_empty() || !self.pids.is_empty()
    }
}
