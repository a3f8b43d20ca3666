use std::path::PathBuf;
use std::time::Duration;

use pagehaul_kernel::DumpLevel;

use crate::Compression;

/// How a dump is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// kdump-compressed, version 6.
    Kdump,
    /// ELF64, uncompressed, with the pages left out as holes.
    Elf,
    /// kdump-compressed as a stream of records, for pipes; `makedumpfile -R` makes a file of it.
    Flattened,
}

impl Format {
    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kdump => "kdump",
            Self::Elf => "elf",
            Self::Flattened => "flattened",
        }
    }
}

/// Where a dump goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A file.
    File {
        /// Its path.
        path: PathBuf,
        /// Whether one that exists may be replaced.
        overwrite: bool,
    },
    /// Files on several disks, each a part of the dump. In kdump format only.
    Parts {
        /// Their paths: two or more.
        paths: Vec<PathBuf>,
        /// Whether those that exist may be replaced.
        overwrite: bool,
    },
    /// Standard output, as a flattened stream.
    Stdout,
}

/// What to keep and how to store it.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Which pages are left out.
    pub level: DumpLevel,
    /// Keep every page that the source holds, poisoned and offline ones too: what a saved dump has can be read.
    pub keep_all: bool,
    /// Write the checksums of the file beside it.
    pub checksums: bool,
    /// How pages are compressed.
    pub compression: Compression,
    /// Threads that scan and compress; one more writes.
    pub threads: usize,
    /// How the dump is laid out.
    pub format: Format,
    /// When to end with what there is.
    pub limits: Limits,
}

/// When a capture ends early, with a dump of what was written until then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Time from the start to the end, writing the tables included.
    pub time: Option<Duration>,
    /// Bytes of disk the dump may take; of several parts, each.
    pub size: Option<u64>,
}
