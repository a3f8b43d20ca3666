//! Finds and runs CRIU, and reads its log.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use pagehaul_run::{ChildError, ChildOutput, Progress};

use super::precopy::seccomp::Watched;
use super::programs::last_line;
use super::protobuf::{Value, field, number_field};
use super::version::{self, OLDEST};
use crate::error::ProcessError;
use crate::oom;
use crate::signal_mask::{Blocked, ENDING};
use crate::urgent::Urgent;

/// Arguments for rounds of incremental images.
const INCREMENTAL: [&str; 3] = ["--track-mem", "--prev-images-dir", "--auto-dedup"];
/// Arguments that send images elsewhere. `--page-server` together with `--stream` makes images that cannot be restored.
const ELSEWHERE: [&str; 3] = ["--page-server", "--ps-socket", "--lazy-pages"];

/// How long it may take to answer what it can do.
const ANSWER: Duration = Duration::from_secs(30);

/// The file in its directory that gets what it says before it has a log.
const STANDARD_ERROR: &str = "stderr";
/// Complaints after which it goes on: without CAP_SYS_RESOURCE it cannot raise its limits, and it looks for programs that it
/// does not need.
const HARMLESS: [&str; 3] = ["rlimit: ", "tables-save", "tables-legacy-save"];

/// A complaint that counts more than earlier ones: it first finds out what the kernel can do, and can do without most.
const FATAL: &str = "when initializing kerndat";

/// How its images come and go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Images {
    /// By pipes.
    Streamed,
    /// As files in its directory.
    InDirectory,
}

/// A CRIU that can be run.
#[derive(Debug, Clone)]
pub(crate) struct Criu {
    pub(crate) program: PathBuf,
    pub(crate) version: String,
}

impl Criu {
    /// Finds `criu` on PATH, or takes the one given, and makes sure of its version.
    pub(crate) fn find(given: Option<&Path>, progress: &Progress) -> Result<Self, ProcessError> {
        let program = given.map_or_else(|| PathBuf::from("criu"), Path::to_owned);
        let version = version::of(&program, version::LIMIT, progress)
            .map_err(|why| ProcessError::Refused(why.sentence(&program)))?;
        let this = Self { program, version };
        if !this.is_at_least((OLDEST, 0)) {
            return Err(ProcessError::Refused(format!(
                "{} is CRIU {}, which is too old: checkpoints need version {OLDEST} or newer",
                this.program.display(),
                this.version
            )));
        }
        Ok(this)
    }

    /// Whether its version is at least this one.
    pub(crate) fn is_at_least(&self, version: (u32, u32)) -> bool {
        let mut numbers = self.version.split('.').map(|number| number.parse::<u32>().ok());
        let major = numbers.next().flatten();
        major.is_some_and(|major| (major, numbers.next().flatten().unwrap_or(0)) >= version)
    }

    /// Refuses arguments of users with which pages would go elsewhere, or not be all there.
    pub(crate) fn check_arguments(
        &self,
        arguments: &[String],
        progress: &Progress,
    ) -> Result<(), ProcessError> {
        let has = |names: &[&str]| {
            let name = |argument: &String| argument.split('=').next().unwrap_or("").to_owned();
            arguments.iter().find(|argument| names.contains(&name(argument).as_str()))
        };
        if let Some(argument) = has(&INCREMENTAL) {
            return Err(ProcessError::Refused(if self.has_feature("mem_dirty_track", progress) {
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

    /// Runs it for an answer.
    fn ask(&self, arguments: &[&str], progress: &Progress) -> Result<ChildOutput, ChildError> {
        version::answer(Command::new(&self.program).args(arguments), ANSWER, progress)
    }

    /// Returns whether kernel and CRIU have a feature, by its name in `criu check --feature`.
    pub(crate) fn has_feature(&self, name: &str, progress: &Progress) -> bool {
        let answer = self.ask(&["check", "--feature", name], progress);
        answer.is_ok_and(|answer| answer.status.is_some_and(|status| status.success()))
    }

    /// What `criu check` complains of. It may be something that these processes do not need.
    pub(crate) fn complaint(&self, progress: &Progress) -> Option<String> {
        let output = match self.ask(&["check"], progress) {
            Ok(output) => output,
            Err(ChildError::TimeLimit(limit)) => {
                return Some(format!("it has not ended after {} s", limit.as_secs()));
            }
            Err(_) => return None,
        };
        if output.status.is_some_and(|status| status.success()) {
            return None;
        }
        let text = String::from_utf8_lossy(&output.bytes);
        Some(complaint(&text).or_else(|| last_line(&text)).unwrap_or("nothing that it says").to_owned())
    }

    /// Whether it can save a process, which goes on. The images are left in a directory. An error if it does not end.
    pub(crate) fn can_save(
        &self,
        pid: u32,
        directory: &Path,
        progress: &Progress,
    ) -> Result<bool, ChildError> {
        let (pid, directory) = (pid.to_string(), directory.display().to_string());
        let arguments = ["dump", "--leave-running", "-t", &pid, "-o", "trial.log", "-D", &directory];
        Ok(self.ask(&arguments, progress)?.status.is_some_and(|status| status.success()))
    }

    /// Starts one of its actions in a directory, which has its images unless they are streamed. `log` is a file in it. Its system calls
    /// can be `watched`.
    pub(crate) fn start(
        &self,
        action: &str,
        images: Images,
        directory: &Path,
        log: &str,
        arguments: &[String],
        watched: Option<Watched>,
    ) -> Result<Child, ProcessError> {
        let failed = |source| ProcessError::Resource { action: "start CRIU", source };
        let errors = File::create(directory.join(STANDARD_ERROR)).map_err(failed)?;
        // While it saves processes, ending it would leave its code in them. It ends when its socket and pipes do. A
        // restart is not protected: what CRIU restores would inherit the mask until it has its own.
        let saves = action == "dump";
        let blocked = saves.then(|| Blocked::new(ENDING)).transpose().map_err(failed)?;
        let mut command = Command::new(&self.program);
        // It is to let the processes go on if this program is ended.
        oom::end_no_sooner(&mut command);
        // SAFETY: `signal` may be called between fork and exec, `install` and `begin` as well. CRIU must not die of a pipe that was
        // closed, nor of the terminal's Ctrl-C: its parasite code is in the processes.
        unsafe {
            command.pre_exec(move || {
                if saves {
                    std::mem::forget(Urgent::begin());
                }
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
            .args((images == Images::Streamed).then_some("--stream"))
            .arg("-D")
            .arg(directory)
            .args(["-o", log, "-v2"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .map_err(failed);
        drop(blocked);
        child
    }

    /// The error for a run that failed, with the first thing its log complains of, or with how it ended and its last words.
    pub(crate) fn failed(
        &self,
        action: &str,
        directory: &Path,
        log: &str,
        ended: io::Result<ExitStatus>,
    ) -> ProcessError {
        let [text, errors] = [log, STANDARD_ERROR].map(|name| {
            let text = fs::read(directory.join(name)).unwrap_or_default();
            String::from_utf8_lossy(&text).into_owned()
        });
        let why = complaint(&text).map(str::to_owned).unwrap_or_else(|| {
            let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            match [errors, text].iter().find_map(|text| last_line(text)) {
                Some(line) => format!("it does not say why ({how}); its last words are: {line}"),
                None => format!("it does not say why ({how}), and its log is empty{}", full(directory)),
            }
        });
        ProcessError::Refused(format!("CRIU {} cannot {action} it: {why}", self.version))
    }
}

/// Why a log may be empty.
fn full(directory: &Path) -> String {
    match rustix::fs::statvfs(directory) {
        Ok(room) if room.f_bavail == 0 => {
            format!(": the file system of {} is full (TMPDIR)", directory.display())
        }
        _ => String::new(),
    }
}

/// The first complaint in a log that has to do with a failure.
fn complaint(text: &str) -> Option<&str> {
    let complaints = || text.lines().filter_map(|line| line.split_once("Error ").map(|(_, rest)| rest));
    let fatal = complaints().find(|complaint| complaint.contains(FATAL));
    fatal.or_else(|| complaints().find(|complaint| !HARMLESS.iter().any(|part| complaint.contains(part))))
}

/// Microseconds that a dump kept the processes frozen, from CRIU's `stats-dump`: two magic numbers, a length, and a
/// message whose field 1 is a message whose field 2 is the time.
pub(crate) fn frozen_time(directory: &Path) -> Option<u64> {
    let bytes = fs::read(directory.join("stats-dump")).ok()?;
    let (1, Value::Bytes(mut rest), _) = field(bytes.get(12..)?)? else { return None };
    loop {
        match number_field(rest)? {
            (2, value, _) => return Some(value),
            (_, _, after) => rest = after,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_complaint_is_the_one_that_matters() {
        let first = "(00.1) Error (a.c:1): rlimit: Can't setup\n(00.2) Error (b.c:2): execvp(\"iptables-save\", ...) failed\n\
                     (00.3) Error (c.c:3): no such luck\n(00.4) Error (d.c:4): Dumping FAILED.\n";
        assert_eq!(complaint(first), Some("(c.c:3): no such luck"));
        let fatal = "Error (tun.c:85): tun: Unable to create tun\n\
                     Error (kerndat.c:1877): kerndat_tcp_repair failed when initializing kerndat.\n";
        assert_eq!(
            complaint(fatal),
            Some("(kerndat.c:1877): kerndat_tcp_repair failed when initializing kerndat.")
        );
        assert_eq!(complaint("(00.1) all is well\n"), None);
        assert_eq!(last_line("one\ntwo \n\n"), Some("two"));
    }
}
