//! Validates dumps of real crashes against the raw vmcore, the kernel's debug symbols, drgn, crash and makedumpfile:
//! `oracle/validate.py`.

pub mod process;
pub mod triage;

use crate::{Config, Crash, build, crash, kernels, oracle};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Crashes that exercise other memory layouts: kernel, CPU model, additions to the kernel's command line.
const VARIANTS: [(&str, &str, &str); 3] = [
    ("6.1", "max", ""),
    ("6.1", "Haswell-noTSX", "hugetlb_free_vmemmap=on"),
    ("6.12", "Haswell-noTSX", "hugetlb_free_vmemmap=on"),
];
/// Arguments of the captures made in the capture kernel.
const CAPTURES: [&str; 2] = ["-d 31 -c zstd", "-d 16 -c lzo -f flattened"];

/// Validates `pagehaul` on one kernel, or on all lab kernels and variants (`all`). With `command_lines`, only compares it
/// with makedumpfile, called with the same command lines.
pub fn validate(kernel: &str, pagehaul: &Path, command_lines: bool) -> Result<()> {
    let mut failed = Vec::new();
    for (series, cpu, append) in crashes(kernel) {
        let name = [series, cpu, append].join(" ").trim_end().to_owned();
        println!("== {name}");
        let config = Config {
            kernel: series.into(),
            cpu: cpu.into(),
            append: append.into(),
            captures: if command_lines { Vec::new() } else { captures() },
            ..Config::default()
        };
        if let Err(why) = validate_one(&config, pagehaul, command_lines) {
            println!("FAIL {name}: {why:#}");
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("validation failed: {}", failed.join(", "));
    }
    Ok(())
}

fn captures() -> Vec<Vec<String>> {
    CAPTURES.iter().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

fn crashes(kernel: &str) -> Vec<(&str, &str, &str)> {
    if kernel != "all" {
        return vec![(kernel, "Haswell-noTSX", "")];
    }
    let plain = kernels::SERIES.iter().map(|series| (series.name, "Haswell-noTSX", ""));
    plain.chain(VARIANTS).collect()
}

fn validate_one(config: &Config, pagehaul: &Path, command_lines: bool) -> Result<()> {
    let crash = crash(config)?;
    let scratch = crate::cache::directory()?.join(format!("validate-{}", std::process::id()));
    crate::cache::make(&scratch)?;
    compare_with_capture_kernel(&crash, pagehaul, &scratch)?;
    let mut command = oracle::script("validate.py")?;
    command.args([crash.vmcore(), crash.vmlinux()?, crash.directory().join("manifest.json")]);
    command.args([pagehaul, &scratch]).arg("--makedumpfile").arg(oracle::makedumpfile()?);
    for (suite, path) in oracle::older_makedumpfiles()? {
        command.arg("--older").arg(format!("Debian {suite}={}", path.display()));
    }
    if command_lines {
        command.arg("--only-command-lines");
    }
    if let Some(path) = oracle::crash_for(&config.kernel)? {
        command.arg("--crash").arg(path);
    }
    if config.kernel == "6.12" {
        command.arg("--thorough");
    }
    let status = command.status().context("running validate.py")?;
    fs::remove_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    if !status.success() {
        bail!("see above");
    }
    Ok(())
}

/// Checks that dumps made in the capture kernel equal those of the saved vmcore, and that memory stayed within the bound.
fn compare_with_capture_kernel(crash: &Crash, pagehaul: &Path, scratch: &Path) -> Result<()> {
    for (dump, arguments) in crash.dumps().iter().zip(captures()) {
        let line = arguments.join(" ");
        if dump.report.exit_code != Some(0) {
            bail!("pagehaul capture {line} failed in the capture kernel: {}", dump.stderr);
        }
        // 32 MiB, and 8 MiB for each of two threads.
        if dump.report.peak_anonymous_kib > 48 << 10 {
            bail!(
                "pagehaul capture {line} used {} KiB of anonymous memory, more than 48 MiB",
                dump.report.peak_anonymous_kib
            );
        }
        let again: PathBuf = scratch.join("again");
        let mut command = Command::new(pagehaul);
        command.args(["capture", "--force", "-q"]).args(&arguments).args([&crash.vmcore(), &again]);
        let status = command.status().context("running pagehaul")?;
        if !status.success() || fs::read(&again)? != fs::read(&dump.path)? {
            bail!(
                "pagehaul capture {line} wrote different bytes in the capture kernel and from the saved vmcore"
            );
        }
        println!(
            "ok   capture {line} in the capture kernel: {} bytes, the same as from the saved vmcore, {} MiB anonymous memory",
            dump.report.dump_bytes,
            dump.report.peak_anonymous_kib >> 10
        );
    }
    Ok(())
}

/// Shows a dump made in the capture kernel, with pagehaul and drgn.
pub fn show(kernel: &str, pagehaul: Option<PathBuf>) -> Result<()> {
    let pagehaul = match pagehaul {
        Some(path) => path,
        None => build::pagehaul()?,
    };
    let captures = vec![captures().swap_remove(0)];
    let crash = crash(&Config {
        kernel: kernel.into(),
        captures,
        pagehaul: Some(pagehaul.clone()),
        ..Config::default()
    })?;
    let dump = crash.dumps().first().context("the capture left no dump")?;
    for line in dump.stdout.lines() {
        println!("{line}");
    }
    let status = Command::new(&pagehaul).arg("info").arg(&dump.path).status().context("running pagehaul")?;
    if !status.success() {
        bail!("pagehaul info failed");
    }
    let mut command = oracle::script("show.py")?;
    command.args([&dump.path, &crash.vmlinux()?]);
    if !command.status().context("running show.py")?.success() {
        bail!("drgn cannot open {}", dump.path.display());
    }
    Ok(())
}
