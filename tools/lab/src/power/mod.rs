//! Power cuts and kills: whatever is on a disk at any moment of a capture is a valid dump or says that it is not one.
//!
//! QEMU records what the guest's disks are told, flushes included. That gives every state a power cut can leave, without
//! cutting one: what was written before the last flush is there, of the rest any part, down to single sectors.

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

/// Seconds after which a capture is killed.
const KILLS: [u64; 3] = [2, 6, 12];
/// What the disks take: slow enough for the kills to fall into captures.
const WRITE_RATE: u64 = 8 << 20;
const DISK_MIB: u64 = 96;
/// Of the incomplete dumps whose writes all arrived, every so many are read page by page.
const READ: usize = 4;

/// What cuts and kills left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Complete dumps, every page of which was read and is right.
    pub complete: usize,
    /// Dumps that say that they are not complete.
    pub incomplete: usize,
    /// No dump at all.
    pub none: usize,
}

/// What a dump says of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Told {
    Nothing,
    Incomplete,
    Complete,
}

/// Runs captures in a capture kernel, cuts its power at many moments, kills some, and looks at what is left. Every disk or
/// file is written twice: an older dump is the worst case, since its remains look like a dump.
pub fn validate(kernel: &str, pagehaul: &Path) -> Result<Seen> {
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
    let mut look =
        Look { pagehaul, scratch: &scratch, seen: Seen::default(), to_read: Vec::new(), ordered: 0 };
    let result = look.at_all(&crash, &tools);
    fs::remove_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    result?;
    let seen = look.seen;
    println!(
        "{} complete, {} marked incomplete, {} no dump; none says what it isn't",
        seen.complete, seen.incomplete, seen.none
    );
    Ok(seen)
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

/// Looks at what is left.
struct Look<'a> {
    pagehaul: &'a Path,
    scratch: &'a Path,
    seen: Seen,
    /// Dumps to be read page by page: every complete one that is like no other, and some of the incomplete.
    to_read: Vec<(Told, PathBuf)>,
    /// Incomplete dumps so far whose writes all arrived.
    ordered: usize,
}

impl Look<'_> {
    fn at_all(&mut self, crash: &Crash, tools: &Tools) -> Result<()> {
        for dump in crash.dumps() {
            let report = &dump.report;
            let (ended, told) = (report.exit_code, self.told(&dump.path)?);
            let fits = match report.name.as_str() {
                name if name.starts_with("killed") => report.signal.is_some() && told != Told::Complete,
                "limited" => ended == Some(3) && told == Told::Incomplete,
                _ => ended == Some(0),
            };
            ensure!(fits, "{} ended with {ended:?}, and left {told:?}: {}", report.name, dump.stderr);
            self.count(told);
            if told == Told::Incomplete {
                let kept = self.scratch.join(&report.name);
                fs::copy(&dump.path, &kept).with_context(|| kept.display().to_string())?;
                self.to_read.push((told, kept));
            }
        }
        let image = self.scratch.join("image");
        let disk = |serial: &str| crash.directory().join(format!("{serial}.disk"));
        let mut cuts = Cuts::open(&disk(plan::disk::DUMP), self.scratch)?;
        while let Some(cut) = cuts.next(&image)? {
            self.at(&image, &format!("raw-{cut}"), cut.ordered())?;
        }
        let mut cuts = Cuts::open(&disk(plan::disk::OUT), self.scratch)?;
        let taken = self.scratch.join("taken");
        while let Some(cut) = cuts.next(&image)? {
            disk::recover(tools, &image)?;
            for name in ["file", "limited"] {
                if disk::extract_file(tools, &image, &format!("{name}.dump"), &taken)? {
                    self.at(&taken, &format!("{name}-{cut}"), cut.ordered())?;
                }
            }
        }
        self.read(&crash.vmcore())
    }

    fn count(&mut self, told: Told) {
        match told {
            Told::Nothing => self.seen.none += 1,
            Told::Incomplete => self.seen.incomplete += 1,
            Told::Complete => self.seen.complete += 1,
        }
    }

    /// Looks at what one cut left.
    fn at(&mut self, image: &Path, name: &str, ordered: bool) -> Result<()> {
        let told = self.told(image)?;
        self.count(told);
        let wanted = match told {
            Told::Nothing => false,
            Told::Incomplete => {
                self.ordered += usize::from(ordered);
                ordered && self.ordered.is_multiple_of(READ)
            }
            Told::Complete => {
                let complete = self.to_read.iter().filter(|(told, _)| *told == Told::Complete);
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
            self.to_read.push((told, kept));
        }
        Ok(())
    }

    /// What pagehaul says of a file.
    fn told(&self, image: &Path) -> Result<Told> {
        let mut command = Command::new(self.pagehaul);
        let output = command.args(["info", "--json"]).arg(image).output().context("running pagehaul")?;
        let Ok(info) = serde_json::from_slice::<Value>(&output.stdout) else { return Ok(Told::Nothing) };
        let complete =
            info.get("complete").and_then(Value::as_bool).context("info says if it is complete")?;
        Ok(if complete { Told::Complete } else { Told::Incomplete })
    }

    /// Reads dumps to their last page, with libkdumpfile and, where they are complete, with pagehaul.
    fn read(&self, vmcore: &Path) -> Result<()> {
        for (_, path) in self.to_read.iter().filter(|(told, _)| *told == Told::Complete) {
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
            ensure!(*lost == 0, "{} calls itself complete; {lost} pages cannot be read", path.display());
        }
        let mut command = Command::new(oracle::python()?);
        command.env("PYTHONDONTWRITEBYTECODE", "1").arg(oracle::scripts().join("cuts.py")).arg(vmcore);
        command.args(self.to_read.iter().map(|(_, path)| path));
        if !command.status().context("running cuts.py")?.success() {
            bail!("a dump holds pages that are wrong, or lacks some: see above");
        }
        Ok(())
    }
}

/// Whether two files hold the same bytes.
fn same(one: &Path, other: &Path) -> Result<bool> {
    let status = Command::new("cmp").arg("--silent").args([one, other]).status().context("running cmp")?;
    Ok(status.success())
}
