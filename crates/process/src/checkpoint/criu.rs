//! Finds and runs CRIU, and reads its log.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::precopy::seccomp::Watched;
use super::wire::varint;
use crate::ProcessError;
use crate::signal_mask::{Blocked, ENDING};

/// The oldest version whose image streamer protocol and images are known to work on today's kernels.
const OLDEST: u32 = 4;

/// Arguments for rounds of incremental images.
const INCREMENTAL: [&str; 3] = ["--track-mem", "--prev-images-dir", "--auto-dedup"];
/// Arguments that send images elsewhere. `--page-server` together with `--stream` makes images that cannot be restored.
const ELSEWHERE: [&str; 6] =
    ["--page-server", "--ps-socket", "--lazy-pages", "-D", "--images-dir", "--no-stream"];

/// A CRIU that can be run.
#[derive(Debug, Clone)]
pub(crate) struct Criu {
    pub(crate) program: PathBuf,
    pub(crate) version: String,
}

impl Criu {
    /// Finds `criu` on PATH, or takes the one given, and makes sure of its version.
    pub(crate) fn find(given: Option<&Path>) -> Result<Self, ProcessError> {
        let program = given.map_or_else(|| PathBuf::from("criu"), Path::to_owned);
        let output = Command::new(&program).arg("--version").stdin(Stdio::null()).output();
        let output = output.map_err(|error| {
            ProcessError::Refused(match error.kind() {
                io::ErrorKind::NotFound => format!(
                    "{} is not there: checkpoints need CRIU {OLDEST} or newer (Debian 13 has 4.1) on PATH",
                    program.display()
                ),
                _ => format!("cannot run {}: {error}", program.display()),
            })
        })?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version =
            text.lines().find_map(|line| line.strip_prefix("Version:")).unwrap_or("").trim().to_owned();
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        if major.is_none_or(|major| major < OLDEST) {
            return Err(ProcessError::Refused(format!(
                "{} is CRIU {}, which is too old: checkpoints need version {OLDEST} or newer",
                program.display(),
                if version.is_empty() { "of no known version" } else { &version }
            )));
        }
        Ok(Self { program, version })
    }

    /// Refuses arguments of users with which pages would go elsewhere, or not be all there.
    pub(crate) fn check_arguments(&self, arguments: &[String]) -> Result<(), ProcessError> {
        let has = |names: &[&str]| {
            let name = |argument: &String| argument.split('=').next().unwrap_or("").to_owned();
            arguments.iter().find(|argument| names.contains(&name(argument).as_str()))
        };
        if let Some(argument) = has(&INCREMENTAL) {
            return Err(ProcessError::Refused(if self.tracks_changes() {
                format!(
                    "no incremental rounds ({argument}): CRIU {}'s image streamer takes no parents of images; \
                     checkpoint without it",
                    self.version
                )
            } else {
                format!(
                    "no incremental rounds ({argument}): this kernel does not track which pages change \
                     (CONFIG_MEM_SOFT_DIRTY is not set); checkpoint without it"
                )
            }));
        }
        match has(&ELSEWHERE) {
            Some(argument) => Err(ProcessError::Refused(format!(
                "{argument} would keep images from pagehaul, and the checkpoint could not be restarted; leave it out"
            ))),
            None => Ok(()),
        }
    }

    /// Returns whether kernel and CRIU track which pages change.
    fn tracks_changes(&self) -> bool {
        let mut command = Command::new(&self.program);
        command.args(["check", "--feature", "mem_dirty_track"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    /// Starts one of its actions in a directory. `log` is a file in it. Its system calls can be `watched`.
    pub(crate) fn start(
        &self,
        action: &str,
        directory: &Path,
        log: &str,
        arguments: &[String],
        watched: Option<Watched>,
    ) -> Result<Child, ProcessError> {
        let failed = |source| ProcessError::Resource { action: "start CRIU", source };
        // While it saves processes, ending it would leave its code in them. It ends when its socket and pipes do. A
        // restart is not protected: what CRIU restores would inherit the mask until it has its own.
        let blocked = (action == "dump").then(|| Blocked::new(ENDING)).transpose().map_err(failed)?;
        let mut command = Command::new(&self.program);
        // SAFETY: `signal` may be called between fork and exec, and `install` as well. CRIU must not die of a pipe that was
        // closed, nor of the terminal's Ctrl-C: its parasite code is in the processes.
        unsafe {
            command.pre_exec(move || {
                if let Some(watched) = &watched {
                    watched.install();
                }
                match libc::signal(libc::SIGPIPE, libc::SIG_IGN) {
                    libc::SIG_ERR => Err(io::Error::last_os_error()),
                    _ => Ok(()),
                }
            })
        };
        let child = command
            .process_group(0)
            .arg(action)
            .arg("--stream")
            .arg("-D")
            .arg(directory)
            .args(["-o", log, "-v2"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed);
        drop(blocked);
        child
    }

    /// The error for a run that failed, with the first thing its log complains of.
    pub(crate) fn failed(&self, action: &str, directory: &Path, log: &str) -> ProcessError {
        let text = fs::read(directory.join(log)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        // Without CAP_SYS_RESOURCE it first reports that it cannot raise its limits, and goes on.
        let complaints = text.lines().filter_map(|line| line.split_once("Error ").map(|(_, rest)| rest));
        let complaint = complaints.into_iter().find(|complaint| !complaint.contains("rlimit: "));
        ProcessError::Refused(format!(
            "CRIU {} cannot {action} it: {}",
            self.version,
            complaint.unwrap_or("it does not say why")
        ))
    }
}

/// Microseconds that a dump kept the processes frozen, from CRIU's `stats-dump`: two magic numbers, a length, and a
/// message whose field 1 is a message whose field 2 is the time.
pub(crate) fn frozen_time(directory: &Path) -> Option<u64> {
    let bytes = fs::read(directory.join("stats-dump")).ok()?;
    let mut rest = field(bytes.get(12..)?, 1)?.1;
    loop {
        let (key, after) = varint(rest)?;
        let (value, after) = varint(after)?;
        match key >> 3 {
            2 => return Some(value),
            _ => rest = after,
        }
    }
}

/// The bytes of a length-delimited field at the start of a message.
fn field(bytes: &[u8], number: u64) -> Option<(u64, &[u8])> {
    let (key, rest) = varint(bytes)?;
    let (length, rest) = varint(rest)?;
    (key == number << 3 | 2).then_some((length, rest.get(..length as usize)?))
}
