//! Captures, reads and explains memory of Linux machines.

// They panic if nothing can be written; `say!` and `tell!` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

/// Prints a line on standard error. A failure (a full disk, a closed terminal) is ignored, unlike by `eprintln!`, which panics.
macro_rules! tell {
    ($($text:tt)*) => {
        $crate::printed::tell(format_args!($($text)*))
    };
}

/// Prints a line on standard output, or returns why it cannot.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::printed::line(format_args!($($text)*))
    };
}

mod cli;
mod clock;
mod crash_report;
mod exit;
mod files;
mod makedumpfile;
mod makedumpfile_hints;
mod out_of_memory;
mod pager;
mod printed;
mod progress;
mod run;
mod sandbox;
mod signal_stacks;
mod signals;
mod standard_output;
mod usage;

use std::process::ExitCode;

use cli::Command;
#[cfg(feature = "remote")]
use pagehaul_present::number;
use pagehaul_present::sentence;

fn main() -> ExitCode {
    out_of_memory::spare_address_space();
    signals::fail_writes_beyond_limits();
    if let Some(arguments) = pagehaul_makedumpfile::arguments() {
        return makedumpfile::run(arguments);
    }
    #[cfg(feature = "process")]
    if let Some(code) = pagehaul_process::action_script() {
        return code;
    }
    let arguments = match cli::parse::parse() {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    #[cfg(feature = "remote")]
    pagehaul_remote::print_notices(|notice| tell!("pagehaul: {notice}"));
    let is_verbose = arguments.command.is_verbose();
    #[cfg(feature = "remote")]
    let is_mount = arguments.command.is_mount();
    if arguments.command.is_paged() {
        pager::start();
    }
    let result = match arguments.command {
        Command::Bench(arguments) => cli::bench::run(&arguments),
        Command::Capture(arguments) => cli::capture::run(&arguments),
        #[cfg(feature = "process")]
        Command::Checkpoint(arguments) => cli::checkpoint::save(&arguments),
        #[cfg(feature = "process")]
        Command::Restart(arguments) => cli::checkpoint::restore(&arguments),
        #[cfg(feature = "process")]
        Command::Core(arguments) => cli::core::run(&arguments),
        #[cfg(feature = "process")]
        Command::CoreHandler(arguments) => cli::core_handler::run(&arguments),
        #[cfg(feature = "process")]
        Command::HoldSnapshot { pid, state } => cli::core::hold_snapshot(pid, state),
        #[cfg(feature = "process")]
        Command::HoldUserfaultfd { pid, opens } => cli::checkpoint::hold_userfaultfd(pid, opens != 0),
        #[cfg(feature = "process")]
        Command::HoldMarks { .. } => cli::checkpoint::hold_marks(),
        Command::HoldPager { program } => return pager::hold(&program),
        #[cfg(feature = "kdump-setup")]
        Command::Kdump(arguments) => cli::kdump::run(&arguments),
        Command::Facts(arguments) => cli::facts::run(&arguments),
        Command::Info(arguments) => cli::info::run(&arguments),
        #[cfg(feature = "stalls")]
        Command::Reclaim(arguments) => cli::reclaim::run(&arguments),
        Command::Convert(arguments) => cli::convert::run(&arguments),
        Command::Dmesg(arguments) => cli::dmesg::run(&arguments),
        Command::Makedumpfile { arguments } => return makedumpfile::run(arguments),
        #[cfg(feature = "mount")]
        Command::Mount(arguments) => cli::mount::run(&arguments),
        #[cfg(feature = "census")]
        Command::Pages(arguments) => cli::pages::run(&arguments),
        Command::Read(arguments) => cli::read::run(&arguments),
        Command::Triage(arguments) => cli::triage::run(&arguments),
        Command::Verify(arguments) => cli::verify::run(&arguments),
        #[cfg(feature = "stalls")]
        Command::Latency(arguments) => cli::latency::run(&arguments),
        #[cfg(feature = "stalls")]
        Command::Vmalloc(arguments) => cli::vmalloc::run(&arguments),
        Command::Completions { shell } => cli::generate::completions(shell),
        Command::Man { directory } => cli::generate::man_pages(&directory),
    };
    pager::end();
    if is_verbose {
        sandbox::tell_gaps();
    }
    #[cfg(feature = "remote")]
    if is_verbose {
        let fetched = pagehaul_remote::fetched();
        let (bytes, requests) = (number::bytes(fetched.bytes), number::count(fetched.requests));
        tell!("pagehaul: {bytes} fetched in {requests} ranges");
    }
    match result {
        #[cfg(feature = "remote")]
        // Whatever else it found: what a server keeps back is no damage of the dump.
        Ok(_) if !is_mount && let Some(failure) = pagehaul_remote::failure() => {
            tell!("pagehaul: {failure}; what was printed or written lacks a part of it");
            ExitCode::FAILURE
        }
        Ok(code) => code,
        // The reader has seen enough.
        Err(error) if error.is::<printed::Closed>() => ExitCode::SUCCESS,
        Err(error) if error.is::<usage::Wrong>() => {
            tell!("pagehaul: {}", sentence(error.chain()));
            ExitCode::from(exit::USAGE)
        }
        Err(error) => {
            let Some(lacking) = error.downcast_ref::<cli::completeness::Lacking>() else {
                tell!("pagehaul: {}", sentence(error.chain()));
                return ExitCode::FAILURE;
            };
            // The cause precedes its effect.
            tell!("pagehaul: {lacking}");
            tell!("pagehaul: {}", sentence(error.chain().skip(1)));
            ExitCode::from(exit::INCOMPLETE)
        }
    }
}
