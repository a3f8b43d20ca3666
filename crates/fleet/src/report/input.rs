//! Files that a team writes: their size, and errors that name the line.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use pagehaul_physmem::file::open_regular;

/// Bytes of a file, at most: a line for each of a million hosts.
const MAX_BYTES: u64 = 64 << 20;

/// A file cannot be read, or a line is not as expected.
#[derive(Debug)]
pub(crate) enum InputError {
    Read(PathBuf, io::Error),
    Line(PathBuf, Bad),
}

/// A line that is not as expected.
#[derive(Debug)]
pub(crate) struct Bad {
    /// From 1.
    pub(crate) line: usize,
    pub(crate) expected: String,
}

impl Bad {
    pub(crate) fn new(line: usize, expected: &str) -> Self {
        Self { line, expected: expected.to_owned() }
    }

    pub(crate) fn of(self, path: &Path) -> InputError {
        InputError::Line(path.to_owned(), self)
    }
}

impl std::fmt::Display for InputError {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read(path, error) => write!(out, "cannot read {}: {error}", path.display()),
            Self::Line(path, bad) => {
                write!(out, "{}, line {}: expected {}", path.display(), bad.line, bad.expected)
            }
        }
    }
}

impl std::error::Error for InputError {}

/// Reads a text file.
///
/// # Errors
/// Fails if it cannot be read, is too large, or is not UTF-8.
pub(crate) fn read(path: &Path) -> Result<String, InputError> {
    let failed = |error| InputError::Read(path.to_owned(), error);
    let mut text = Vec::new();
    open_regular(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut text)).map_err(failed)?;
    if text.len() as u64 > MAX_BYTES {
        let error = format!("it has more than {} MiB", MAX_BYTES >> 20);
        return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, error)));
    }
    String::from_utf8(text).map_err(|error| {
        let before = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        Bad::new(line, "UTF-8").of(path)
    })
}
