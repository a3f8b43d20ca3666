//! What a crash left in the cache.

use crate::debuginfo;
use crate::kernels::Kernel;
use anyhow::{Context, Result};
use lab_guest::results::{Manifest, Report, RunReport};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A crash and all that was brought out of it.
#[derive(Debug)]
pub struct Crash {
    directory: PathBuf,
    kernel: Kernel,
    manifest: Manifest,
    report: Report,
    dumps: Vec<Dump>,
}

/// One run of pagehaul in the capture kernel.
#[derive(Clone, Debug)]
pub struct Dump {
    /// How the run went.
    pub report: RunReport,
    /// The dump; there is none where the run failed early.
    pub path: PathBuf,
    /// What it printed on standard output.
    pub stdout: String,
    /// What it printed on standard error.
    pub stderr: String,
    /// Counters of /proc/vmstat that changed during the run, and by how much.
    pub vmstat: BTreeMap<String, i64>,
}

impl Crash {
    pub(crate) fn open(directory: PathBuf, kernel: Kernel) -> Result<Crash> {
        let path = directory.join("manifest.json");
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        let manifest = serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
        let out = directory.join("out");
        let report = read_report(&out)?;
        let dumps = report.runs.iter().map(|run| Dump::open(&out, run)).collect::<Result<_>>()?;
        Ok(Crash { directory, kernel, manifest, report, dumps })
    }

    /// Directory with everything below.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// `uname -r` of the kernel that crashed.
    pub fn release(&self) -> &str {
        &self.kernel.release
    }

    /// The kernel that crashed.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The whole of /proc/vmcore, as a sparse file.
    pub fn vmcore(&self) -> PathBuf {
        self.directory.join("vmcore")
    }

    /// The pages the guest stamped before it crashed.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What happened in the capture kernel.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// The runs of pagehaul in the capture kernel, in the order they were asked for.
    pub fn dumps(&self) -> &[Dump] {
        &self.dumps
    }

    /// The kernel with its debug symbols, fetched if need be.
    pub fn vmlinux(&self) -> Result<PathBuf> {
        Ok(debuginfo::get(&self.kernel)?.vmlinux)
    }

    /// Log of the serial console, both kernels.
    pub fn console(&self) -> PathBuf {
        self.directory.join("console.log")
    }
}

impl Dump {
    fn open(out: &Path, run: &RunReport) -> Result<Dump> {
        let read = |suffix: &str| {
            let path = out.join(format!("{}.{suffix}", run.name));
            let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
            Ok::<_, anyhow::Error>(String::from_utf8_lossy(&bytes).into_owned())
        };
        Ok(Dump {
            report: run.clone(),
            path: out.join(format!("{}.dump", run.name)),
            stdout: read("stdout")?,
            stderr: read("stderr")?,
            vmstat: changes(&read("vmstat-before")?, &read("vmstat-after")?),
        })
    }
}

/// Reads the capture kernel's report among its results.
pub(crate) fn read_report(out: &Path) -> Result<Report> {
    let path = out.join("report.json");
    let text = fs::read(&path)
        .with_context(|| format!("the capture kernel said it was done, but left no {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

/// Counters that differ between two readings of /proc/vmstat.
fn changes(before: &str, after: &str) -> BTreeMap<String, i64> {
    let parse = |text: &str| -> BTreeMap<String, i64> {
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs.filter_map(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?))).collect()
    };
    let before = parse(before);
    let difference = |(name, value): (String, i64)| {
        let change = value.wrapping_sub(before.get(&name).copied().unwrap_or(0));
        (change != 0).then_some((name, change))
    };
    parse(after).into_iter().filter_map(difference).collect()
}

#[cfg(test)]
mod tests {
    use super::changes;

    #[test]
    fn only_changes_are_kept() {
        let before = "nr_free_pages 100\nallocstall_normal 0\npgscan_direct 3\n";
        let after = "nr_free_pages 90\nallocstall_normal 0\npgscan_direct 4\nnew_counter 2\nnot a number\n";
        let found: Vec<(String, i64)> = changes(before, after).into_iter().collect();
        let expected = [("new_counter", 2), ("nr_free_pages", -10), ("pgscan_direct", 1)];
        assert_eq!(found, expected.map(|(name, by)| (name.to_owned(), by)));
    }
}
