//! pagehaul gets the memory of a Linux machine out, fast, and makes sense of it.

// They panic where nothing can be written; `say!` and `tell!` don't.
#![deny(clippy::print_stdout, clippy::print_stderr)]

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
mod usage;
mod verify;
#[cfg(feature = "process")]
mod verify_process;
#[cfg(feature = "stalls")]
mod vmalloc;

use std::process::ExitCode;

use args::Command;

fn main() -> ExitCode {
    let arguments = match usage::parse() {
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
        Err(error) if error.is::<usage::Wrong>() => {
            tell!("pagehaul: {}", sentence(&error));
            ExitCode::from(usage::WRONG)
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
