use std::io;
use std::path::PathBuf;

/// Why bytes at a physical address could not be had. The kinds are kept apart because a reader of dumps must act
/// differently on each: memory that never existed, memory that is excluded, and memory that is lost.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No memory of the machine is at this address.
    #[error("physical address {paddr:#x} is in no memory segment")]
    NotPresent {
        /// The physical address asked for.
        paddr: u64,
    },
    /// The memory exists, but the dump was made without it.
    #[error("physical address {paddr:#x} is excluded from the dump")]
    NotInDump {
        /// The physical address asked for.
        paddr: u64,
    },
    /// The dump should hold it, but it is not there: the file was truncated, its writer was stopped, or a part of a set was
    /// not given.
    #[error("physical address {paddr:#x} is missing: {reason}")]
    Missing {
        /// The physical address asked for.
        paddr: u64,
        /// Why it is not there.
        reason: String,
    },
    /// The dump holds something for it that cannot be its contents.
    #[error("physical address {paddr:#x} is damaged: {reason}")]
    Damaged {
        /// The physical address asked for.
        paddr: u64,
        /// What was expected and what was found.
        reason: String,
    },
    /// The source refused to be read.
    #[error("cannot read {path} at offset {offset:#x}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Byte offset in the file.
        offset: u64,
        /// What the system said.
        source: io::Error,
    },
}

/// Why a file could not be taken as a source.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system refused.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done: "open", "read the ELF header of" …
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
        /// One sentence: what was expected, what was found, what to do.
        what: String,
    },
    /// The file is well formed, but of a kind that is not supported.
    #[error("{path}: {what}", path = path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// One sentence: what is not supported.
        what: String,
    },
}
