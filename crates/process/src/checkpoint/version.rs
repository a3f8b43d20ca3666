//! CRIU's version, of a program that may be anything else.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use pagehaul_run::{ChildError, ChildOutput, Progress, output_unless};

use super::programs::{is_on_path, last_line};

/// The oldest version whose image streamer protocol and images are known to work on today's kernels.
pub(super) const OLDEST: u32 = 4;
/// How long it may take to say its version.
pub(super) const LIMIT: Duration = Duration::from_secs(10);
/// Bytes that are read of what it says, and characters that are shown.
const MOST: u64 = 64 << 10;
const SHOWN: usize = 200;

/// Why there is no version.
#[derive(Debug)]
pub(super) enum Unknown {
    /// There is no such file.
    Missing,
    /// The file is there. The program that runs it is not.
    NoInterpreter,
    /// It cannot be run, or does not end.
    Run(ChildError),
    /// It said something else: the last line, if there is one.
    Other { ended: Option<ExitStatus>, said: Option<String> },
}

impl Unknown {
    pub(super) fn sentence(&self, program: &Path) -> String {
        let name = program.display();
        match self {
            Self::Missing => {
                format!(
                    "{name} is not there: checkpoints need CRIU {OLDEST} or newer (Debian 13 has 4.1) on PATH"
                )
            }
            Self::NoInterpreter => format!(
                "cannot run {name}: the file is there, but not its interpreter (its first line after #!, or its dynamic \
                 loader)"
            ),
            Self::Run(ChildError::Start { what: "process", source }) => {
                format!("cannot run {name}: {source}")
            }
            Self::Run(ChildError::TimeLimit(limit)) => {
                format!("{name} did not answer --version within {} s; is it CRIU?", limit.as_secs_f64())
            }
            Self::Run(error) => format!("cannot run {name}: {error}"),
            Self::Other { ended, said } => {
                let ended = match ended {
                    Some(status) if status.success() => String::new(),
                    Some(status) => format!(" ({status})"),
                    None => " (it does not end)".into(),
                };
                let said = said.as_ref().map_or_else(|| "nothing".into(), |said| format!("{said:?}"));
                format!("{name} --version does not print CRIU's version, but {said}{ended}; is it CRIU?")
            }
        }
    }
}

/// Runs CRIU, or what may be, for what it says on both of its outputs, until the run is cancelled.
pub(super) fn answer(
    command: &mut Command,
    limit: Duration,
    progress: &Progress,
) -> Result<ChildOutput, ChildError> {
    let with_errors = || {
        // SAFETY: numbers only; both descriptors are open between fork and exec.
        match unsafe { libc::dup2(libc::STDOUT_FILENO, libc::STDERR_FILENO) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: it makes one system call, which is allowed between fork and exec.
    unsafe { command.pre_exec(with_errors) };
    output_unless(command, limit, MOST, &progress.cancel_token())
}

/// Runs `program --version`.
pub(super) fn of(program: &Path, limit: Duration, progress: &Progress) -> Result<String, Unknown> {
    let mut command = Command::new(program);
    let output = answer(command.arg("--version"), limit, progress).map_err(|error| match error {
        ChildError::Start { what: "process", source } if source.kind() == io::ErrorKind::NotFound => {
            if is_there(program) {
                Unknown::NoInterpreter
            } else {
                Unknown::Missing
            }
        }
        error => Unknown::Run(error),
    })?;
    let text = String::from_utf8_lossy(&output.bytes);
    let version = text.lines().find_map(|line| line.strip_prefix("Version:")).map(str::trim);
    let is_number =
        |version: &&str| version.split('.').next().is_some_and(|major| major.parse::<u32>().is_ok());
    match version.filter(is_number) {
        Some(version) => Ok(version.to_owned()),
        None => {
            let said = last_line(&text).map(|line| line.chars().take(SHOWN).collect());
            Err(Unknown::Other { ended: output.status, said })
        }
    }
}

/// Whether there is a file where the system looks for a program.
fn is_there(program: &Path) -> bool {
    match program.to_str() {
        Some(name) if !name.contains('/') => is_on_path(name),
        _ => program.exists(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    /// What is said of a script. Another process writes it: this one's children would keep it open for writing.
    fn sentence(script: &str, limit: Duration) -> Result<String, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("criu");
        let write = "printf '%s' \"$1\" > \"$0\" && chmod +x \"$0\"";
        assert!(Command::new("sh").args(["-c", write]).arg(&path).arg(script).status().unwrap().success());
        of(&path, limit, &Progress::default()).map_err(|why| {
            let sentence = why.sentence(&path);
            sentence.replace(&path.display().to_string(), "CRIU")
        })
    }

    #[test]
    fn versions_are_read_and_everything_else_is_said() {
        let shell = |script: &str| sentence(&format!("#!/bin/sh\n{script}\n"), LONG);
        assert_eq!(shell("echo Version: 4.2; echo GitID: v4.2").as_deref(), Ok("4.2"));
        assert_eq!(shell("echo warning >&2; echo Version: 4.1.1").as_deref(), Ok("4.1.1"));
        for (script, expected) in [
            ("echo one; echo two", "but \"two\"; is it CRIU?"),
            ("echo Version: none", "but \"Version: none\"; is it"),
            ("", "but nothing; is it"),
            ("exit 3", "but nothing (exit status: 3); is it"),
            ("echo no part of it >&2; exit 127", "but \"no part of it\" (exit status: 127); is it"),
            ("kill -9 $$", "but nothing (signal: 9 (SIGKILL)); is it"),
        ] {
            let said = shell(script).unwrap_err();
            assert!(
                said.starts_with("CRIU --version does not print CRIU's version, ") && said.contains(expected),
                "{script}: {said}"
            );
        }
    }

    #[test]
    fn a_program_that_hangs_is_not_waited_for() {
        let said = sentence("#!/bin/sh\nexec tail -f /dev/null\n", Duration::from_millis(20)).unwrap_err();
        assert_eq!(said, "CRIU did not answer --version within 0.02 s; is it CRIU?");
    }

    #[test]
    fn a_missing_interpreter_is_not_a_missing_file() {
        let said = sentence("#!/nonexistent/interpreter\n", LONG).unwrap_err();
        assert!(said.starts_with("cannot run CRIU: the file is there, but not its interpreter"), "{said}");
        for missing in ["/nonexistent/criu", "no-such-program"] {
            assert!(
                matches!(of(Path::new(missing), LONG, &Progress::default()), Err(Unknown::Missing)),
                "{missing}"
            );
        }
    }
}
