//! Runs the recorded command.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use pagehaul_trace::Run;
use pagehaul_trace::live::{monotonic, read_counters};
use rustix::process::Signal;

use crate::cli::tracing::PATIENCE;

/// Runs the command once. `stop` is asked a few times a second; once it says so, the command gets SIGTERM, and in the end
/// SIGKILL.
pub(super) fn run(command: &[String], stop: &dyn Fn() -> bool) -> Result<Run> {
    let (program, arguments) = command.split_first().context("no command was given")?;
    let before = read_counters();
    let spent = children();
    let begin_ns = monotonic();
    let mut command = Command::new(program);
    let (status, end_ns) = wait(command.args(arguments), stop, PATIENCE)?;
    let after_spent = children();
    Ok(Run {
        begin_ns,
        end_ns,
        user_s: after_spent.user_s - spent.user_s,
        system_s: after_spent.system_s - spent.system_s,
        exit: status.code(),
        signal: status.signal(),
        max_rss_kib: after_spent.max_rss_kib,
        before,
        after: read_counters(),
    })
}

/// Starts the command, and waits for its end in another thread, so that its time is exact.
fn wait(command: &mut Command, stop: &dyn Fn() -> bool, patience: Duration) -> Result<(ExitStatus, u64)> {
    let (give, take) = mpsc::channel::<Child>();
    let (send, ended) = mpsc::channel();
    std::thread::scope(|scope| {
        // Before the command, so that a thread that cannot be started leaves no command behind.
        let waiter = move || {
            let Ok(mut child) = take.recv() else { return };
            // The other end waits for it.
            let _ = send.send((child.wait(), monotonic()));
        };
        let waiter = std::thread::Builder::new().name("wait".into()).spawn_scoped(scope, waiter);
        waiter.context("cannot start a thread that waits for the command")?;
        // Moved in, so that it is gone on every way out and the thread does not wait for it.
        let give = give;
        let child = command.spawn().with_context(|| format!("cannot run {:?}", command.get_program()))?;
        let pid = rustix::process::Pid::from_child(&child);
        // Fails only when the thread is gone, which is noticed below.
        let _ = give.send(child);
        let mut asked: Option<Instant> = None;
        loop {
            match ended.recv_timeout(Duration::from_millis(100)) {
                Ok((status, end)) => return Ok((status.context("cannot wait for the command")?, end)),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    let signal = match asked {
                        None if stop() => Signal::TERM,
                        Some(since) if since.elapsed() >= patience => Signal::KILL,
                        _ => continue,
                    };
                    asked = Some(Instant::now());
                    // It may have ended by now.
                    let _ = rustix::process::kill_process(pid, signal);
                }
                Err(mpsc::RecvTimeoutError::Disconnected) => anyhow::bail!("lost track of the command"),
            }
        }
    })
}

/// What all children that have ended took.
struct Spent {
    user_s: f64,
    system_s: f64,
    max_rss_kib: u64,
}

fn children() -> Spent {
    // SAFETY: rusage is plain numbers, for which all zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a rusage of our own that lives through the call, which writes nothing else.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    Spent {
        user_s: seconds(usage.ru_utime),
        system_s: seconds(usage.ru_stime),
        max_rss_kib: usage.ru_maxrss.unsigned_abs(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_ignores_sigterm_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        // It ignores the signal once the file is there.
        command.args(["-c", "trap '' TERM; : > ready; while :; do sleep 0.05; done"]);
        command.current_dir(directory.path());
        let ready = directory.path().join("ready");
        let (status, _) = wait(&mut command, &|| ready.exists(), Duration::from_millis(200)).unwrap();
        assert_eq!(status.signal(), Some(9));
    }
}
