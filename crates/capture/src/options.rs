use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pagehaul_kernel::DumpLevel;

use crate::compression::Compression;
use crate::owners::OwnerFilter;

/// The format of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// kdump-compressed, version 6.
    Kdump,
    /// ELF64, uncompressed, with excluded pages as holes.
    Elf,
    /// kdump-compressed as a stream of records, for pipes; `makedumpfile -R` turns it into a file.
    Flattened,
    /// ELF64 as a stream of records.
    FlattenedElf,
}

impl Format {
    /// Returns the name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kdump => "kdump",
            Self::Elf => "elf",
            Self::Flattened => "flattened",
            Self::FlattenedElf => "flattened-elf",
        }
    }
}

/// Where a dump goes.
#[derive(Clone)]
pub enum Target {
    File {
        path: PathBuf,
        /// Whether an existing file may be replaced.
        overwrite: bool,
    },
    /// Files on several disks, each a part of the dump. In kdump format only.
    Parts {
        /// Their paths: two or more.
        paths: Vec<PathBuf>,
        /// Whether existing files may be replaced.
        overwrite: bool,
    },
    /// Standard output, as a flattened stream.
    Stdout,
    /// A pipe to what takes the dump elsewhere, as a flattened stream.
    Pipe {
        /// Where it goes, in messages.
        name: PathBuf,
        /// The end that is written to.
        pipe: Arc<File>,
        /// Bytes that the other end may hold, for a limit of time: what is written last has to get where it goes.
        buffered: u64,
    },
    /// A stream that its caller ends.
    Stream(Stream),
    /// Several, each a part of the dump: a flattened stream of its share of the pages.
    Streams(Vec<Stream>),
    /// Nowhere: pages are packed and dropped, to measure that.
    Discard,
}

/// What a stream is written to. A flush has what is written on the disk, if it goes to one.
#[derive(Clone)]
pub struct Stream {
    /// Where it goes, in messages.
    pub name: PathBuf,
    /// What is written to.
    pub stream: Arc<Mutex<dyn Write + Send>>,
}

/// What to keep and how to store it.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which pages are excluded.
    pub level: DumpLevel,
    /// Which of the other pages of user space are excluded, by their owner.
    pub owners: Option<Arc<OwnerFilter>>,
    /// Keep every page that the source holds, even poisoned and offline ones: a saved dump can be read without risk.
    pub keep_all: bool,
    /// Write the checksums of the file next to it.
    pub checksums: bool,
    /// How pages are compressed.
    pub compression: Compression,
    /// Threads that scan and compress; one more writes.
    pub threads: usize,
    /// The format of the dump.
    pub format: Format,
    /// When to end early.
    pub limits: Limits,
}

impl Options {
    /// Options of a single kdump file without checksums or limits, for memory that can have poisoned pages.
    pub fn new(level: DumpLevel, compression: Compression, threads: usize) -> Self {
        Self {
            level,
            owners: None,
            keep_all: false,
            checksums: false,
            compression,
            threads,
            format: Format::Kdump,
            limits: Limits::default(),
        }
    }
}

/// What the caller knows of pages beforehand: runs of PFNs, ascending and apart.
#[derive(Debug, Clone, Default)]
pub struct KnownPages {
    /// Pages that precede all others where pages are written by priority.
    pub first: Vec<Range<u64>>,
    /// Free pages on per-CPU lists, which `struct page` does not distinguish from pages in use; none if they are not to be
    /// excluded. They count as free where the scan finds nothing that contradicts it.
    pub free: Option<Vec<Range<u64>>>,
}

/// Limits at which a capture ends early, with a dump of the pages written until then.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Time from start to end, including what is written at the end. A disk that becomes slower than it was measured, or one
    /// write that does not return, may exceed it.
    pub time: Option<Duration>,
    /// Bytes of disk that the dump, or each part of a split set, may take.
    pub size: Option<u64>,
}
