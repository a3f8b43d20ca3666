use std::io;
use std::path::{Path, PathBuf};

use pagehaul_codec::CodecError;
use pagehaul_output::OutputError;
use pagehaul_physmem::OpenError;

use crate::units::Pid;

/// Why there is no core, or why a process could not be saved. In every case the process goes on as before.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(Pid),
    /// It has ended and waits for its parent.
    #[error("process {0} is a zombie: it has ended, and has no memory any more")]
    Zombie(Pid),
    /// It belongs to the kernel.
    #[error(
        "process {0} is a kernel thread and has no memory of its own; for the kernel's, see `pagehaul capture`"
    )]
    KernelThread(Pid),
    /// It is this program.
    #[error("process {0} is pagehaul itself")]
    Myself(Pid),
    /// A 32-bit process.
    #[error("process {0} is a 32-bit process; only 64-bit processes are supported")]
    Not64Bit(Pid),
    /// The machine is neither x86_64 nor arm64.
    #[error(
        "live processes are saved and restarted on x86_64 and arm64 only; this is {}",
        std::env::consts::ARCH
    )]
    Machine,
    /// /proc numbers processes otherwise than this program's system calls do.
    #[error(
        "/proc is of another PID namespace; mount /proc here (mount -t proc proc /proc), or run pagehaul where it is mounted"
    )]
    OtherNamespace,
    /// There is no /proc.
    #[error("/proc is not mounted; mount it (mount -t proc proc /proc)")]
    NoProc,
    /// Another process is its tracer, and there can be only one.
    #[error("process {pid} is traced by process {tracer} ({name}) already; end that debugger first")]
    Traced {
        /// The process.
        pid: Pid,
        tracer: Pid,
        /// The tracer's name.
        name: String,
    },
    /// The system does not allow it.
    #[error(
        "not allowed to read process {pid}{reason}; run pagehaul as root, or with CAP_SYS_PTRACE and \
         CAP_DAC_READ_SEARCH"
    )]
    Denied {
        /// The process.
        pid: Pid,
        /// What may be the reason: "", or with a space in front.
        reason: String,
    },
    /// It ended while it was being saved.
    #[error("process {0} ended while its memory was being copied")]
    Ended(Pid),
    /// A thread does not stop.
    #[error(
        "thread {tid} of process {pid} did not stop within {seconds} s (state {state}): it waits in the kernel for \
         something that cannot be interrupted; try again later"
    )]
    Stuck {
        /// The process.
        pid: Pid,
        /// The thread.
        tid: Pid,
        /// Seconds waited.
        seconds: u64,
        /// Its state as /proc has it: "D (disk sleep)".
        state: String,
    },
    /// A file of the process in /proc could not be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Proc { path: PathBuf, source: io::Error },
    /// A file in /proc does not read as expected.
    #[error("{path} has an unexpected format: {what}", path = path.display())]
    Format {
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// ptrace refused something it should not refuse.
    #[error("cannot {action} thread {tid}: {source}")]
    Trace {
        /// The action that failed.
        action: &'static str,
        /// The thread.
        tid: Pid,
        source: io::Error,
    },
    /// No snapshot can be made of this process.
    #[error("no snapshot of process {pid}: {reason}; without --snapshot it is copied while stopped")]
    NoSnapshot {
        /// The process.
        pid: Pid,
        /// Why.
        reason: String,
    },
    /// The output cannot be made.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Output {
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        source: io::Error,
    },
    /// A codec cannot be set up.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// Memory, a thread or a file of this program could not be had.
    #[error("cannot {action}: {source}")]
    Resource {
        /// The action that failed.
        action: &'static str,
        source: io::Error,
    },
    /// An argument for CRIU is an option that this program sets: the command line is wrong.
    #[error("pagehaul sets CRIU's option {0} itself; leave it out after `--`")]
    OwnOption(String),
    /// CRIU did not restart anything, and did not say so.
    #[error("CRIU ended with success but started no process")]
    NothingStarted,
    /// CRIU restarted a process that is not there.
    #[error("CRIU ended with success, but process {0}, which it names as restarted, is not alive")]
    NotAlive(Pid),
    /// A file to be read is not what it should be.
    #[error("{path}: {what}", path = path.display())]
    Damaged {
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
    /// What a checkpoint is based on is not there or cannot be opened, or something else is in its place.
    #[error("{path}: {what}", path = path.display())]
    NoBase {
        /// The checkpoint.
        path: PathBuf,
        /// Where its base was looked for, and what to do.
        what: String,
    },
    /// A file to be read is encrypted, and what would open it is not at hand.
    #[error("{path}: {what}", path = path.display())]
    Locked {
        path: PathBuf,
        /// Why it cannot be opened, and what to do.
        what: String,
    },
    /// The request makes no sense or could do harm.
    #[error("{0}")]
    Refused(String),
    /// The output could not be written, and nothing of use is in it.
    #[error("{0}")]
    NotWritten(String),
    /// The user cancelled the run before anything was written.
    #[error("stopped before anything was written; process {0} goes on")]
    Cancelled(Pid),
}

impl From<OutputError> for ProcessError {
    fn from(error: OutputError) -> Self {
        match error {
            OutputError::Refused(why) => Self::Refused(why),
            OutputError::Io { path, action, source } => Self::Output { path, action, source },
        }
    }
}

impl From<OpenError> for ProcessError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Io { path, action, source } => Self::Output { path, action, source },
            OpenError::Format { path, offset, what } => {
                Self::Damaged { path, what: format!("byte {offset:#x}: {what}") }
            }
            OpenError::Unsupported { path, what } => Self::Locked { path, what },
        }
    }
}

/// Returns the error for a thread that cannot be started.
pub(crate) fn no_thread(source: io::Error) -> ProcessError {
    ProcessError::Resource { action: "start a thread", source }
}

/// Returns a conversion of I/O errors that occur while `action` is done to a file.
pub(crate) fn failed(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> ProcessError {
    move |source| ProcessError::Output { path: path.to_owned(), action, source }
}
