//! Exceptions: those of `pagehaul/_errors.py`, with the messages of the command line.

use std::fmt::Display;

use pagehaul_kernel::TranslateError;
use pagehaul_physmem::{PageState, ReadError};
use pyo3::{PyErr, import_exception};

import_exception!(pagehaul._errors, Damaged);
import_exception!(pagehaul._errors, KernelError);
import_exception!(pagehaul._errors, Missing);
import_exception!(pagehaul._errors, NotInDump);
import_exception!(pagehaul._errors, NotPresent);
import_exception!(pagehaul._errors, OpenError);
import_exception!(pagehaul._errors, TraceError);

/// Why memory was not read.
pub(crate) enum ReadFailure {
    Physical(ReadError),
    Virtual(TranslateError),
    /// The kernel's page tables were not found.
    NoKernel(String),
}

impl From<ReadError> for ReadFailure {
    fn from(error: ReadError) -> Self {
        Self::Physical(error)
    }
}

impl From<TranslateError> for ReadFailure {
    fn from(error: TranslateError) -> Self {
        Self::Virtual(error)
    }
}

impl Display for ReadFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Physical(error) => error.fmt(f),
            Self::Virtual(error) => error.fmt(f),
            Self::NoKernel(why) => write!(f, "virtual addresses need the kernel's page tables: {why}"),
        }
    }
}

impl From<ReadFailure> for PyErr {
    fn from(failure: ReadFailure) -> Self {
        let state = match &failure {
            ReadFailure::Physical(error) => error.state(),
            ReadFailure::Virtual(error) => error.state(),
            ReadFailure::NoKernel(_) => return KernelError::new_err(failure.to_string()),
        };
        let message = failure.to_string();
        match state {
            PageState::Absent => NotPresent::new_err(message),
            PageState::Excluded => NotInDump::new_err(message),
            PageState::Missing => Missing::new_err(message),
            PageState::Damaged | PageState::Present => Damaged::new_err(message),
        }
    }
}

/// A file cannot be opened.
pub(crate) fn open_error(why: impl Display) -> PyErr {
    OpenError::new_err(why.to_string())
}

/// The kernel of a dump is unknown or unreadable.
pub(crate) fn kernel_error(why: impl Display) -> PyErr {
    KernelError::new_err(why.to_string())
}
