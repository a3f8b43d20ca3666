//! The programs that dumps are validated with: drgn with libkdumpfile, crash, makedumpfile.

use crate::Architecture;
use crate::apt::Apt;
use crate::cache::{self, Key};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const REQUIREMENTS: &str = include_str!("../oracle/requirements.txt");
/// The suite whose makedumpfile supports every kernel of the lab.
const MAKEDUMPFILE_SUITE: &str = "sid";
/// Suites whose makedumpfile is compared besides it: those that users have.
const OLDER_SUITES: [&str; 2] = ["bookworm", "trixie"];

/// Runs programs for arm64.
const EMULATOR: &str = "qemu-aarch64-static";

/// Returns a command that runs a script of `tools/lab/oracle` with a Python that has drgn.
pub fn script(name: &str) -> Result<Command> {
    let mut command = Command::new(python()?);
    command.arg("-B").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("oracle").join(name));
    Ok(command)
}

/// Returns a Python that has drgn, installed into the cache on first use.
pub fn python() -> Result<PathBuf> {
    let directory = cache::directory()?.join("python").join(Key::default().with(REQUIREMENTS).short());
    cache::once(&directory, |draft| {
        run(Command::new("python3").args(["-m", "venv"]).arg(draft), "making a Python environment")?;
        let requirements = draft.join("requirements.txt");
        fs::write(&requirements, REQUIREMENTS).with_context(|| requirements.display().to_string())?;
        let mut pip = Command::new(draft.join("bin/python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]).arg(&requirements);
        run(&mut pip, "installing drgn from PyPI")
    })?;
    Ok(directory.join("bin/python"))
}

/// Returns makedumpfile: from PATH, or Debian's newest with its libraries.
pub fn makedumpfile() -> Result<PathBuf> {
    on_path("makedumpfile").map_or_else(|| makedumpfile_of(MAKEDUMPFILE_SUITE, Architecture::X86_64), Ok)
}

/// Returns Debian's newest makedumpfile for arm64, which an emulator runs; `None` without that.
pub fn makedumpfile_for_arm64() -> Result<Option<PathBuf>> {
    on_path(EMULATOR).map(|_| makedumpfile_of(MAKEDUMPFILE_SUITE, Architecture::Arm64)).transpose()
}

/// Returns the makedumpfile of each older suite, with the suite's name.
pub fn older_makedumpfiles() -> Result<Vec<(&'static str, PathBuf)>> {
    OLDER_SUITES.into_iter().map(|suite| Ok((suite, makedumpfile_of(suite, Architecture::X86_64)?))).collect()
}

/// Returns the makedumpfile of a Debian suite, with its libraries.
fn makedumpfile_of(suite: &str, architecture: Architecture) -> Result<PathBuf> {
    let (triplet, loader) = (architecture.triplet(), architecture.loader());
    let (suffix, emulator) = match architecture {
        Architecture::X86_64 => ("", ""),
        Architecture::Arm64 => ("-arm64", EMULATOR),
        Architecture::Riscv64 => bail!("the lab has no makedumpfile for riscv64"),
    };
    let directory = cache::directory()?.join("tools").join(format!("makedumpfile-{suite}{suffix}"));
    cache::once(&directory, |draft| {
        Apt::with_packages_for(architecture, &[suite], false)?.unpack_closure(&["makedumpfile"], draft)?;
        // Its libraries are newer than the machine's, so it runs on the loader that comes with them. Its threads end by libgcc_s, which
        // the C library then does not always find.
        let script = format!(
            "#!/bin/sh\n\
            here=$(dirname \"$(readlink -f \"$0\")\")\n\
            libraries=$here/usr/lib/{triplet}:$here/lib/{triplet}\n\
            for loader in \"$here\"/lib64/{loader} \"$here\"/usr/lib64/{loader} \"$here\"/usr/lib/{triplet}/{loader}; do\n\
            [ -e \"$loader\" ] && break\ndone\n\
            for program in \"$here\"/usr/sbin/makedumpfile \"$here\"/usr/bin/makedumpfile; do\n\
            [ -e \"$program\" ] && break\ndone\n\
            exec {emulator} \"$loader\" --library-path \"$libraries\" --preload libgcc_s.so.1 \"$program\" \"$@\"\n"
        );
        let path = draft.join("makedumpfile");
        fs::write(&path, script).with_context(|| path.display().to_string())?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .with_context(|| path.display().to_string())
    })
    .context("fetching makedumpfile")?;
    Ok(directory.join("makedumpfile"))
}

/// Returns crash for kernels it supports: crash 8.0.2 of Debian 12 reads kernels up to 6.1.
pub fn crash_for(kernel: &str) -> Result<Option<PathBuf>> {
    if kernel != "6.1" {
        return Ok(None);
    }
    match on_path("crash") {
        Some(path) => Ok(Some(path)),
        None => bail!("crash is not on PATH: `scripts/setup.sh test` installs it"),
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|directory| directory.join(program)).find(|path| path.is_file())
}

/// Runs a command, and shows its output only if it fails.
fn run(command: &mut Command, what: &str) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| what.to_owned())?;
    if !output.status.success() {
        bail!("{what}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
