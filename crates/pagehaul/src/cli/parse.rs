//! Parsing the command line.

use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Arguments;
use crate::{exit, makedumpfile_hints};

/// Parses the command line. Prints help or clap's error, and returns the exit status for it.
pub(crate) fn parse() -> Result<Arguments, ExitCode> {
    Arguments::try_parse().map_err(|error| {
        // The exit status is the same if it cannot be printed.
        let _ = error.print();
        if let Some((option, instead)) = makedumpfile_hint(&error) {
            tell!("");
            tell!("The equivalent of makedumpfile's {option}: {instead}.");
        }
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(exit::USAGE))
    })
}

/// Returns an option of makedumpfile's and its equivalent here.
fn makedumpfile_hint(error: &clap::Error) -> Option<(&str, &'static str)> {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    if error.kind() != ErrorKind::UnknownArgument && !lacks_value(error) {
        return None;
    }
    let instead = makedumpfile_hints::instead_of(option)?;
    // clap reports a `-c` without a codec by its long name.
    Some((if option.starts_with("--compress") { "-c" } else { option }, instead))
}

/// Whether an option was given without its value.
fn lacks_value(error: &clap::Error) -> bool {
    matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value.is_empty())
}
