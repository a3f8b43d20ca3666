//! What the guest hands back: the manifest of stamped pages, and the report of the capture kernel.

use crate::Class;
use serde::{Deserialize, Serialize};

/// Everything the first kernel did to its memory before it crashed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// `uname -r`.
    pub release: String,
    /// One entry per class that was filled.
    pub classes: Vec<Filled>,
    /// Classes that could not be filled, with the reason.
    pub missing: Vec<(Class, String)>,
    /// `/proc/meminfo` just before the panic.
    pub meminfo: String,
    /// `/proc/modules` just before the panic (names and addresses).
    pub modules: String,
    /// `/proc/[pid]/comm` of every process just before the panic, as (pid, name).
    pub tasks: Vec<(u32, String)>,
}

/// The pages of one class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Filled {
    /// Their class.
    pub class: Class,
    /// How many were stamped.
    pub count: u64,
    /// Where they are, as far as the guest could find out; in order of sequence numbers.
    pub ranges: Vec<Range>,
}

/// A run of stamped pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// Page frame number of the first page.
    pub pfn: u64,
    /// Sequence number in the first page's stamp.
    pub sequence: u64,
    /// How many pages, with frame numbers and sequence numbers both counting up.
    pub pages: u64,
}

impl Manifest {
    /// The entry of a class, if it was filled.
    pub fn class(&self, class: Class) -> Option<&Filled> {
        self.classes.iter().find(|filled| filled.class == class)
    }
}

impl Filled {
    /// Every page with a known place, as (page frame number, sequence number).
    pub fn pages(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().flat_map(|r| (0..r.pages).map(|i| (r.pfn + i, r.sequence + i)))
    }
}

/// Adds a page to runs of pages.
pub fn push_page(ranges: &mut Vec<Range>, pfn: u64, sequence: u64) {
    match ranges.last_mut() {
        Some(r) if r.pfn + r.pages == pfn && r.sequence + r.pages == sequence => r.pages += 1,
        _ => ranges.push(Range { pfn, sequence, pages: 1 }),
    }
}

/// What happened in the capture kernel: `report.json` among the results.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `uname -r` of the capture kernel.
    pub release: String,
    /// Seconds from the capture kernel's start to its init.
    pub uptime: f64,
    /// Bytes of /proc/vmcore.
    pub vmcore_bytes: u64,
    /// How the vmcore was saved, if it was.
    pub vmcore: Option<Saved>,
    /// The runs of pagehaul.
    pub runs: Vec<RunReport>,
}

/// How the raw vmcore was saved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Saved {
    /// Seconds it took.
    pub seconds: f64,
    /// Whether the kernel allowed mmap of /proc/vmcore.
    pub mapped: bool,
    /// Bytes that are not zero blocks, and so were written.
    pub written: u64,
}

/// How a run of pagehaul went. Its files are `<name>.dump`, `<name>.stdout`, `<name>.stderr`, `<name>.vmstat-before`
/// and `<name>.vmstat-after`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// Name given by the host.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Exit code, unless a signal ended it.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Whether it was killed for taking too long.
    pub timed_out: bool,
    /// Wall-clock seconds.
    pub seconds: f64,
    /// CPU seconds in user mode.
    pub user_seconds: f64,
    /// CPU seconds in the kernel.
    pub system_seconds: f64,
    /// Highest VmHWM seen, in KiB.
    pub peak_rss_kib: u64,
    /// Highest RssAnon seen in samples of /proc/PID/status, in KiB.
    pub peak_anonymous_kib: u64,
    /// Highest number of threads seen.
    pub peak_threads: u64,
    /// How many samples were taken.
    pub samples: u64,
    /// Bytes of the dump, 0 if there is none.
    pub dump_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_become_runs_and_come_back() {
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
