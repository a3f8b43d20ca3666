//! Power cuts and kills: at any moment of a capture the disk holds a valid dump, one marked incomplete, or none.
//!
//! QEMU records all requests to the guest's disks, flushes included. Every state that a power cut can leave follows from
//! the record: all writes before the last flush, and any part of the others, down to single sectors.

mod cuts;
mod write_log;

use crate::disk;
use crate::tools::Tools;
use crate::{Config, Crash, crash, oracle};
use anyhow::{Context, Result, bail, ensure};
use cuts::Cuts;
use lab_guest::plan::{self, Run};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Times in seconds after which captures are killed.
const KILLS: [u64; 3] = [2, 6, 12];
/// Write rate of the disks in bytes per second: slow enough for the kills to hit captures.
const WRITE_RATE: u64 = 8 << 20;
const DISK_MIB: u64 = 96;
/// One of so many incomplete dumps without lost writes is read page by page.
const READ_EVERY: usize = 4;

/// Numbers of dumps after cuts and kills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Complete dumps. Every page was read and is correct.
    pub complete: usize,
    /// Dumps marked incomplete.
    pub incomplete: usize,
    /// No dump.
    pub none: usize,
}

/// How a dump is marked.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mark {
    None,
    Incomplete,
    Complete,
}

/// Runs and kills captures in a capture kernel, cuts its power at many moments, and inspects the disks. Every disk or file
/// is written twice: remains of an older dump are the worst case, since they look like a dump.
pub fn validate(kernel: &str, pagehaul: &Path) -> Result<Counts> {
    let crash = crash(&Config {
        kernel: kernel.into(),
        runs: runs(),
        write_rate: Some(WRITE_RATE),
        dump_disk_mib: DISK_MIB,
        record: true,
        ..Config::default()
    })?;
    let tools = Tools::get()?;
    let scratch = crash.directory().join("cuts");
    fs::create_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    let mut inspector =
        Inspector { pagehaul, scratch: &scratch, counts: Counts::default(), to_read: Vec::new(), ordered: 0 };
    let result = inspector.inspect_all(&crash, &tools);
    fs::remove_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    result?;
    let counts = inspector.counts;
    println!(
        "{} complete, {} marked incomplete, {} no dump; all marks are correct",
        counts.complete, counts.incomplete, counts.none
    );
    Ok(counts)
}

fn runs() -> Vec<Run> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let run = |name: &str, line: &str, time_limit| Run {
        name: name.into(),
        arguments: words(line),
        time_limit,
        ..Run::default()
    };
    let mut runs = vec![
        run("raw", "capture --force -q -d 31 -c lzo /proc/vmcore {disk}", 300),
        run("raw-again", "capture --force -q -d 31 -c zstd:3 /proc/vmcore {disk}", 300),
        run("file", "capture -q -d 31 -c zstd:3 /proc/vmcore {out}", 300),
        run("file-again", "capture --force -q -d 31 -c lzo /proc/vmcore /out/file.dump", 300),
        run("limited", "capture -q -d 0 -c none --size-limit 16M /proc/vmcore {out}", 300),
    ];
    for seconds in KILLS {
        runs.push(run(&format!("killed-{seconds}"), "capture -q -d 16 -c none /proc/vmcore {out}", seconds));
    }
    runs
}

/// Inspects what cuts and kills leave.
struct Inspector<'a> {
    pagehaul: &'a Path,
    scratch: &'a Path,
    counts: Counts,
    /// Dumps to read page by page: all different complete ones, and some incomplete ones.
    to_read: Vec<(Mark, PathBuf)>,
    /// Number of incomplete dumps without lost writes.
    ordered: usize,
}

impl Inspector<'_> {
    fn inspect_all(&mut self, crash: &Crash, tools: &Tools) -> Result<()> {
        for dump in crash.dumps() {
            let report = &dump.report;
            let (ended, mark) = (report.exit_code, self.mark(&dump.path)?);
            let fits = match report.name.as_str() {
                name if name.starts_with("killed") => report.signal.is_some() && mark != Mark::Complete,
                "limited" => ended == Some(3) && mark == Mark::Incomplete,
                _ => ended == Some(0),
            };
            ensure!(fits, "{} ended with {ended:?}, and left {mark:?}: {}", report.name, dump.stderr);
            self.count(mark);
            if mark == Mark::Incomplete {
                let kept = self.scratch.join(&report.name);
                fs::copy(&dump.path, &kept).with_context(|| kept.display().to_string())?;
                self.to_read.push((mark, kept));
            }
        }
        let image = self.scratch.join("image");
        let disk = |serial: &str| crash.directory().join(format!("{serial}.disk"));
        let mut cuts = Cuts::open(&disk(plan::disk::DUMP), self.scratch)?;
        while let Some(cut) = cuts.next(&image)? {
            self.inspect(&image, &format!("raw-{cut}"), cut.ordered())?;
        }
        let mut cuts = Cuts::open(&disk(plan::disk::OUT), self.scratch)?;
        let taken = self.scratch.join("taken");
        while let Some(cut) = cuts.next(&image)? {
            disk::recover(tools, &image)?;
            for name in ["file", "limited"] {
                if disk::extract_file(tools, &image, &format!("{name}.dump"), &taken)? {
                    self.inspect(&taken, &format!("{name}-{cut}"), cut.ordered())?;
                }
            }
        }
        self.read(&crash.vmcore())
    }

    fn count(&mut self, mark: Mark) {
        match mark {
            Mark::None => self.counts.none += 1,
            Mark::Incomplete => self.counts.incomplete += 1,
            Mark::Complete => self.counts.complete += 1,
        }
    }

    /// Inspects the dump that one cut left.
    fn inspect(&mut self, image: &Path, name: &str, ordered: bool) -> Result<()> {
        let mark = self.mark(image)?;
        self.count(mark);
        let wanted = match mark {
            Mark::None => false,
            Mark::Incomplete => {
                self.ordered += usize::from(ordered);
                ordered && self.ordered.is_multiple_of(READ_EVERY)
            }
            Mark::Complete => {
                let complete = self.to_read.iter().filter(|(mark, _)| *mark == Mark::Complete);
                let mut known = false;
                for (_, path) in complete {
                    known |= same(path, image)?;
                }
                !known
            }
        };
        if wanted {
            let kept = self.scratch.join(name);
            let copied = Command::new("cp").arg("--sparse=always").args([image, &kept]).status();
            ensure!(copied.context("running cp")?.success(), "{} could not be copied", image.display());
            self.to_read.push((mark, kept));
        }
        Ok(())
    }

    /// Returns how pagehaul reports a file.
    fn mark(&self, image: &Path) -> Result<Mark> {
        let mut command = Command::new(self.pagehaul);
        let output = command.args(["info", "--json"]).arg(image).output().context("running pagehaul")?;
        let Ok(info) = serde_json::from_slice::<Value>(&output.stdout) else { return Ok(Mark::None) };
        let complete =
            info.get("complete").and_then(Value::as_bool).context("`pagehaul info` reports `complete`")?;
        Ok(if complete { Mark::Complete } else { Mark::Incomplete })
    }

    /// Reads all pages of the dumps with libkdumpfile, and of complete ones also with pagehaul.
    fn read(&self, vmcore: &Path) -> Result<()> {
        for (_, path) in self.to_read.iter().filter(|(mark, _)| *mark == Mark::Complete) {
            let again = path.with_extension("again");
            let mut command = Command::new(self.pagehaul);
            command
                .args(["capture", "--force", "--json", "-q", "-d", "0", "-c", "none"])
                .args([path, &again]);
            let output = command.output().context("running pagehaul")?;
            let report: Value = serde_json::from_slice(&output.stdout).with_context(|| {
                format!("reading all of {}: {}", path.display(), String::from_utf8_lossy(&output.stderr))
            })?;
            fs::remove_file(&again).with_context(|| again.display().to_string())?;
            let lost = &report["unreadable_pages"];
            ensure!(*lost == 0, "{} is marked complete, but {lost} pages cannot be read", path.display());
        }
        let mut command = oracle::script("power_cuts.py")?;
        command.arg(vmcore);
        command.args(self.to_read.iter().map(|(_, path)| path));
        if !command.status().context("running power_cuts.py")?.success() {
            bail!("a dump has wrong or missing pages: see above");
        }
        Ok(())
    }
}

/// Returns whether two files have the same content.
fn same(one: &Path, other: &Path) -> Result<bool> {
    let status = Command::new("cmp").arg("--silent").args([one, other]).status().context("running cmp")?;
    Ok(status.success())
}
