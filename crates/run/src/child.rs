//! What another process returns, however it fails: it panics, runs out of memory, or never ends.

use std::io::{self, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use crate::cancel::CancelToken;

/// How often a wait looks whether the run was cancelled.
const POLL: Duration = Duration::from_millis(50);
/// Time in which a process that is killed ends, unless it waits for a device.
const GRACE: Duration = Duration::from_secs(1);

/// What a process printed.
#[derive(Debug)]
pub struct ChildOutput {
    /// Its standard output.
    pub bytes: Vec<u8>,
    /// How it ended; `None` if it is left behind.
    pub status: Option<ExitStatus>,
}

/// Why there is no output.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The process or the thread that reads its output cannot be created.
    #[error("cannot start a {what}: {source}")]
    Start {
        /// "process" or "thread".
        what: &'static str,
        source: io::Error,
    },
    /// The output cannot be read.
    #[error("cannot read what the process returns: {0}")]
    Read(io::Error),
    /// It did not end in time.
    #[error("it takes longer than {0:?}")]
    TimeLimit(Duration),
    /// The run was cancelled before it ended.
    #[error("stopped")]
    Cancelled,
}

/// Runs `command` and returns up to `most` bytes of its output, if it closes that within `limit`. The process is killed
/// unless it ends then; one that waits for a device is left behind.
pub fn output_within(command: &mut Command, limit: Duration, most: u64) -> Result<ChildOutput, ChildError> {
    output_unless(command, limit, most, &CancelToken::default())
}

/// Does the same as [`output_within`], unless the run is cancelled: the process is killed then.
pub fn output_unless(
    command: &mut Command,
    limit: Duration,
    most: u64,
    cancel: &CancelToken,
) -> Result<ChildOutput, ChildError> {
    let start = |what| move |source| ChildError::Start { what, source };
    let (mut out, write) = io::pipe().map_err(start("process"))?;
    let mut child =
        command.stdin(Stdio::null()).stdout(write).stderr(Stdio::null()).spawn().map_err(start("process"))?;
    // The command keeps a copy, without which the pipe ends with the process.
    command.stdout(Stdio::null());
    let (send, receive) = sync_channel(1);
    let read = move || {
        let mut bytes = Vec::new();
        let read = out.by_ref().take(most).read_to_end(&mut bytes);
        // The other end is gone once the time is over.
        let _ = send.send(read.map(|_| bytes));
    };
    let output = Builder::new().name("child".into()).spawn(read).map_err(start("thread")).and_then(|_| {
        let begun = Instant::now();
        loop {
            match receive.recv_timeout(POLL.min(limit.saturating_sub(begun.elapsed()))) {
                Ok(read) => return Ok(read),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(ChildError::Read(io::ErrorKind::BrokenPipe.into()));
                }
                Err(RecvTimeoutError::Timeout) if cancel.is_cancelled() => return Err(ChildError::Cancelled),
                Err(RecvTimeoutError::Timeout) if begun.elapsed() >= limit => {
                    return Err(ChildError::TimeLimit(limit));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    });
    if output.is_err() {
        let _ = child.kill();
    }
    let status = end(&mut child);
    Ok(ChildOutput { bytes: output?.map_err(ChildError::Read)?, status })
}

/// Ends the process, and returns how it ended.
fn end(child: &mut Child) -> Option<ExitStatus> {
    let step = Duration::from_millis(5);
    let mut waited = Duration::ZERO;
    // A process that has closed its output ends at once.
    while waited < GRACE {
        if let Some(status) = child.try_wait().ok()? {
            return Some(status);
        }
        if waited >= step * 2 {
            let _ = child.kill();
        }
        thread::sleep(step);
        waited += step;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Result<ChildOutput, ChildError> {
        output_within(Command::new("sh").args(["-c", script]), limit, 8)
    }

    #[test]
    fn output_comes_in_time_and_in_part_or_not_at_all() {
        let long = Duration::from_secs(60);
        let whole = shell("printf 1234; exit 3", long).unwrap();
        assert_eq!((whole.bytes.as_slice(), whole.status.unwrap().code()), (&b"1234"[..], Some(3)));
        assert_eq!(shell("printf 0123456789", long).unwrap().bytes, b"01234567");
        let late = shell("exec sleep 100", Duration::from_millis(20)).unwrap_err();
        assert_eq!(late.to_string(), "it takes longer than 20ms");
        let cancelled = CancelToken::default();
        cancelled.cancel();
        let stopped = output_unless(Command::new("sleep").arg("100"), long, 8, &cancelled).unwrap_err();
        assert_eq!(stopped.to_string(), "stopped");
        // Closing the output ends the wait, and then the process.
        let closed = shell("exec >&-; exec sleep 100", long).unwrap();
        assert!(closed.bytes.is_empty() && closed.status.is_none_or(|status| !status.success()));
        assert!(output_within(&mut Command::new("/nonexistent"), long, 8).is_err());
    }
}
