//! Errors of command lines that clap accepts.

use std::fmt;

/// Options that contradict each other in a way that clap cannot express.
#[derive(Debug)]
pub(crate) struct Wrong(String);

impl fmt::Display for Wrong {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

/// Returns the error of a wrong command line.
pub(crate) fn wrong(what: impl Into<String>) -> anyhow::Error {
    Wrong(what.into()).into()
}
