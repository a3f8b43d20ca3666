//! Power cuts and kills: whatever is on the disk at any moment of a capture is a valid dump or says that it is not one.
//!
//! A power cut is what the disk holds at one moment, the guest's memory gone. So the machine is stopped for an instant,
//! its disk is copied, and it goes on: one capture gives as many cuts as wanted. The disk has no cache of its own; what a
//! real one loses of writes it was not yet told to flush is not simulated.

use crate::disk::Disk;
use crate::vm::Vm;
use crate::{Config, Crash, crash};
use anyhow::{Context, Result, bail, ensure};
use lab_guest::order::Run;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Cuts per capture.
const CUTS: usize = 12;
/// Seconds after which a capture is killed.
const KILLS: [u64; 3] = [1, 2, 4];
/// What the disk takes: slow enough for many cuts.
const WRITE_RATE: u64 = 8 << 20;
const DISK_MIB: u64 = 512;

/// Copies `disk` to `folder` as `cut-0` to `cut-N`, at moments that grow further apart.
pub(crate) fn cut(vm: &Vm, disk: &Disk, folder: &Path, cuts: usize) -> Result<()> {
    let taken = fs::read_dir(folder)?
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with("cut-"))
        .count();
    let mut qmp = vm.qmp()?;
    for number in 0..cuts {
        // Moments of a guest's time cannot be waited for otherwise.
        std::thread::sleep(Duration::from_millis(60 + 150 * number as u64));
        // A machine that is done has gone, and its disk does not change any more.
        if qmp.execute("stop", &json!({})).is_err() {
            break;
        }
        let copy = folder.join(format!("cut-{:02}", taken + number));
        let copied = Command::new("cp").arg("--sparse=always").args([&disk.path, &copy]).status();
        qmp.execute("cont", &json!({}))?;
        ensure!(
            copied.context("running cp")?.success(),
            "the disk could not be copied to {}",
            copy.display()
        );
    }
    Ok(())
}

/// What cuts and kills left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Complete dumps, every page of which was read.
    pub complete: usize,
    /// Dumps that say that they are not complete.
    pub incomplete: usize,
    /// No dump at all.
    pub none: usize,
}

impl Seen {
    fn add(&mut self, name: &str, told: Option<Told>) {
        let (counter, what) = match told {
            None => (&mut self.none, "no dump"),
            Some(Told::Incomplete) => (&mut self.incomplete, "a dump marked incomplete"),
            Some(Told::Complete) => (&mut self.complete, "a complete dump, every page of it readable"),
        };
        *counter += 1;
        println!("{name:10} {what}");
    }
}

/// What a dump says of itself.
#[derive(Clone, Copy, PartialEq)]
enum Told {
    Incomplete,
    Complete,
}

/// Cuts the power of a capture kernel at many moments, kills captures in it, and looks at what is left. The raw disk holds
/// an older dump when a capture starts: the worst case, since its remains look like a dump.
pub fn prove(kernel: &str, pagehaul: &Path) -> Result<Seen> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let run = |name: &str, line: &str, time_limit| Run {
        name: name.into(),
        arguments: words(line),
        time_limit,
        ..Run::default()
    };
    let mut runs = vec![run("first", "capture --force -q -d 31 -c lzo /proc/vmcore {disk}", 300)];
    runs.push(run("second", "capture --force -q -d 31 -c zstd:3 /proc/vmcore {disk}", 300));
    for seconds in KILLS {
        runs.push(run(&format!("killed-{seconds}"), "capture -q -d 16 -c none /proc/vmcore {out}", seconds));
    }
    let crash = crash(&Config {
        kernel: kernel.into(),
        runs,
        write_rate: Some(WRITE_RATE),
        dump_disk_mib: DISK_MIB,
        save_vmcore: false,
        cuts: CUTS,
        ..Config::default()
    })?;
    let mut seen = Seen::default();
    for image in images(&crash)? {
        seen.add(&name_of(&image), describe(pagehaul, &image)?);
    }
    for dump in crash.dumps().iter().filter(|dump| dump.report.name.starts_with("killed")) {
        let told = describe(pagehaul, &dump.path)?;
        let died = dump.report.signal.is_some();
        ensure!(!died || told != Some(Told::Complete), "{} died and looks complete", dump.report.name);
        seen.add(&dump.report.name, told);
    }
    println!(
        "{} complete, {} marked incomplete, {} no dump; none says what it isn't",
        seen.complete, seen.incomplete, seen.none
    );
    Ok(seen)
}

fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The disk as each cut found it, in order.
fn images(crash: &Crash) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(crash.folder()).with_context(|| crash.folder().display().to_string())?;
    let mut images: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    images.retain(|path| name_of(path).starts_with("cut-"));
    images.sort();
    Ok(images)
}

/// What pagehaul says of a file; none where it is no dump. A dump that calls itself complete is read to its last page.
fn describe(pagehaul: &Path, image: &Path) -> Result<Option<Told>> {
    if !image.exists() {
        return Ok(None);
    }
    let output =
        Command::new(pagehaul).args(["info", "--json"]).arg(image).output().context("running pagehaul")?;
    let Ok(info) = serde_json::from_slice::<Value>(&output.stdout) else { return Ok(None) };
    if info.get("complete") != Some(&Value::Bool(true)) {
        return Ok(Some(Told::Incomplete));
    }
    let again = image.with_extension("again");
    let output = Command::new(pagehaul)
        .args(["capture", "--force", "--json", "-q", "-d", "0", "-c", "none"])
        .args([image, &again])
        .output()
        .context("running pagehaul")?;
    let report: Value = serde_json::from_slice(&output.stdout).with_context(|| {
        format!("reading all of {}: {}", image.display(), String::from_utf8_lossy(&output.stderr))
    })?;
    fs::remove_file(&again).with_context(|| again.display().to_string())?;
    if report.get("unreadable_pages") != Some(&Value::from(0)) {
        bail!(
            "{} says that it is complete, but {} of its pages cannot be read",
            image.display(),
            report["unreadable_pages"]
        );
    }
    Ok(Some(Told::Complete))
}
