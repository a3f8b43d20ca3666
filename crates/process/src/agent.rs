//! The process that holds a process while it forks.
//!
//! For a few milliseconds a thread of the process has registers that are not its own. If its tracer ended just then, it
//! would go on with these. So the tracer is not the program that users and scripts kill, but a helper process in another
//! process group, in which every signal is blocked from its start: service managers signal it as well. It gives
//! everything back when the program ends, however it ends. SIGKILL cannot be blocked: for it, the process has the code to
//! restore itself ([`Stub`](crate::stub::Stub)).

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use crate::error::ProcessError;
use crate::fork::{self, Snapshot};
use crate::inject;
use crate::mapping;
use crate::own_ids::OwnIds;
use crate::procfs::Status;
use crate::signal_mask::{ALL, Blocked};
use crate::stop::Stopped;
use crate::threads::{self, ThreadState};
use crate::units::Pid;

/// First argument of this program where it is started as the helper that holds a snapshot. It has to call
/// [`hold_snapshot`](serve) with the two numbers that follow.
pub const SNAPSHOT_HELPER: &str = "hold-snapshot";
/// The same for the helper that opens a userfaultfd: [`hold_userfaultfd`](serve_userfaultfd) with the two numbers that follow.
pub const USERFAULTFD_HELPER: &str = "hold-userfaultfd";

/// Maximum size of the notes that the helper may send.
const MAX_NOTES: u64 = 4 << 30;

/// What the helper waits for before it touches the process.
const GO: [u8; 1] = [1];

/// A helper process that does one thing when told to, answers, and undoes it when this is dropped.
pub(crate) struct Helper {
    child: Child,
    process: Pid,
}

/// Numbers and bytes.
type Answer = ([u64; 4], Vec<u8>);

impl Helper {
    /// Starts the helper for a process (`command`, which is to call [`serve`] or another of its kind). It does nothing yet.
    pub(crate) fn start(process: Pid, command: &mut Command) -> Result<Self, ProcessError> {
        // Inherited, so that there is no moment at which a signal could end the helper.
        let blocked = Blocked::new(ALL).map_err(failed)?;
        let child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).spawn().map_err(failed)?;
        drop(blocked);
        // From here on the helper ends with this.
        Ok(Self { child, process })
    }

    /// This program as a helper.
    pub(crate) fn command(name: &str, pid: Pid) -> Result<Command, ProcessError> {
        let failed = |source| ProcessError::Resource { action: "find this program", source };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args([name, &pid.to_string()]);
        Ok(command)
    }

    pub(crate) fn pid(&self) -> Pid {
        self.child.id() as Pid
    }

    /// Has the helper do its work, and returns its answer.
    pub(crate) fn ask(&mut self) -> Result<Answer, ProcessError> {
        let broken = || failed(io::ErrorKind::BrokenPipe.into());
        if self.child.stdin.as_mut().ok_or_else(broken)?.write_all(&GO).is_err() {
            // It has ended already, or the end of its input makes it end. Either way its output ends.
            self.child.stdin = None;
        }
        let mut from = self.child.stdout.take().ok_or_else(broken)?;
        let read = || -> io::Result<Result<Answer, String>> {
            let mut word = || -> io::Result<u64> {
                let mut bytes = [0; 8];
                from.read_exact(&mut bytes)?;
                Ok(u64::from_le_bytes(bytes))
            };
            let (ok, numbers, length) = (word()?, [word()?, word()?, word()?, word()?], word()?);
            let mut bytes = Vec::new();
            from.take(length.min(MAX_NOTES)).read_to_end(&mut bytes)?;
            if ok != 1 {
                return Ok(Err(String::from_utf8_lossy(&bytes).into_owned()));
            }
            Ok(Ok((numbers, bytes)))
        };
        let answer = read();
        let answer = answer.map_err(|error| match (error.kind(), self.end()) {
            (io::ErrorKind::UnexpectedEof, Ok(status)) => ProcessError::Refused(format!(
                "the helper process that holds process {} ended early ({status})",
                self.process
            )),
            _ => failed(error),
        })?;
        answer.map_err(ProcessError::Refused)
    }

    /// Has the helper undo what it did and end, which the end of its input asks for.
    pub(crate) fn end(&mut self) -> io::Result<ExitStatus> {
        drop(self.child.stdin.take());
        self.child.wait()
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn failed(source: io::Error) -> ProcessError {
    ProcessError::Resource { action: "start the helper that holds the process", source }
}

/// A helper process, and the snapshot that it holds until this is dropped.
pub(crate) struct Held {
    helper: Helper,
    /// The snapshot.
    pub(crate) pid: Pid,
    /// What the core says of the process's threads.
    pub(crate) notes: Vec<u8>,
    pub(crate) threads: usize,
    /// How long the process was stopped.
    pub(crate) pause: Duration,
    /// Bytes of huge pages (hugetlbfs) that the snapshot had before the process went on.
    pub(crate) huge: u64,
}

impl Held {
    /// Starts the helper. It does nothing yet.
    pub(crate) fn start(pid: Pid, state: u8) -> Result<Self, ProcessError> {
        let helper = Helper::start(pid, Helper::command(SNAPSHOT_HELPER, pid)?.arg(state.to_string()))?;
        Ok(Self { helper, pid: 0, notes: Vec::new(), threads: 0, pause: Duration::ZERO, huge: 0 })
    }

    /// Has the helper take the snapshot.
    pub(crate) fn take(&mut self) -> Result<(), ProcessError> {
        let ([pid, threads, pause, huge], notes) = self.helper.ask()?;
        (self.pid, self.threads, self.pause) = (pid as Pid, threads as usize, Duration::from_nanos(pause));
        (self.notes, self.huge) = (notes, huge);
        Ok(())
    }
}

/// The helper: takes a snapshot, says so on standard output, and holds it until standard input ends.
///
/// Blocks every signal that can be blocked, as [`Helper::start`] has done already.
pub fn serve(pid: Pid, state: u8) -> io::Result<()> {
    answer(|| {
        let (snapshot, notes, threads, pause, huge) = take(pid, state)?;
        let numbers = [snapshot.pid as u64, threads as u64, pause.as_nanos() as u64, huge];
        Ok((snapshot, numbers, notes))
    })
}

/// The helper of a checkpoint: stops a process, opens a userfaultfd for it if it is to, and holds both until standard input ends.
/// Its answer is the number of its descriptor, and how many nanoseconds the process has been stopped.
pub fn serve_userfaultfd(pid: Pid, opens: bool) -> io::Result<()> {
    answer(|| {
        open_userfaultfd(pid, opens).map_err(|error| match error {
            // A checkpoint makes none.
            ProcessError::NoSnapshot { reason, .. } => ProcessError::Refused(reason),
            error => error,
        })
    })
}

/// A descriptor and the process that is stopped for it, and the answer.
type Opened = ((Option<OwnedFd>, Stopped), [u64; 4], Vec<u8>);

fn open_userfaultfd(pid: Pid, opens: bool) -> Result<Opened, ProcessError> {
    let mut held = Stopped::stop(pid)?;
    let descriptor = opens.then(|| fork::open_userfaultfd(&mut held)).transpose()?;
    let number = descriptor.as_ref().map_or(0, |descriptor| descriptor.as_raw_fd() as u64);
    let numbers = [number, held.elapsed().as_nanos() as u64, 0, 0];
    Ok(((descriptor, held), numbers, Vec::new()))
}

/// Waits for the request, acts, answers on standard output, and keeps what `act` returned until standard input ends.
fn answer<T>(act: impl FnOnce() -> Result<(T, [u64; 4], Vec<u8>), ProcessError>) -> io::Result<()> {
    let _blocked = Blocked::new(ALL)?;
    if io::stdin().lock().read_exact(&mut [0; GO.len()]).is_err() {
        // The program has ended before it wanted anything.
        return Ok(());
    }
    let mut out = io::stdout().lock();
    let mut reply = |ok: u64, words: [u64; 4], bytes: &[u8]| -> io::Result<()> {
        for word in [&[ok][..], &words, &[bytes.len() as u64]].concat() {
            out.write_all(&word.to_le_bytes())?;
        }
        out.write_all(bytes)?;
        out.flush()
    };
    match act() {
        Ok((held, numbers, bytes)) => {
            // Nothing comes: input ends when the program does. It may have been killed before it could listen.
            if reply(1, numbers, &bytes).is_ok() {
                io::copy(&mut io::stdin().lock(), &mut io::sink())?;
            }
            drop(held);
            Ok(())
        }
        Err(error) => reply(0, [0; 4], error.to_string().as_bytes()),
    }
}

/// A snapshot, what the core says of the threads, their number, how long the process was stopped, and bytes of huge pages.
type Taken = (Snapshot, Vec<u8>, usize, Duration, u64);

fn take(pid: Pid, state: u8) -> Result<Taken, ProcessError> {
    let mut held = Stopped::stop(pid)?;
    let (own, mut states) = (OwnIds::of(pid)?, Vec::new());
    for &thread in held.threads() {
        states.extend(ThreadState::read(pid, &own, thread)?);
    }
    let tid = states.first().ok_or(ProcessError::Ended(pid))?.tid();
    let mappings = mapping::read_plain(pid, tid)?;
    let notes = threads::encode(pid, &states, state, &mappings)?;
    let mut snapshot = fork::fork(&mut held)?;
    let huge = Status::read(snapshot.pid)?.huge;
    let pause = held.resume();
    snapshot.settle().map_err(|error| {
        inject::no_snapshot(
            pid,
            format!("its files could not be left alone (Linux 5.9 or newer can): {error}"),
        )
    })?;
    Ok((snapshot, notes, states.len(), pause, huge))
}
