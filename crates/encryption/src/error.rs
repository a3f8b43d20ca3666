use std::io;
use std::path::PathBuf;

/// Why nothing can be encrypted.
#[derive(Debug, thiserror::Error)]
pub enum EncryptionError {
    /// The kernel has no random numbers yet, so that no key can be made.
    #[error(
        "cannot make a key: the kernel's random number generator is not ready after {seconds} s; boot the capture kernel with \
         random.trust_cpu=1"
    )]
    NoRandomness {
        /// How long it was waited for.
        seconds: u64,
    },
    /// The system refused random numbers.
    #[error("cannot make a key: getrandom: {0}")]
    Random(io::Error),
}

/// Why a text is not a recipient, or a file of recipients cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecipientError {
    /// It is none.
    #[error("{what}")]
    Invalid {
        /// One sentence: what was expected.
        what: &'static str,
    },
    /// A line of a file is none.
    #[error("{path}, line {line}: {what}", path = path.display())]
    InvalidLine {
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// One sentence: what was expected.
        what: &'static str,
    },
    /// A file has no recipient.
    #[error("{path} has no recipient: expected one a line", path = .0.display())]
    Empty(PathBuf),
    /// The file cannot be read.
    #[error("cannot read the recipients in {path}: {source}", path = path.display())]
    Io { path: PathBuf, source: io::Error },
}
