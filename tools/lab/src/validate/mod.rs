//! Validates dumps of real crashes against the raw vmcore, the kernel's debug symbols, drgn, crash and makedumpfile:
//! `oracle/validate.py`.

mod arm64;
mod guests;
pub mod process;
mod process_arm64;
mod process_guest;
mod process_report;
mod several;
pub mod triage;

pub use guests::{Guest, guests};

use crate::{Architecture, Config, Crash, build, crash, kernels, oracle};
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Arguments of the captures made in the capture kernel.
const CAPTURES: [&str; 2] = ["-d 31 -c zstd", "-d 16 -c lzo -f flattened"];
/// Memory of arm64 guests in MiB: translation makes larger ones slow.
const ARM64_MEMORY_MIB: u64 = 640;

/// Crashes each guest and validates `pagehaul` on it. With `command_lines`, only compares it with makedumpfile, called with
/// the same command lines.
pub fn validate(guests: &[Guest], pagehaul: &Path, command_lines: bool) -> Result<()> {
    match guests {
        [guest] => {
            println!("== {guest}");
            validate_guest(guest, pagehaul, command_lines)
        }
        _ => guests::validate_all(guests, pagehaul, command_lines),
    }
}

/// Validates cores and checkpoints of live processes in a guest; on arm64 also with the tests of cores, unless parts are named.
pub fn process_in_guest(kernel: &str, pagehaul: &Path, options: &process::Options) -> Result<()> {
    match kernels::series(kernel)?.architecture {
        Architecture::X86_64 => process_guest::validate(kernel, pagehaul, options),
        Architecture::Arm64 | Architecture::Riscv64 => {
            if options.parts.is_empty() {
                process_arm64::validate(kernel, pagehaul)?;
            }
            process_guest::validate(kernel, pagehaul, options)
        }
    }
}

fn validate_guest(guest: &Guest, pagehaul: &Path, command_lines: bool) -> Result<()> {
    let architecture = kernels::series(&guest.kernel)?.architecture;
    let config = Config {
        kernel: guest.kernel.clone(),
        cpu: guest.cpu.clone(),
        append: guest.append.clone(),
        captures: if command_lines || !architecture.runs_pagehaul() { Vec::new() } else { captures() },
        ..Config::default()
    };
    match architecture {
        Architecture::X86_64 => {
            crash(&config).and_then(|crash| validate_one(&crash, pagehaul, command_lines))
        }
        Architecture::Arm64 => arm64::validate(Config { memory_mib: ARM64_MEMORY_MIB, ..config }, pagehaul),
        Architecture::Riscv64 => crash(&config).and_then(|crash| validate_one(&crash, pagehaul, false)),
    }
}

fn captures() -> Vec<Vec<String>> {
    CAPTURES.iter().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
}

fn validate_one(crash: &Crash, pagehaul: &Path, command_lines: bool) -> Result<()> {
    let scratch = Scratch::new()?;
    compare_with_capture_kernel(crash, pagehaul, &scratch.0)?;
    let mut command = oracle::script("validate.py")?;
    command.args([crash.vmcore(), crash.vmlinux()?, crash.directory().join("manifest.json")]);
    command.args([pagehaul, &scratch.0]);
    let series = crash.kernel().series.as_str();
    match crash.kernel().architecture {
        Architecture::X86_64 => {
            command.arg("--makedumpfile").arg(oracle::makedumpfile()?);
            for (suite, path) in oracle::older_makedumpfiles()? {
                command.arg("--older").arg(format!("Debian {suite}={}", path.display()));
            }
        }
        Architecture::Arm64 => arm64::add_makedumpfile(series, &mut command)?,
        Architecture::Riscv64 => {
            println!("     makedumpfile is not compared: Debian has none that runs here")
        }
    }
    if command_lines {
        command.arg("--only-command-lines");
    }
    if let Some(path) = oracle::crash_for(series)? {
        command.arg("--crash").arg(path);
    }
    if series == "6.12" {
        command.arg("--thorough");
    }
    if !command.status().context("running validate.py")?.success() {
        bail!("see above");
    }
    Ok(())
}

/// A directory in the cache that is removed when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Result<Scratch> {
        let path = crate::cache::directory()?.join(format!("validate-{}", std::process::id()));
        crate::cache::make(&path)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
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
        if !status.success() {
            bail!("pagehaul capture {line} failed on the saved vmcore");
        }
        let same = fs::read(&again)? == fs::read(&dump.path)?;
        if !same && !arm64::same_but_for_device_writes(crash, &again, &dump.path)? {
            bail!(
                "pagehaul capture {line} wrote different bytes in the capture kernel and from the saved vmcore"
            );
        }
        println!(
            "ok   capture {line} in the capture kernel: {} bytes, the same {} as from the saved vmcore, {} MiB anonymous memory",
            dump.report.dump_bytes,
            if same { "bytes" } else { "pages but for those" },
            dump.report.peak_anonymous_kib >> 10
        );
    }
    Ok(())
}

/// Shows a dump made in the capture kernel: as pagehaul and drgn describe it, why the kernel crashed, and what to try next.
pub fn show(kernel: &str, pagehaul: Option<PathBuf>) -> Result<()> {
    let pagehaul = match pagehaul {
        Some(path) => path,
        None => build::pagehaul(Architecture::X86_64)?,
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
    let page = dump.path.with_extension("html");
    // A page of an earlier run would be refused.
    let _ = fs::remove_file(&page);
    run(&pagehaul, &["info".as_ref(), dump.path.as_os_str()])?;
    println!("\n== drgn, with debug symbols");
    let mut command = oracle::script("show.py")?;
    command.args([&dump.path, &crash.vmlinux()?]);
    if !command.status().context("running show.py")?.success() {
        bail!("drgn cannot open {}", dump.path.display());
    }
    println!("\n== pagehaul triage, from the dump alone");
    run(&pagehaul, &["triage".as_ref(), dump.path.as_os_str()])?;
    run(&pagehaul, &["triage".as_ref(), "--html".as_ref(), page.as_os_str(), dump.path.as_os_str()])?;
    println!("\n== next");
    println!("the same report as a web page: {}", page.display());
    for arguments in ["pages", "dmesg", "triage --section tasks"] {
        let line = format!("{} {arguments} {}", quoted(&pagehaul.canonicalize()?), quoted(&dump.path));
        // It is printed only if it works as printed.
        let ended =
            Command::new("sh").args(["-c", &line]).stdout(Stdio::null()).status().context("running sh")?;
        if !ended.success() {
            bail!("{line} failed");
        }
        println!("  {line}");
    }
    Ok(())
}

/// Quotes a path for a shell, if it has to be.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "/._+-".contains(c));
    if is_plain { path } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

/// Runs pagehaul, which prints to this process's standard output.
fn run(pagehaul: &Path, arguments: &[&OsStr]) -> Result<()> {
    let status = Command::new(pagehaul).args(arguments).status().context("running pagehaul")?;
    if !status.success() {
        bail!("pagehaul {} failed", arguments.join(" ".as_ref()).display());
    }
    Ok(())
}
