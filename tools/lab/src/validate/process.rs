//! Validates cores and checkpoints of live processes: `oracle/validate_process.py`.

use crate::{Architecture, build, criu, oracle};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Which checks to run, and where.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Names of the parts to run. Empty: all but `large`.
    pub parts: Vec<String>,
    /// Restarts of each program.
    pub rounds: Option<u32>,
    /// Memory of the process in the part `large`, in MiB.
    pub mib: Option<u64>,
    /// Directory for outputs.
    pub scratch: Option<PathBuf>,
    /// File to append the passed checks to.
    pub record: Option<PathBuf>,
}

/// Measures pauses: the part `pause`.
pub(super) fn pause() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/pause.py")
}

/// Validates `pagehaul` on real programs. Runs the checks with sudo unless the caller is root.
pub fn validate(pagehaul: &Path, options: &Options) -> Result<()> {
    let subject = build::example("subject")?;
    let clocked = build::example("clocked")?;
    let script = oracle::script("validate_process.py")?;
    let criu = criu::criu(Architecture::X86_64)?;
    let mut command = as_root(script.get_program());
    command.args(script.get_args()).args([pagehaul, &subject]);
    command.arg("--clocked").arg(&clocked).arg("--pause").arg(pause());
    if works(&criu) {
        command.arg("--criu").arg(&criu);
    } else {
        eprintln!(
            "CRIU does not work on this kernel (see `{} check`): checkpoints are not validated",
            criu.display()
        );
    }
    if let Some(rounds) = options.rounds {
        command.args(["--rounds", &rounds.to_string()]);
    }
    if let Some(mib) = options.mib {
        command.args(["--mib", &mib.to_string()]);
    }
    for (option, path) in [("--scratch", &options.scratch), ("--record", &options.record)] {
        if let Some(path) = path {
            command.arg(option).arg(path);
        }
    }
    if !options.parts.is_empty() {
        command.arg("--only").args(&options.parts);
    }
    if !command.status().context("running validate_process.py")?.success() {
        bail!("validation failed: see above");
    }
    Ok(())
}

/// Returns a command that runs a program as root.
pub(crate) fn as_root(program: impl AsRef<std::ffi::OsStr>) -> Command {
    if rustix::process::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("sudo");
    command.arg(program);
    command
}

fn works(criu: &Path) -> bool {
    let status = as_root(criu).arg("check").stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
