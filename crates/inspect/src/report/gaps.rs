//! What a report lacks: parts that could not be read, or not to their end.

use serde::Serialize;

/// A part of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The kernel log.
    Log,
    /// CPUs.
    Cpus,
    /// Tasks.
    Tasks,
    /// Stacks.
    Stacks,
    /// Locks.
    Locks,
    /// Zones, counters and processes.
    Memory,
    /// Slab caches.
    Slab,
    /// The vmalloc space.
    Vmalloc,
    /// Block requests.
    Requests,
    /// Device-mapper devices that are suspended.
    Suspended,
    /// The network.
    Network,
    /// Modules.
    Modules,
}

impl Part {
    /// All of them.
    pub(crate) const ALL: [Self; 12] = [
        Self::Log,
        Self::Cpus,
        Self::Tasks,
        Self::Stacks,
        Self::Locks,
        Self::Memory,
        Self::Slab,
        Self::Vmalloc,
        Self::Requests,
        Self::Suspended,
        Self::Network,
        Self::Modules,
    ];

    /// Returns the name, as reports have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Log => "the log",
            Self::Cpus => "CPUs",
            Self::Tasks => "tasks",
            Self::Stacks => "stacks",
            Self::Locks => "locks",
            Self::Memory => "memory",
            Self::Slab => "slab",
            Self::Vmalloc => "vmalloc",
            Self::Requests => "block requests",
            Self::Suspended => "suspended devices",
            Self::Network => "network",
            Self::Modules => "modules",
        }
    }
}

/// A part that was not read in whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// The part.
    pub part: Part,
    /// Whether nothing of it was read. Else what was read is true, and counts are the least possible ones.
    pub nothing: bool,
}

/// All gaps of a report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Gaps(Vec<Gap>);

impl Gaps {
    /// Adds one.
    pub(crate) fn add(&mut self, part: Part, nothing: bool) {
        match self.0.iter_mut().find(|gap| gap.part == part) {
            Some(gap) => gap.nothing |= nothing,
            None => self.0.push(Gap { part, nothing }),
        }
    }

    /// Returns whether a part is whole.
    pub fn is_whole(&self, part: Part) -> bool {
        self.0.iter().all(|gap| gap.part != part)
    }

    /// Returns whether nothing of a part was read.
    pub fn lacks(&self, part: Part) -> bool {
        self.0.iter().any(|gap| gap.part == part && gap.nothing)
    }

    /// Returns whether a part was read, but not in whole.
    pub fn is_partial(&self, part: Part) -> bool {
        self.0.iter().any(|gap| gap.part == part && !gap.nothing)
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether something is lacking that `other` has more of.
    pub(crate) fn exceed(&self, other: &Self) -> bool {
        self.0.iter().any(|gap| other.is_whole(gap.part) || gap.nothing && !other.lacks(gap.part))
    }

    /// Returns what was not looked at, as words: `not read: the log, tasks; read in part: slab`. Empty without gaps.
    pub fn describe(&self) -> String {
        let of = |what: &str, nothing: bool| {
            let names: Vec<&str> =
                self.0.iter().filter(|gap| gap.nothing == nothing).map(|gap| gap.part.name()).collect();
            (!names.is_empty()).then(|| format!("{what}: {}", names.join(", ")))
        };
        let parts = [of("not read", true), of("read in part", false)];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_name_what_was_not_read() {
        let mut gaps = Gaps::default();
        assert_eq!(gaps.describe(), "");
        gaps.add(Part::Slab, false);
        gaps.add(Part::Log, true);
        gaps.add(Part::Tasks, true);
        gaps.add(Part::Tasks, false);
        assert_eq!(gaps.describe(), "not read: the log, tasks; read in part: slab");
        assert!(gaps.lacks(Part::Log) && gaps.is_partial(Part::Slab) && gaps.is_whole(Part::Cpus));
        assert!(gaps.exceed(&Gaps::default()) && !gaps.exceed(&gaps.clone()));
    }
}
