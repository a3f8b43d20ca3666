//! Exceptions: those of `pagehaul/_errors.py`, with the messages of the command line.

use std::error::Error;
use std::fmt::Display;
use std::io;
use std::path::Path;

use pagehaul_kernel::TranslateError;
use pagehaul_physmem::file::{is_url, shown};
use pagehaul_physmem::{PageState, ReadError};
use pyo3::prelude::*;
use pyo3::{PyErr, import_exception};

import_exception!(pagehaul._errors, Closed);
import_exception!(pagehaul._errors, Damaged);
import_exception!(pagehaul._errors, InvalidAddress);
import_exception!(pagehaul._errors, KernelError);
import_exception!(pagehaul._errors, Missing);
import_exception!(pagehaul._errors, NotInDump);
import_exception!(pagehaul._errors, NotPresent);
import_exception!(pagehaul._errors, TraceError);

/// Why memory was not read.
pub(crate) enum ReadFailure {
    /// The dump, whose first path this is, was closed.
    Closed(String),
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
            Self::Closed(path) => write!(f, "{path}: the dump is closed; open it again"),
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
            ReadFailure::Closed(_) => return Closed::new_err(failure.to_string()),
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

/// A file cannot be opened. `paths` are those that the caller gave, of which the message names one.
///
/// Where a system call failed, the exception has its errno and is of Python's class for it, such as FileNotFoundError.
pub(crate) fn open_error<P: AsRef<Path>>(why: impl Error + 'static, paths: &[P]) -> PyErr {
    let message = why.to_string();
    let shown: Vec<_> = paths.iter().map(|path| shown(path.as_ref())).collect();
    // Of the parts of a set, the longest that the message names: `dump.1` is in `dump.10`, too.
    let named = shown.iter().zip(paths).filter(|(path, _)| message.contains(&*path.to_string_lossy()));
    let named =
        named.max_by_key(|(path, _)| path.as_os_str().len()).or_else(|| shown.iter().zip(paths).next());
    let errno = errno(&why).or_else(|| {
        let (_, path) = named?;
        (!is_url(path.as_ref()) && path.as_ref().is_dir()).then_some(libc::EISDIR)
    });
    let filename = named.map(|(path, _)| path.as_os_str());
    Python::attach(|py| {
        let made = py
            .import("pagehaul._errors")
            .and_then(|errors| errors.getattr("open_error")?.call1((message, errno, filename)));
        made.map_or_else(|error| error, PyErr::from_value)
    })
}

/// Returns the errno of the system call that failed, or the one that fits the answer of a server.
fn errno(why: &(dyn Error + 'static)) -> Option<i32> {
    let mut next = Some(why);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return error.raw_os_error().or(match error.kind() {
                io::ErrorKind::NotFound => Some(libc::ENOENT),
                io::ErrorKind::PermissionDenied => Some(libc::EACCES),
                io::ErrorKind::ConnectionAborted => Some(libc::ECONNABORTED),
                _ => None,
            });
        }
        next = error.source();
    }
    None
}

/// Returns the address that `number` is.
///
/// # Errors
/// Fails with InvalidAddress if it is negative or has more than 64 bits.
pub(crate) fn address(number: &Bound<'_, PyAny>) -> PyResult<u64> {
    number.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<pyo3::exceptions::PyOverflowError>(number.py()) {
            InvalidAddress::new_err(format!("address {number} is outside of 0 to 2**64 - 1"))
        } else {
            error
        }
    })
}

/// The kernel of a dump is unknown or unreadable.
pub(crate) fn kernel_error(why: impl Display) -> PyErr {
    KernelError::new_err(why.to_string())
}
