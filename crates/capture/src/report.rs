use std::time::Instant;

use pagehaul_kernel::PageClass;
use pagehaul_run::Phase;
use serde::Serialize;

use crate::Priority;

/// How a capture ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "how", content = "why")]
pub enum Ended {
    /// Every page that was to be kept is in the dump.
    Complete,
    /// Nothing was to be written.
    DryRun,
    /// The user stopped it.
    Stopped,
    /// The time it was given is over.
    TimeLimit,
    /// The room it was given is taken.
    SizeLimit,
    /// The disk is full.
    DiskFull(String),
    /// The output could not be written.
    WriteFailed(String),
    /// The source, or what was written before, could not be read any more.
    ReadFailed(String),
}

impl Ended {
    /// Whether all that was asked for was done.
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Complete | Self::DryRun)
    }
}

/// Pages of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ClassCount {
    /// The class's name.
    pub class: &'static str,
    /// Pages that are kept.
    pub kept: u64,
    /// Pages that were left out.
    pub dropped: u64,
}

/// Pages that should have been kept, but are not in a dump that ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// What they are worth.
    pub priority: Priority,
    /// Pages to be kept.
    pub kept: u64,
    /// Of these, pages that are not in the dump.
    pub left_out: u64,
}

/// Pages compressed in one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MethodCount {
    /// Codec and level.
    pub method: String,
    /// How many.
    pub pages: u64,
}

/// A page that should have been kept, but could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// Its PFN.
    pub pfn: u64,
    /// Why.
    pub why: String,
}

/// What was found of the machine before anything was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    /// One more than the highest PFN.
    pub max_pfn: u64,
    /// Ranges of physical memory.
    pub ranges: usize,
    /// The kernel's build ID (5.9 on).
    pub build_id: Option<String>,
    /// Levels of its page tables: 4 or 5.
    pub paging_levels: Option<u8>,
    /// Where the kernel image is, less where it was linked to be (two's complement).
    pub phys_base: Option<u64>,
    /// Where the direct map starts.
    pub direct_map: Option<u64>,
}

/// One file of a dump in parts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartReport {
    /// The file.
    pub output: String,
    /// How it ended. A part that ended early, because its disk is full or failed, left its work to the others.
    pub ended: Ended,
    /// Whether there is a file: a part that holds nothing has none.
    pub exists: bool,
    /// The first PFN that is its own.
    pub start_pfn: u64,
    /// One more than the last.
    pub end_pfn: u64,
    /// Kept pages among these.
    pub pages: u64,
    /// Of these, pages that are on record in it.
    pub pages_written: u64,
    /// Bytes of page contents stored, after compression.
    pub stored_bytes: u64,
    /// Bytes of disk it takes.
    pub output_bytes: u64,
}

/// Time per phase, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Phases {
    /// Finding the kernel in its memory.
    pub prepare: f64,
    /// Classifying struct pages.
    pub scan: f64,
    /// Compressing and writing pages.
    pub pack: f64,
    /// Waiting for the disk.
    pub finish: f64,
}

/// What a capture did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// How it ended.
    pub ended: Ended,
    /// What was read.
    pub source: String,
    /// What was written, of several parts all names; none for a dry run.
    pub output: Option<String>,
    /// `uname -r` of the kernel, where the source says so.
    pub kernel: Option<String>,
    /// Seconds since 1970 at the crash.
    pub crash_time: Option<u64>,
    /// The machine.
    pub found: Found,
    /// The parts, in the order they were named; empty for a dump in one file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartReport>,
    /// The dump level: the field's bits.
    pub level: u8,
    /// "kdump", "elf" or "flattened".
    pub format: &'static str,
    /// Codec and level that were asked for, or "auto".
    pub codec: String,
    /// Threads that scanned and compressed.
    pub threads: usize,
    /// Pages per class.
    pub classes: Vec<ClassCount>,
    /// Pages the source itself lacks because an earlier dump left them out.
    pub missing_from_source: u64,
    /// Pages to be kept.
    pub pages_kept: u64,
    /// Pages left out.
    pub pages_dropped: u64,
    /// Kept pages that are on record in the output; fewer than `pages_kept` when it ended early.
    pub pages_written: u64,
    /// What is missing of a dump that ended early, most important first. Empty where pages are written in the order of
    /// their PFNs, whatever they are worth.
    pub left_out: Vec<LeftOut>,
    /// Of the kept pages, those of nothing but zeros, which take no room of their own.
    pub zero_pages: u64,
    /// Of the kept pages, those stored as they are.
    pub raw_pages: u64,
    /// Of the kept pages, those stored compressed.
    pub compressed_pages: u64,
    /// The same by codec and level, fastest first.
    pub methods: Vec<MethodCount>,
    /// Pages that could not be read from the source.
    pub unreadable_pages: u64,
    /// The first of them.
    pub unreadable: Vec<Unreadable>,
    /// Bytes of physical memory the machine has.
    pub memory_bytes: u64,
    /// Bytes of page contents stored, after compression.
    pub stored_bytes: u64,
    /// Bytes of the output; for a dry run, an estimate from a sample.
    pub output_bytes: u64,
    /// Time per phase.
    pub seconds: Phases,
    /// What the user should know: classes that could not be told, damaged structures.
    pub remarks: Vec<String>,
}

impl Report {
    /// Bytes of kept memory over bytes stored for it.
    pub fn ratio(&self) -> f64 {
        let kept = (self.zero_pages + self.raw_pages + self.compressed_pages) as f64 * 4096.0;
        if self.stored_bytes == 0 { 1.0 } else { kept / self.stored_bytes as f64 }
    }
}

pub(crate) fn class_counts(
    kept: &[u64; PageClass::COUNT],
    dropped: &[u64; PageClass::COUNT],
) -> Vec<ClassCount> {
    PageClass::ALL
        .into_iter()
        .map(|class| ClassCount {
            class: class.name(),
            kept: kept[class as usize],
            dropped: dropped[class as usize],
        })
        .filter(|count| count.kept + count.dropped > 0)
        .collect()
}

/// Measures one phase after the other.
pub(crate) struct Clock {
    start: Instant,
    last: Instant,
    pub(crate) seconds: Phases,
}

impl Clock {
    pub(crate) fn start() -> Self {
        let now = Instant::now();
        Self { start: now, last: now, seconds: Phases::default() }
    }

    /// When the first phase began.
    pub(crate) fn start_time(&self) -> Instant {
        self.start
    }

    /// When the current phase began.
    pub(crate) fn phase_time(&self) -> Instant {
        self.last
    }

    /// Puts the time since the last lap down to `phase`.
    pub(crate) fn lap(&mut self, phase: Phase) {
        let now = Instant::now();
        let lap = (now - std::mem::replace(&mut self.last, now)).as_secs_f64();
        match phase {
            Phase::Prepare => self.seconds.prepare += lap,
            Phase::Scan => self.seconds.scan += lap,
            Phase::Copy | Phase::Pack => self.seconds.pack += lap,
            Phase::Finish => self.seconds.finish += lap,
        }
    }
}
