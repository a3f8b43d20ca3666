//! arm64 guests: what [`validate_one`](super::validate_one) checks, and both architectures' dumps on the other one's machine.

use super::{Scratch, validate_one};
use crate::cache::Key;
use crate::{Config, Crash, crash, oracle};
use anyhow::{Context, Result, bail};
use lab_guest::plan::Run;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output};

/// The only series whose addresses makedumpfile knows: 1.7.8 refuses kernels that are configured for 52 bits.
const MAKEDUMPFILE_SERIES: &str = "6.1-arm64";

/// Directory of the x86_64 dump on the guest's disk for results.
const DUMPS: &str = "dumps";
/// Commands on a dump that must write and print the same in the guest and on the host. `{in}` stands for the dump, `{out}` for
/// the output, `{uts}` for the virtual address of the kernel's release and version.
const COMMANDS: [(&str, &str); 5] = [
    ("info", "info --json {in}"),
    ("dmesg", "dmesg {in}"),
    ("verify", "verify {in}"),
    ("read", "read --virt {uts} --len 390 {in}"),
    ("convert", "convert -q -c lzo {in} {out}"),
];
/// Commands that only the complete binary has.
const HOST_COMMANDS: [(&str, &str); 1] = [("pages", "pages {in}")];

/// Validates `pagehaul` on the crash of an arm64 guest.
pub(super) fn validate(mut config: Config, pagehaul: &Path) -> Result<()> {
    let scratch = Scratch::new()?;
    // A dump of an x86_64 machine, for the arm64 binary in the guest.
    let other = crash(&Config::default())?;
    let dump = scratch.0.join("x86_64.dump");
    let arguments = ["capture", "-q", "--force", "-d", "31"].map(str::to_owned);
    run(pagehaul, &[arguments.as_slice(), &[path(&other.vmcore()), path(&dump)]].concat())?;
    // The file's name has its hash, so that the crash's key depends on it.
    let name = format!("{}.dump", Key::default().with_file(&dump)?.short());
    let directory = scratch.0.join(DUMPS);
    crate::cache::make(&directory)?;
    fs::rename(&dump, directory.join(&name)).context("renaming a dump")?;
    let uts = uts_address(&other.vmcore())?;
    let in_guest = format!("/out/{DUMPS}/{name}");
    let guest_run = |(step, line): (&str, &str)| Run {
        name: step.into(),
        arguments: words(line, &in_guest, "{out}", &uts),
        time_limit: config.time_limit,
        ..Run::default()
    };
    config.runs = COMMANDS.map(guest_run).to_vec();
    config.tools = vec![(directory.clone(), DUMPS)];
    let crash = crash(&config)?;
    compare_runs(&crash, pagehaul, &directory.join(&name), &in_guest, &uts)?;
    read_on_host(&crash, pagehaul, &scratch.0)?;
    drop(scratch);
    validate_one(&crash, pagehaul, false)
}

/// Has `validate.py` compare with makedumpfile, on kernels that it supports and where an emulator can run it.
pub(super) fn add_makedumpfile(series: &str, command: &mut Command) -> Result<()> {
    if series != MAKEDUMPFILE_SERIES {
        println!(
            "     makedumpfile is not compared: it refuses kernels that are configured for addresses of 52 bits"
        );
        return Ok(());
    }
    match oracle::makedumpfile_for_arm64()? {
        Some(path) => drop(command.arg("--peer").arg(path)),
        None => {
            println!("     makedumpfile is not compared: `scripts/setup.sh emulator` installs what it needs")
        }
    }
    Ok(())
}

/// Checks that two dumps of a crash hold the same pages with the same contents, except for LPI pending tables: GICv3 writes to them
/// while the capture kernel reads them (`oracle/same_pages.py`).
pub(super) fn same_but_for_device_writes(crash: &Crash, first: &Path, second: &Path) -> Result<bool> {
    let console = fs::read_to_string(crash.console()).context("reading the console log")?;
    let tables: Vec<&str> = console
        .lines()
        .filter_map(|line| line.split_once("reserved LPI pending table @").map(|(_, address)| address.trim()))
        .collect();
    if tables.is_empty() {
        return Ok(false);
    }
    let mut command = oracle::script("same_pages.py")?;
    command.args([&crash.vmcore(), first, second]).args(tables);
    Ok(command.status().context("running same_pages.py")?.success())
}

fn words(line: &str, dump: &str, out: &str, uts: &str) -> Vec<String> {
    let fill = |word: &str| word.replace("{in}", dump).replace("{out}", out).replace("{uts}", uts);
    line.split_whitespace().map(fill).collect()
}

/// Returns the virtual address of `init_uts_ns` in a vmcore, by its VMCOREINFO.
fn uts_address(vmcore: &Path) -> Result<String> {
    let mut start = vec![0; 1 << 20];
    File::open(vmcore).and_then(|mut file| file.read_exact(&mut start)).with_context(|| path(vmcore))?;
    let text = String::from_utf8_lossy(&start);
    let (_, rest) = text.split_once("SYMBOL(init_uts_ns)=").context("VMCOREINFO has no init_uts_ns")?;
    Ok(format!("0x{}", rest.lines().next().unwrap_or_default()))
}

/// Checks that commands on the x86_64 dump did in the guest what they do here.
fn compare_runs(crash: &Crash, pagehaul: &Path, dump: &Path, in_guest: &str, uts: &str) -> Result<()> {
    let out = dump.with_extension("out");
    for (name, line) in COMMANDS {
        let found = crash.dumps().iter().find(|run| run.report.name == name).context("a run in the guest")?;
        if found.report.exit_code != Some(0) {
            bail!("pagehaul {name} of an x86_64 dump failed in the guest: {}", found.stderr);
        }
        let here = run(pagehaul, &words(line, &path(dump), &path(&out), uts))?;
        // The name of the file is the only thing that may differ.
        let plain = |text: &str| text.replace(&path(dump), "DUMP").replace(in_guest, "DUMP");
        if plain(&found.stdout) != plain(&String::from_utf8_lossy(&here.stdout)) {
            bail!("pagehaul {name} of an x86_64 dump prints something else in the guest than here");
        }
        if line.contains("{out}") {
            let same = fs::read(&found.path).context("the guest's output")? == fs::read(&out)?;
            fs::remove_file(&out).context("removing an output")?;
            if !same {
                bail!("pagehaul {name} of an x86_64 dump writes other bytes in the guest than here");
            }
        }
        println!(
            "ok   {name} of an x86_64 dump in the guest: the same as here, {:.1} s",
            found.report.seconds
        );
    }
    Ok(())
}

/// Checks that every command reads the dump made in the guest.
fn read_on_host(crash: &Crash, pagehaul: &Path, scratch: &Path) -> Result<()> {
    let dump = crash.dumps().first().context("the guest's capture left no dump")?;
    let out = scratch.join("out");
    let uts = uts_address(&crash.vmcore())?;
    for (name, line) in COMMANDS.iter().chain(&HOST_COMMANDS) {
        let done = run(pagehaul, &words(line, &path(&dump.path), &path(&out), &uts))
            .with_context(|| format!("{name} of the dump made in the guest"))?;
        let text = String::from_utf8_lossy(&done.stdout);
        let right = match *name {
            // Sixteen characters a line.
            "read" => text.contains("Linux...."),
            "dmesg" => text.contains("sysrq triggered crash"),
            "convert" => out.exists(),
            _ => !text.is_empty(),
        };
        if !right {
            bail!("pagehaul {name} of the dump made in the guest prints: {text}");
        }
    }
    println!("ok   info, dmesg, verify, read, convert and pages read the dump made in the guest");
    read_mounted(pagehaul, &dump.path, &scratch.join("mnt"))
}

/// Checks that the dump made in the guest can be mounted.
fn read_mounted(pagehaul: &Path, dump: &Path, directory: &Path) -> Result<()> {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        println!("     mount is not validated: it needs /dev/fuse and root");
        return Ok(());
    }
    let words = |words: &[&str], last: &Path| -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).chain([path(last)]).collect()
    };
    crate::cache::make(directory)?;
    run(pagehaul, &words(&["mount", "--background", &path(dump)], directory))?;
    let mounted = run(pagehaul, &words(&["dmesg"], &directory.join("vmcore")));
    let status = Command::new("umount").arg(directory).status().context("running umount")?;
    if !status.success() || mounted?.stdout != run(pagehaul, &words(&["dmesg"], dump))?.stdout {
        bail!("the dump made in the guest has another log when mounted");
    }
    println!("ok   mount shows the dump made in the guest, with the same log");
    Ok(())
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

/// Runs pagehaul here.
fn run(pagehaul: &Path, arguments: &[String]) -> Result<Output> {
    let output = Command::new(pagehaul).args(arguments).output().context("running pagehaul")?;
    if !output.status.success() {
        bail!("pagehaul {} failed: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(output)
}
