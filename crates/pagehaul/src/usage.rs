//! The command line, and what is wrong with one.

use std::fmt;
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli::Arguments;
use crate::makedumpfile_hints;

/// Exit status of a wrong command line, the same as clap's.
pub(crate) const WRONG: u8 = 2;

/// A command line whose parts do not go together in a way that clap does not see.
#[derive(Debug)]
pub(crate) struct Wrong(String);

impl fmt::Display for Wrong {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

/// The error of a wrong command line.
pub(crate) fn wrong(what: impl Into<String>) -> anyhow::Error {
    Wrong(what.into()).into()
}

/// The command line. Of a wrong one, or where help was asked for, clap's words are printed.
pub(crate) fn parse() -> Result<Arguments, ExitCode> {
    Arguments::try_parse().map_err(|error| {
        // That it cannot be written changes nothing.
        let _ = error.print();
        if let Some((option, instead)) = habit(&error) {
            tell!("\nIf this is makedumpfile's {option}: here it is {instead}.");
        }
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(WRONG))
    })
}

/// An option of makedumpfile's, and what to write instead.
fn habit(error: &clap::Error) -> Option<(&str, &'static str)> {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    if error.kind() != ErrorKind::UnknownArgument && !lacks_value(error) {
        return None;
    }
    let instead = makedumpfile_hints::instead_of(option)?;
    // A `-c` without a codec: clap calls it by its long name.
    Some((if option.starts_with("--compress") { "-c" } else { option }, instead))
}

/// Whether an option was given without its value.
fn lacks_value(error: &clap::Error) -> bool {
    matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value.is_empty())
}
