//! pagehaul gets the memory of a Linux machine out, fast, and makes sense of it.

/// A line on standard error. That it cannot be written (a full disk, a terminal that is gone) changes nothing about what
/// the command does, where `eprintln!` would panic.
macro_rules! tell {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

/// A line on standard output, or why it cannot be written.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::printed::line(format_args!($($text)*))
    };
}

mod args;
mod bench;
mod capture;
#[cfg(feature = "process")]
mod checkpoint;
mod convert;
#[cfg(feature = "process")]
mod core;
#[cfg(feature = "process")]
mod core_info;
mod dmesg;
#[cfg(any(feature = "pages", feature = "stalls", feature = "instruments"))]
mod files;
mod generate;
mod habits;
mod info;
#[cfg(feature = "stalls")]
mod latency;
mod memory_use;
#[cfg(feature = "mount")]
mod mount;
#[cfg(feature = "pages")]
mod pages;
mod printed;
mod progress;
mod read;
#[cfg(feature = "stalls")]
mod reclaim;
mod registers;
mod signals;
mod summary;
mod units;
#[cfg(feature = "stalls")]
mod until;
mod verify;
#[cfg(feature = "process")]
mod verify_process;
#[cfg(feature = "stalls")]
mod vmalloc;

use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use args::{Arguments, Command};

/// Exit status of a wrong command line, the same as clap's.
const WRONG_USAGE: u8 = 2;

/// A command line whose parts do not go together in a way that clap does not see.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl std::fmt::Display for Usage {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// The error of a wrong command line.
pub(crate) fn usage(what: impl Into<String>) -> anyhow::Error {
    Usage(what.into()).into()
}

/// The command line, or clap's explanation of what is wrong with it, and its exit status.
fn parse() -> Result<Arguments, ExitCode> {
    Arguments::try_parse().map_err(|error| {
        // On standard output where help was asked for. That it cannot be written changes nothing.
        let _ = error.print();
        let what = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(option))
                if error.kind() == ErrorKind::UnknownArgument || lacks_value(&error) =>
            {
                Some((option, habits::instead_of(option)))
            }
            _ => None,
        };
        if let Some((option, Some(instead))) = what {
            let option = if option.starts_with("--compress") { "-c" } else { option };
            tell!("\nIf this is makedumpfile's {option}: here it is {instead}.");
        }
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(WRONG_USAGE))
    })
}

/// Whether an option was given without its value.
fn lacks_value(error: &clap::Error) -> bool {
    matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value.is_empty())
}

fn main() -> ExitCode {
    let arguments = match parse() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let result = match arguments.command {
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Capture(arguments) => capture::run(&arguments),
        #[cfg(feature = "process")]
        Command::Checkpoint(arguments) => checkpoint::save(&arguments),
        #[cfg(feature = "process")]
        Command::Restart(arguments) => checkpoint::restore(&arguments),
        #[cfg(feature = "process")]
        Command::Core(arguments) => core::run(&arguments),
        #[cfg(feature = "process")]
        Command::HoldSnapshot { pid, state } => core::hold_snapshot(pid, state),
        Command::Info(arguments) => info::run(&arguments),
        #[cfg(feature = "stalls")]
        Command::Reclaim(arguments) => reclaim::run(&arguments),
        Command::Convert(arguments) => convert::run(arguments),
        Command::Dmesg(arguments) => dmesg::run(&arguments),
        #[cfg(feature = "mount")]
        Command::Mount(arguments) => mount::run(&arguments),
        #[cfg(feature = "pages")]
        Command::Pages(arguments) => pages::run(&arguments),
        Command::Read(arguments) => read::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        #[cfg(feature = "stalls")]
        Command::Latency(arguments) => latency::run(&arguments),
        #[cfg(feature = "stalls")]
        Command::Vmalloc(arguments) => vmalloc::run(&arguments),
        Command::Completions { shell } => generate::completions(shell),
        Command::Man { directory } => generate::man_pages(&directory),
    };
    match result {
        Ok(code) => code,
        // Whoever reads has seen enough.
        Err(error) if error.is::<printed::Closed>() => ExitCode::SUCCESS,
        Err(error) if error.is::<Usage>() => {
            tell!("pagehaul: {}", sentence(&error));
            ExitCode::from(WRONG_USAGE)
        }
        Err(error) => {
            tell!("pagehaul: {}", sentence(&error));
            ExitCode::FAILURE
        }
    }
}

/// The error and its causes, each said once: many an error's own words end with those of its cause.
fn sentence(error: &anyhow::Error) -> String {
    let mut sentence = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if sentence.is_empty() {
            sentence = cause;
        } else if !sentence.ends_with(&cause) {
            sentence = format!("{sentence}: {cause}");
        }
    }
    sentence
}

#[cfg(test)]
mod tests {
    use std::io;

    use pagehaul_memory::OpenError;

    use super::*;

    #[test]
    fn causes_are_said_once() {
        let gone = || io::Error::other("it is gone");
        let open = OpenError::Io { path: "dump".into(), action: "open", source: gone() };
        let error = anyhow::Error::from(open).context("nothing to read");
        assert_eq!(sentence(&error), "nothing to read: cannot open dump: it is gone");
        assert_eq!(sentence(&anyhow::Error::from(gone()).context("no dump")), "no dump: it is gone");
    }
}
