//! Runs the recorded command.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result};
use pagehaul_trace::Run;
use pagehaul_trace::live::{monotonic, read_counters};

/// Runs the command once. `stop` is asked a few times a second; once it says so, the command is asked to end.
pub(super) fn run(command: &[String], stop: &dyn Fn() -> bool) -> Result<Run> {
    let (program, arguments) = command.split_first().context("no command was given")?;
    let before = read_counters();
    let spent = children();
    let begin_ns = monotonic();
    let child =
        Command::new(program).args(arguments).spawn().with_context(|| format!("cannot run {program:?}"))?;
    let (status, end_ns) = wait(child, stop)?;
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

/// Waits for the end in a thread of its own, so that its time is exact.
fn wait(mut child: Child, stop: &dyn Fn() -> bool) -> Result<(ExitStatus, u64)> {
    let pid = rustix::process::Pid::from_child(&child);
    let (send, ended) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || send.send((child.wait(), monotonic())));
        let mut asked = false;
        loop {
            match ended.recv_timeout(Duration::from_millis(100)) {
                Ok((status, end)) => return Ok((status.context("cannot wait for the command")?, end)),
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    if !asked && stop() {
                        asked = true;
                        // It may have ended by now.
                        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
                    }
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
