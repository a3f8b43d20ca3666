//! What the guest returns: the manifest of stamped pages, and the capture kernel's report.

use crate::Class;
use serde::{Deserialize, Serialize};

/// How the first kernel filled its memory before the crash.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// `uname -r`.
    pub release: String,
    /// The classes that were filled.
    pub classes: Vec<Filled>,
    /// The classes that could not be filled, with the error.
    pub missing: Vec<(Class, String)>,
    /// `/proc/meminfo` just before the panic.
    pub meminfo: String,
    /// `/proc/modules` just before the panic (names and addresses).
    pub modules: String,
    /// `/proc/[pid]/comm` of every process just before the panic, as (pid, name).
    pub tasks: Vec<(u32, String)>,
    /// Standard output of the run before the crash, if the plan has one.
    #[serde(default)]
    pub before: String,
}

/// The pages of one class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Filled {
    /// Their class.
    pub class: Class,
    /// Number of stamped pages.
    pub count: u64,
    /// Their known locations, in the order of sequence numbers.
    pub ranges: Vec<Range>,
}

/// Consecutive stamped pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// PFN of the first page.
    pub pfn: u64,
    /// Sequence number in the first page's stamp.
    pub sequence: u64,
    /// Number of pages. PFN and sequence number increase together.
    pub pages: u64,
}

impl Manifest {
    /// Returns the entry of a class, if it was filled.
    pub fn class(&self, class: Class) -> Option<&Filled> {
        self.classes.iter().find(|filled| filled.class == class)
    }
}

impl Filled {
    /// Returns every page with a known location as (PFN, sequence number).
    pub fn pages(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().flat_map(|r| (0..r.pages).map(|i| (r.pfn + i, r.sequence + i)))
    }
}

/// Appends a page to a list of ranges.
pub fn push_page(ranges: &mut Vec<Range>, pfn: u64, sequence: u64) {
    match ranges.last_mut() {
        Some(r) if r.pfn + r.pages == pfn && r.sequence + r.pages == sequence => r.pages += 1,
        _ => ranges.push(Range { pfn, sequence, pages: 1 }),
    }
}

/// What happened in the capture kernel: `report.json` among the results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CaptureKernelReport {
    /// `uname -r` of the capture kernel.
    pub release: String,
    /// Seconds from the capture kernel's start to its init.
    pub uptime: f64,
    /// Online CPUs.
    pub cpus: u64,
    /// MemTotal when its init starts, in KiB.
    pub memory_kib: u64,
    /// MemAvailable at that time, in KiB.
    pub available_kib: u64,
    /// Size of /proc/vmcore in bytes.
    pub vmcore_bytes: u64,
    /// How the vmcore was saved, if requested.
    pub vmcore: Option<Saved>,
    /// The runs, in the order of the plan.
    pub runs: Vec<RunReport>,
}

/// How the raw vmcore was saved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// Duration in seconds.
    pub seconds: f64,
    /// Whether the kernel allowed mmap of /proc/vmcore.
    pub mapped: bool,
    /// Bytes written: all but blocks of zeros.
    pub written: u64,
}

/// How one run ended. Its files are `<name>.dump`, `<name>.stdout`, `<name>.stderr`, `<name>.vmstat-before`
/// and `<name>.vmstat-after`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// Name given by the host.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Exit code, unless a signal killed it.
    pub exit_code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// Whether it exceeded its time limit.
    pub timed_out: bool,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// CPU seconds in user mode.
    pub user_seconds: f64,
    /// CPU seconds in the kernel.
    pub system_seconds: f64,
    /// Peak VmHWM in KiB.
    pub peak_rss_kib: u64,
    /// Peak RssAnon in samples of /proc/PID/status, in KiB.
    pub peak_anonymous_kib: u64,
    /// Peak number of threads.
    pub peak_threads: u64,
    /// Number of samples.
    pub samples: u64,
    /// Size of the dump in bytes, 0 if there is none.
    pub dump_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_merged_into_ranges_and_listed_again() {
        let pages = [(10, 0), (11, 1), (12, 2), (20, 3), (22, 4), (23, 5), (24, 7)];
        let mut ranges = Vec::new();
        for (pfn, sequence) in pages {
            push_page(&mut ranges, pfn, sequence);
        }
        assert_eq!(ranges.len(), 4);
        let filled = Filled { class: Class::Anon, count: 7, ranges };
        assert_eq!(filled.pages().collect::<Vec<_>>(), pages);
    }
}
