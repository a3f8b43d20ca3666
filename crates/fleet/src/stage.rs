//! The stages in which a dump is read.

use clap::ValueEnum;

/// What a process makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Stage {
    /// `dumps` and `log_lines`, from notes and log. All tables of a recording.
    Facts,
    /// `page_classes`, from struct pages.
    Pages,
    /// The other tables of a crash, from what triage reads.
    Triage,
}

impl Stage {
    /// Returns the names of its tables.
    pub(crate) fn tables(self) -> &'static [&'static str] {
        match self {
            Self::Facts => &["dumps", "log_lines"],
            Self::Pages => &["page_classes"],
            Self::Triage => &["memory_state", "tasks", "stacks", "modules", "slab_caches", "vmalloc_callers"],
        }
    }
}
