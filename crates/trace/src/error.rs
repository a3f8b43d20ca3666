use std::io;
use std::path::{Path, PathBuf};

/// Errors of reading and recording traces. Each message is one sentence that names the remedy where there is
/// one.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A system call failed.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        path: PathBuf,
        /// The action that failed: "open", "read" …
        action: &'static str,
        source: io::Error,
    },
    /// The contents of a file contradict its format.
    #[error("{path}: at offset {offset:#x}: {what}", path = path.display())]
    Format {
        path: PathBuf,
        /// Byte offset of the damaged structure.
        offset: u64,
        /// What was expected and what was found.
        what: String,
    },
    /// The file is valid, but of a kind that is not supported.
    #[error("{path}: {what}", path = path.display())]
    Unsupported {
        path: PathBuf,
        /// What is not supported, and the remedy.
        what: String,
    },
    /// A `format` file does not describe an event.
    #[error("event format {name}: {what}")]
    EventFormat {
        /// `system/event`, as far as known.
        name: String,
        /// What was expected and what was found.
        what: String,
    },
    /// A block of a recording cannot be encoded.
    #[error("{path}: cannot encode a block: {what}", path = path.display())]
    Encode {
        /// The recording.
        path: PathBuf,
        /// The reason.
        what: String,
    },
    /// A thread ended with a panic.
    #[error("{path}: a thread panicked; this is a bug, please report it with the panic message above", path = path.display())]
    ThreadPanicked {
        /// The file that the thread read or wrote.
        path: PathBuf,
    },
    /// This user cannot trace on this machine at this time.
    #[error("{0}")]
    Unavailable(String),
    /// The kernel has no such trace event.
    #[error("this kernel has no trace event {system}:{event}: its version or its configuration lacks it")]
    NoSuchEvent {
        /// The event system, such as `vmscan`.
        system: String,
        event: String,
    },
}

impl TraceError {
    pub(crate) fn thread_panicked(path: &Path) -> Self {
        Self::ThreadPanicked { path: path.to_owned() }
    }

    /// Returns a function for `map_err` that makes a [`TraceError::Io`].
    pub fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, action, source }
    }
}
