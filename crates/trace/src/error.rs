use std::io;
use std::path::{Path, PathBuf};

/// Why a trace could not be had. Each is one sentence that says what to do, where something can be done.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The system refused.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done: "open", "read" …
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not what it should be.
    #[error("{path}: at offset {offset:#x}: {what}", path = path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Byte offset of the structure at fault.
        offset: u64,
        /// What was expected, what was found.
        what: String,
    },
    /// The file is well formed, but of a kind that is not supported.
    #[error("{path}: {what}", path = path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// What is not supported, and what to do.
        what: String,
    },
    /// A `format` file that does not describe an event.
    #[error("event format {name}: {what}")]
    EventFormat {
        /// `system/event`, or what is known of it.
        name: String,
        /// What was expected, what was found.
        what: String,
    },
    /// Tracing cannot be used on this machine, by this user, now.
    #[error("{0}")]
    Unavailable(String),
    /// The kernel has no such event.
    #[error("this kernel has no trace event {system}:{event}: {hint}")]
    NoSuchEvent {
        /// The subsystem, `vmscan`.
        system: String,
        /// The event's name.
        event: String,
        /// Why that may be.
        hint: &'static str,
    },
}

impl TraceError {
    /// An [`TraceError::Io`] for `map_err`.
    pub fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, action, source }
    }
}
