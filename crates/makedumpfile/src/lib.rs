//! pagehaul called as makedumpfile: its command line, messages and exit statuses, for kdump scripts that call it by name.
//!
//! The kdump scripts of Debian, Fedora and openSUSE test only whether the exit status is 0, or lose even that in a pipe.
//! So an incomplete dump is marked in the file or stream itself, and reported on the console at every message level.

// The messages go to where they may be waited for; the print macros panic.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod dmesg;
mod done;
mod dump;
mod error;
#[cfg(test)]
mod forms;
mod getopt;
mod help;
mod hints;
mod host;
mod mem_usage;
mod messages;
mod options;
mod progress;
mod rearrange;
mod recipients;
mod stats;
mod task;

use std::ffi::OsString;
use std::path::Path;

use done::Done;
use error::Error;
pub use host::{Host, HostError};
use messages::{COMMON, Messages};
pub use options::Options;
use pagehaul_codec::Method;
use pagehaul_kernel::DumpLevel;
pub use recipients::FILE as RECIPIENTS;
pub use task::{Invalid, Task};

const NAME: &str = "makedumpfile";

/// Returns makedumpfile's arguments if this program was called by its name, or with it as the first argument.
pub fn arguments() -> Option<Vec<OsString>> {
    let mut arguments = std::env::args_os();
    let program = arguments.next()?;
    if Path::new(&program).file_name().is_some_and(|name| name == NAME) {
        return Some(arguments.collect());
    }
    (arguments.next()? == NAME).then(|| arguments.collect())
}

/// Returns level and compression of the dumps that a kdump's command line writes. `None` if its program is not makedumpfile, or
/// if it is invalid.
pub fn written_by(command: &[String]) -> Option<(DumpLevel, Method)> {
    let (program, options) = command.split_first()?;
    Path::new(program).file_name().filter(|name| *name == NAME)?;
    let options = Options::parse(options.iter().map(OsString::from));
    let level = *options.dump_levels().ok()?.first()?;
    // An ELF dump is not compressed.
    Some((level, dump::method(options.codec.filter(|_| !options.elf))))
}

/// Returns why a command line of makedumpfile is refused, if it is one and is refused.
pub fn refusal(command: &[String]) -> Option<String> {
    let (program, arguments) = command.split_first()?;
    Path::new(program).file_name().filter(|name| *name == NAME)?;
    match Options::parse(arguments.iter().map(OsString::from)).task() {
        Ok(_) => None,
        Err(Invalid::Because(reason)) => Some(reason),
        Err(Invalid::Combination) => Some("these options and files do not go together".into()),
    }
}

/// Returns why the dump of a command line of makedumpfile cannot be encrypted, if it is one: where a file of recipients asks for it, none
/// is written.
pub fn unencrypted(command: &[String]) -> Option<String> {
    let (program, arguments) = command.split_first()?;
    Path::new(program).file_name().filter(|name| *name == NAME)?;
    let options = Options::parse(arguments.iter().map(OsString::from));
    recipients::check(&options).err().map(|error| error.sentence())
}

/// Does what the command line asks for, with messages on standard output and standard error. Returns whether the output is complete:
/// the exit status is 0, or 1 if it is not.
pub fn run(arguments: Vec<OsString>, host: &dyn Host) -> bool {
    let options = Options::parse(arguments);
    let mut messages = Messages::new(options.message_level, options.flattened);
    let task = match options.task() {
        Ok(task) => task,
        Err(reason) => {
            if let Invalid::Because(reason) = reason {
                messages.alarm(&format!("makedumpfile: {reason}"));
            }
            messages.say(COMMON, "Commandline parameter is invalid.");
            messages.say(COMMON, "Try `makedumpfile --help' for more information.");
            return failed(&mut messages);
        }
    };
    if options.check_params {
        return match check(&task, &options) {
            Ok(()) => true,
            Err(error) => {
                messages.alarm(&format!("makedumpfile: {}", error.sentence()));
                failed(&mut messages)
            }
        };
    }
    if options.symbols {
        messages.say(COMMON, "makedumpfile: -x and -i are not needed: the vmcore describes its kernel.");
    }
    let refused = match &task {
        Task::Reassemble { .. } | Task::Rearrange { .. } => recipients::refuse_copies(),
        _ => Ok(()),
    };
    let done = refused.and_then(|()| match task {
        Task::Help => help::usage(host),
        Task::Version => help::version(host),
        Task::Dump { source, outputs } => dump::dump(&options, &source, &outputs, host, &mut messages),
        Task::DryRun { source } => dump::dry_run(&options, &source, host, &mut messages),
        Task::Reassemble { parts, output } => {
            dump::reassemble(&options, &parts, &output, host, &mut messages)
        }
        Task::Dmesg { source, output } => {
            dmesg::save(&options, &source, output.as_deref(), host, &mut messages)
        }
        Task::Rearrange { output } => rearrange::rearrange(&options, &output, &mut messages),
        Task::MemUsage { source } => mem_usage::show(&source, host, &mut messages),
    });
    match done {
        Ok(Done::Printed) => true,
        Ok(Done::Complete) => {
            messages.say(COMMON, "\nmakedumpfile Completed.");
            true
        }
        Ok(Done::Incomplete) => failed(&mut messages),
        Err(error) => {
            messages.say(messages::ERROR, &format!("makedumpfile: {}", error.sentence()));
            failed(&mut messages)
        }
    }
}

/// Fails if a dump would be refused for what is not on the command line.
fn check(task: &Task, options: &Options) -> Result<(), Error> {
    if matches!(task, Task::Reassemble { .. } | Task::Rearrange { .. }) {
        return recipients::refuse_copies();
    }
    let Task::Dump { source, .. } = task else { return Ok(()) };
    match recipients::of(source)? {
        Some(_) => recipients::check(options),
        None => Ok(()),
    }
}

fn failed(messages: &mut Messages) -> bool {
    messages.say(COMMON, "\nmakedumpfile Failed.");
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_says_what_it_writes() {
        let written = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            written_by(&words).map(|(level, method)| format!("{level} {method}"))
        };
        for (line, expected) in [
            ("makedumpfile -F -c -d 31", Some("31 zlib:1")),
            ("/sbin/makedumpfile -l --message-level 7 -d 11,31", Some("11 lzo")),
            ("makedumpfile -Fzd17", Some("17 zstd:1")),
            ("makedumpfile -E", Some("0 none")),
            ("makedumpfile -cE -d 31", Some("31 none")),
            ("makedumpfile -F -d 31", Some("31 none")),
            ("makedumpfile -d 32", None),
            ("cp --sparse=always", None),
        ] {
            assert_eq!(written(line).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn an_elf_dump_is_not_encrypted() {
        let refused = |line: &str| unencrypted(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert!(refused("makedumpfile -F -E -d 31").unwrap().starts_with("-E cannot be encrypted"));
        assert_eq!(refused("makedumpfile -F -z -d 31"), None);
    }

    #[test]
    fn a_command_line_is_refused_as_in_a_crash() {
        let refused = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            refusal(&words)
        };
        for (line, expected) in [
            ("makedumpfile -F -c -d 31 vmcore", None),
            ("makedumpfile -l -d 31 vmcore dumpfile", None),
            ("scp", None),
            ("makedumpfile -F -d 32 vmcore", Some("Dump_level(32) is invalid.")),
            ("makedumpfile -F -l vmcore dumpfile", Some("these options and files do not go together")),
            ("makedumpfile --conf=erase -F vmcore", Some("--config is refused: data cannot be erased")),
        ] {
            let found = refused(line);
            assert_eq!(found.is_some(), expected.is_some(), "{line}: {found:?}");
            assert!(found.unwrap_or_default().starts_with(expected.unwrap_or_default()), "{line}");
        }
    }
}
