//! Parsing the command line.

use std::ffi::OsString;
#[cfg(feature = "process")]
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use super::Arguments;
use crate::{exit, makedumpfile_hints};

/// Parses the command line. Prints help or clap's error, and returns the exit status for it.
pub(crate) fn parse() -> Result<Arguments, ExitCode> {
    Arguments::try_parse_from(words()).map_err(|mut error| {
        let output = output_hint(&error);
        if error.kind() == ErrorKind::UnknownArgument {
            // "to pass '-o' as a value, use '-- -o'": no file has such a name.
            error.remove(ContextKind::Suggested);
        }
        // The exit status is the same if it cannot be printed.
        let _ = error.print();
        if let Some((option, instead)) = makedumpfile_hint(&error) {
            tell!("");
            tell!("The equivalent of makedumpfile's {option}: {instead}.");
        }
        if let Some(output) = output {
            tell!("");
            tell!("{output}.");
        }
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(exit::USAGE))
    })
}

/// The words of the command line. By the name of the core handler, this program is that command.
fn words() -> Vec<OsString> {
    let words = std::env::args_os();
    #[cfg(feature = "process")]
    let words = {
        let mut words: Vec<OsString> = words.collect();
        let program = words.first().and_then(|program| Path::new(program).file_name());
        if program == Some(super::core_handler::NAME.as_ref()) {
            words.insert(1, super::core_handler::NAME.into());
        }
        words.into_iter()
    };
    words.collect()
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

/// Returns where the output of a command goes that has no `-o`.
fn output_hint(error: &clap::Error) -> Option<&'static str> {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    if error.kind() != ErrorKind::UnknownArgument || !["-o", "--output"].contains(&option.as_str()) {
        return None;
    }
    let program = Arguments::command();
    let command = std::env::args().skip(1).find_map(|word| program.find_subcommand(word).cloned())?;
    let takes_output = command.get_arguments().any(|argument| {
        argument.get_value_names().unwrap_or_default().last().is_some_and(|name| *name == "OUTPUT")
    });
    let takes_html = command.get_arguments().any(|argument| argument.get_id() == "html");
    Some(if takes_output {
        "The output is the last argument, without an option"
    } else if takes_html {
        "This command prints to standard output (> FILE); --html FILE writes a web page"
    } else {
        "This command prints to standard output (> FILE)"
    })
}

/// Whether an option was given without its value.
fn lacks_value(error: &clap::Error) -> bool {
    matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value.is_empty())
}
