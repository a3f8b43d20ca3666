//! The results of a crash in the cache.

use super::Images;
use crate::debuginfo::{self, DebugInfo};
use crate::kernels::Kernel;
use anyhow::{Context, Result};
use lab_guest::results::{CaptureKernelReport, Manifest, RunReport};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A crash and its results.
#[derive(Debug)]
pub struct Crash {
    directory: PathBuf,
    kernel: Kernel,
    manifest: Manifest,
    report: CaptureKernelReport,
    dumps: Vec<Dump>,
}

/// One run of pagehaul in the capture kernel.
#[derive(Clone, Debug)]
pub struct Dump {
    /// How the run ended.
    pub report: RunReport,
    /// The dump. Does not exist if the run failed early.
    pub path: PathBuf,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
    /// Changes of the /proc/vmstat counters that changed during the run.
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

    /// Returns the directory of all results.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns `uname -r` of the kernel that crashed.
    pub fn release(&self) -> &str {
        &self.kernel.release
    }

    /// Returns the kernel that crashed.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Returns the path of all of /proc/vmcore, a sparse file.
    pub fn vmcore(&self) -> PathBuf {
        self.directory.join("vmcore")
    }

    /// Returns the images that QEMU saved of it, if it was configured to.
    pub fn images(&self) -> Images {
        Images::within(&self.directory.join("images"))
    }

    /// Returns the pages that the guest stamped before the crash.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Returns the capture kernel's report.
    pub fn report(&self) -> &CaptureKernelReport {
        &self.report
    }

    /// Returns the runs in the capture kernel, in the order of the configuration.
    pub fn dumps(&self) -> &[Dump] {
        &self.dumps
    }

    /// Returns the kernel with debug symbols, and fetches it if necessary.
    pub fn vmlinux(&self) -> Result<PathBuf> {
        Ok(self.debug_info()?.vmlinux)
    }

    /// Returns its debug symbols with those of modules, and fetches them if necessary.
    pub fn debug_info(&self) -> Result<DebugInfo> {
        debuginfo::get(&self.kernel)
    }

    /// Returns the path of the console log of both kernels.
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
pub(crate) fn read_report(out: &Path) -> Result<CaptureKernelReport> {
    let path = out.join("report.json");
    let text = fs::read(&path)
        .with_context(|| format!("the capture kernel finished without writing {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

/// Returns the counters that differ between two readings of /proc/vmstat.
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
