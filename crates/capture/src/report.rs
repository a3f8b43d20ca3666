use std::path::Path;
use std::time::Instant;

use pagehaul_kernel::PageClass;
use pagehaul_machine::Pfn;
use pagehaul_output::OutputFile;
use pagehaul_run::{Outcome, Phase};
use pagehaul_vmcore::Source;
use serde::Serialize;

use crate::error::CaptureError;
use crate::priority::Priority;

/// Returns the outcome of a capture that reached its end, with `unreadable` pages of `source` missing. Whether a dump is
/// complete is decided only here: the mark in the file, the report and the exit status follow from it.
pub(crate) fn outcome_at_end(source: &Source, unreadable: u64) -> Outcome {
    match (unreadable, source.warnings().into_iter().next()) {
        (0, None) => Outcome::Complete,
        (0, Some(fault)) => Outcome::SourceIncomplete(format!("the source is incomplete ({fault})")),
        (1, _) => Outcome::PagesUnreadable("1 page of the source could not be read".into()),
        (pages, _) => Outcome::PagesUnreadable(format!("{pages} pages of the source could not be read")),
    }
}

/// Pages of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ClassCount {
    /// The class's name.
    pub class: &'static str,
    /// Pages that are kept.
    pub kept: u64,
    /// Pages that are excluded.
    pub excluded: u64,
}

/// Pages of one priority in a dump that ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PriorityCount {
    pub priority: Priority,
    /// Pages to be kept.
    pub kept: u64,
    /// Of these, pages that the dump ended before.
    pub unwritten: u64,
}

/// Pages compressed with one method.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MethodCount {
    /// Codec and level.
    pub method: String,
    /// Their number.
    pub pages: u64,
}

/// A page to be kept that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    pub pfn: Pfn,
    pub why: String,
}

/// The machine, as found before anything was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Bytes of a page.
    pub page_size: usize,
    /// One more than the highest PFN.
    pub max_pfn: u64,
    /// Ranges of physical memory.
    pub ranges: usize,
    /// The kernel's build ID (since 5.9).
    pub build_id: Option<String>,
    /// Levels of its page tables: 4 or 5.
    pub paging_levels: Option<u8>,
    /// Physical address of the kernel image minus its link address (two's complement).
    pub phys_base: Option<u64>,
    /// Virtual address of the direct map.
    pub direct_map: Option<u64>,
}

impl CaptureReport {
    /// Records that the end of part `index` could not be written, and which file has the rest of it, if one has.
    pub fn cut_part(&mut self, index: usize, why: &str, file: Option<&Path>) {
        let Some(part) = self.parts.get_mut(index) else { return };
        let is_known = !part.outcome.is_success();
        if !is_known {
            part.outcome = Outcome::WriteFailed(why.to_owned());
        }
        let name = file.map(|file| file.display().to_string());
        let warning = match &name {
            None => Some(format!("{why}; nothing of this part is left")),
            Some(name) if !is_known => Some(format!("{why}; {name} is a part that breaks off")),
            // It was to replace another file.
            Some(name) if *name != part.output => {
                Some(format!("{name} has what was written of {}", part.output))
            }
            Some(_) => None,
        };
        match name {
            Some(name) => part.output = name,
            None => (part.exists, part.pages_written, part.output_bytes) = (false, 0, 0),
        }
        let outcome = part.outcome.clone();
        self.warnings.extend(warning);
        if self.outcome.is_at_end() {
            self.outcome = outcome;
        }
    }
}

/// One part of a split set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartReport {
    /// The file.
    pub output: String,
    /// How writing it ended. A part that ended early, because its disk is full or failed, left its pages to the others. The
    /// incomplete mark in the file is about the whole set: see [`CaptureReport::outcome`].
    pub outcome: Outcome,
    /// Whether the file exists: a part without pages is removed.
    pub exists: bool,
    /// Its first PFN.
    pub start_pfn: u64,
    /// One more than its last PFN.
    pub end_pfn: u64,
    /// Kept pages among these.
    pub pages: u64,
    /// Of these, pages that it holds.
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

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CaptureReport {
    /// How it ended.
    pub outcome: Outcome,
    pub source: String,
    /// The output, or the names of all parts; `None` for a dry run.
    pub output: Option<String>,
    /// `uname -r` of the kernel, if known.
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
    /// The requested codec and level, or "auto".
    pub codec: String,
    /// Threads that scanned and compressed.
    pub threads: usize,
    /// Pages per class.
    pub classes: Vec<ClassCount>,
    /// Pages that rules about owners exclude, because their owner is not one whose pages are kept; none without such rules. They are not
    /// among those of `classes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_owners: Option<u64>,
    /// Pages of files that are excluded because of their file system; none without such rules. They are not among the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped_file_systems: Option<u64>,
    /// Of the free pages excluded, those on per-CPU lists; none if these are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_cpu_free: Option<u64>,
    /// Pages whose struct pages contradict each other, `PG_reserved` or the kernel image, such as a reserved page that looks
    /// anonymous. They are kept, as undecided.
    pub contradictions: u64,
    /// Pages the source lacks because an earlier dump excluded them.
    pub excluded_from_source: u64,
    /// Pages to be kept.
    pub pages_kept: u64,
    /// Pages excluded by the dump level and by owner.
    pub pages_excluded: u64,
    /// Pages to be kept that the output holds; fewer than `pages_kept` if it ended early or pages were unreadable.
    pub pages_written: u64,
    /// Pages by priority, highest first, of a dump that ended early. Empty where pages are written in PFN order.
    pub unwritten: Vec<PriorityCount>,
    /// Of the kept pages, zero pages, which share one page of data.
    pub zero_pages: u64,
    /// Of the kept pages, those stored uncompressed.
    pub raw_pages: u64,
    /// Of the kept pages, those stored compressed.
    pub compressed_pages: u64,
    /// Compressed pages by codec and level, fastest first.
    pub methods: Vec<MethodCount>,
    /// Pages that could not be read from the source.
    pub unreadable_pages: u64,
    /// The first of these.
    pub unreadable: Vec<Unreadable>,
    /// Bytes of physical memory the machine has.
    pub memory_bytes: u64,
    /// Bytes of page contents stored, after compression.
    pub stored_bytes: u64,
    /// Bytes of the output; for a dry run, an estimate from a sample.
    pub output_bytes: u64,
    /// Time per phase.
    pub seconds: Phases,
    /// What the user should know: undecidable classes, damaged structures.
    pub warnings: Vec<String>,
}

impl CaptureReport {
    /// Writes the checksums of `file`, if they are enabled. If they fail, so does the capture, unless it says already that the
    /// dump is incomplete.
    pub(crate) fn add_checksums(&mut self, file: &OutputFile) -> Result<(), CaptureError> {
        match file.write_checksums() {
            Err(error) if self.outcome.is_success() => Err(CaptureError::Checksums(error)),
            Err(error) => {
                self.warnings.push(format!("the checksums are missing: {error}"));
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Returns the bytes of kept memory divided by the bytes stored for it.
    pub fn ratio(&self) -> f64 {
        let kept =
            (self.zero_pages + self.raw_pages + self.compressed_pages) as f64 * self.found.page_size as f64;
        if self.stored_bytes == 0 { 1.0 } else { kept / self.stored_bytes as f64 }
    }
}

pub(crate) fn class_counts(
    kept: &[u64; PageClass::COUNT],
    excluded: &[u64; PageClass::COUNT],
) -> Vec<ClassCount> {
    PageClass::ALL
        .into_iter()
        .map(|class| ClassCount {
            class: class.name(),
            kept: kept[class as usize],
            excluded: excluded[class as usize],
        })
        .filter(|count| count.kept + count.excluded > 0)
        .collect()
}

/// Measures the time of each phase.
#[derive(Clone)]
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

    /// The start of the first phase.
    pub(crate) fn start_time(&self) -> Instant {
        self.start
    }

    /// The start of the current phase.
    pub(crate) fn phase_time(&self) -> Instant {
        self.last
    }

    /// Adds the time since the last lap to `phase`.
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
