use std::io;
use std::path::PathBuf;

/// Why bytes at a physical address are unavailable. Readers of dumps must distinguish the cases: memory that never existed,
/// memory that is excluded, and memory that is lost.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No memory of the machine is at this address.
    #[error("physical address {paddr:#x} is in no memory segment")]
    NotPresent {
        /// The requested physical address.
        paddr: u64,
    },
    /// The memory exists, but the dump excludes it.
    #[error("physical address {paddr:#x} is excluded from the dump")]
    NotInDump {
        /// The requested physical address.
        paddr: u64,
    },
    /// The dump should hold it, but it is not there: the file was truncated, its writer was stopped, or a part of a set was
    /// not given.
    #[error("physical address {paddr:#x} is missing: {reason}")]
    Missing {
        /// The requested physical address.
        paddr: u64,
        /// Why it is missing.
        reason: String,
    },
    /// The dump holds something for it that cannot be its contents.
    #[error("physical address {paddr:#x} is damaged: {reason}")]
    Damaged {
        /// The requested physical address.
        paddr: u64,
        /// What was expected and what was found.
        reason: String,
    },
    /// The source cannot be read.
    #[error("cannot read {path} at offset {offset:#x}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Byte offset in the file.
        offset: u64,
        /// The error of the system.
        source: io::Error,
    },
}

/// Why a file cannot be a source.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A system call failed.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done: "open", "read the ELF header of" …
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The file contradicts its format.
    #[error("{path}: at offset {offset:#x}: {what}", path = path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Byte offset of the structure at fault.
        offset: u64,
        /// One sentence: what was expected, what was found, what to do.
        what: String,
    },
    /// The file is valid, but of an unsupported kind.
    #[error("{path}: {what}", path = path.display())]
    Unsupported {
        /// The file.
        path: PathBuf,
        /// One sentence: what is not supported.
        what: String,
    },
}
