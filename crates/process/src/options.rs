use crate::filter::Kinds;

/// When the memory is copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mode {
    /// While the process is stopped: all of the core is of one moment.
    #[default]
    Stopped,
    /// While it runs; it is stopped for its registers only. Memory is of many moments.
    Live,
    /// From a copy-on-write child that it is made to fork while stopped for a moment.
    Snapshot,
}

impl Mode {
    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Live => "live",
            Self::Snapshot => "snapshot",
        }
    }
}

/// How a core is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// When the memory is copied.
    pub mode: Mode,
    /// Kinds of mappings added to those of the process's `coredump_filter`.
    pub include: Kinds,
    /// Kinds of mappings excluded.
    pub exclude: Kinds,
    /// zstd's level; `None` writes plain ELF.
    pub level: Option<i32>,
    /// Threads that copy and compress.
    pub threads: usize,
    /// Bytes of memory the copy may take while the process is stopped. None: half of what is available.
    pub max_memory: Option<u64>,
}
