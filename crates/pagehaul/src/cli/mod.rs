//! The command line: one module a command.

pub(crate) mod bench;
pub(crate) mod capture;
#[cfg(feature = "process")]
pub(crate) mod checkpoint;
pub(crate) mod completeness;
pub(crate) mod convert;
#[cfg(feature = "process")]
pub(crate) mod core;
#[cfg(feature = "process")]
mod core_encrypted;
#[cfg(feature = "process")]
pub(crate) mod core_handler;
#[cfg(feature = "process")]
pub(crate) mod core_info;
pub(crate) mod dmesg;
mod dump_output;
mod encrypt_to;
mod erase;
pub(crate) mod facts;
pub(crate) mod generate;
pub(crate) mod info;
#[cfg(feature = "kdump-setup")]
pub(crate) mod kdump;
mod keep;
#[cfg(feature = "stalls")]
pub(crate) mod latency;
#[cfg(feature = "mount")]
pub(crate) mod mount;
mod options;
#[cfg(feature = "census")]
pub(crate) mod pages;
pub(crate) mod parse;
mod pstore;
pub(crate) mod read;
#[cfg(feature = "stalls")]
pub(crate) mod reclaim;
mod redact;
#[cfg(feature = "stalls")]
mod tracing;
pub(crate) mod triage;
mod verdict;
pub(crate) mod verify;
#[cfg(feature = "process")]
pub(crate) mod verify_process;
#[cfg(feature = "stalls")]
pub(crate) mod vmalloc;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::cli::options::Identity;

/// Capture crash dumps of Linux machines, read them, and explain where memory and time went
#[derive(Debug, Parser)]
#[command(
    version,
    propagate_version = true,
    after_help = "On a terminal, reports have colours (NO_COLOR=1: none) and go through a pager: $PAGEHAUL_PAGER, $PAGER or less \
(PAGER=cat: none)."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Keeps what opens the encrypted ones of `files`. Returns those that a checkpoint is based on: besides the file that is named, they have
/// to be within reach. Has to precede the sandbox.
fn hold(files: &[PathBuf], identity: &Identity) -> anyhow::Result<Vec<PathBuf>> {
    let mut unlocking = identity.unlocking()?;
    files.iter().try_for_each(|file| unlocking.hold(file))?;
    Ok(match files {
        #[cfg(feature = "process")]
        [file] => pagehaul_process::bases_of(file, |file| unlocking.hold(file))?,
        _ => Vec::new(),
    })
}

impl Command {
    /// Whether others read what it serves, and get its errors.
    #[cfg(feature = "remote")]
    pub(crate) fn is_mount(&self) -> bool {
        #[cfg(feature = "mount")]
        return matches!(self, Self::Mount(_));
        #[cfg(not(feature = "mount"))]
        false
    }

    /// Whether it prints a report that can be longer than a screen.
    pub(crate) fn is_paged(&self) -> bool {
        match self {
            Self::Triage(_) | Self::Dmesg(_) => true,
            #[cfg(feature = "census")]
            Self::Pages(_) => true,
            #[cfg(feature = "stalls")]
            Self::Reclaim(arguments) => arguments.is_report(),
            #[cfg(feature = "kdump-setup")]
            Self::Kdump(arguments) => arguments.is_check(),
            _ => false,
        }
    }

    /// Whether to print how much was fetched, and what the sandbox lacks.
    pub(crate) fn is_verbose(&self) -> bool {
        match self {
            Self::Convert(arguments) => arguments.dump.verbose,
            Self::Info(arguments) => arguments.verbose.is_set(),
            Self::Triage(arguments) => arguments.verbose.is_set(),
            Self::Facts(arguments) => arguments.verbose.is_set(),
            Self::Dmesg(arguments) => arguments.verbose.is_set(),
            Self::Read(arguments) => arguments.verbose.is_set(),
            #[cfg(feature = "census")]
            Self::Pages(arguments) => arguments.verbose.is_set(),
            Self::Verify(arguments) => arguments.verbose,
            _ => false,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(hide = true, name = crate::pager::HELPER)]
    HoldPager {
        program: OsString,
    },
    Capture(capture::CaptureArguments),
    Convert(convert::ConvertArguments),
    Info(info::InfoArguments),
    Triage(triage::TriageArguments),
    Facts(facts::FactsArguments),
    Dmesg(dmesg::DmesgArguments),
    Read(read::ReadArguments),
    #[cfg(feature = "census")]
    Pages(pages::PagesArguments),
    Verify(verify::VerifyArguments),
    #[cfg(feature = "mount")]
    Mount(mount::MountArguments),
    #[cfg(feature = "process")]
    Core(core::CoreArguments),
    #[cfg(feature = "process")]
    #[command(name = core_handler::NAME)]
    CoreHandler(core_handler::CoreHandlerArguments),
    #[cfg(feature = "process")]
    Checkpoint(checkpoint::CheckpointArguments),
    #[cfg(feature = "process")]
    Restart(checkpoint::RestartArguments),
    #[cfg(feature = "process")]
    #[command(hide = true, name = pagehaul_process::SNAPSHOT_HELPER)]
    HoldSnapshot {
        pid: i32,
        state: u8,
    },
    #[cfg(feature = "process")]
    #[command(hide = true, name = pagehaul_process::USERFAULTFD_HELPER)]
    HoldUserfaultfd {
        pid: i32,
        opens: u8,
    },
    #[cfg(feature = "process")]
    #[command(hide = true, name = pagehaul_process::MARKS_HELPER)]
    HoldMarks {
        pid: i32,
    },
    #[cfg(feature = "stalls")]
    Reclaim(reclaim::ReclaimArguments),
    #[cfg(feature = "stalls")]
    Latency(latency::LatencyArguments),
    #[cfg(feature = "stalls")]
    Vmalloc(vmalloc::VmallocArguments),
    #[cfg(feature = "kdump-setup")]
    Kdump(kdump::KdumpArguments),
    Bench(bench::BenchArguments),
    /// Run as makedumpfile: its command line, messages and exit statuses, as when called by its name
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Makedumpfile {
        /// makedumpfile's arguments; `-h` lists them
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages
    Man {
        /// Directory to write them to
        directory: PathBuf,
    },
}

#[cfg(all(
    test,
    feature = "bench",
    feature = "census",
    feature = "html",
    feature = "kdump-setup",
    feature = "mount",
    feature = "process",
    feature = "stalls"
))]
#[path = "../../tests/common/path_options.rs"]
mod path_options;

#[cfg(all(
    test,
    feature = "bench",
    feature = "census",
    feature = "html",
    feature = "kdump-setup",
    feature = "mount",
    feature = "process",
    feature = "stalls"
))]
mod tests {
    use std::any::TypeId;

    use clap::CommandFactory;

    use super::*;

    /// Visits the commands below `command`, which are called `name`.
    fn visit(command: &clap::Command, name: &str, found: &mut Vec<(String, String)>) {
        for argument in command.get_arguments() {
            let takes_path = argument.get_value_parser().type_id() == TypeId::of::<PathBuf>();
            if takes_path {
                found.push((name.to_owned(), argument.get_id().to_string()));
            }
            let is_output = path_options::OUTPUTS.contains(&(name, argument.get_id().as_str()));
            let has_force = command.get_arguments().any(|other| other.get_long() == Some("force"));
            assert!(!is_output || has_force, "{name} has no --force for {}", argument.get_id());
        }
        for command in command.get_subcommands() {
            let name = format!("{name} {}", command.get_name());
            visit(command, name.trim_start(), found);
        }
    }

    #[test]
    fn every_option_that_names_a_file_is_known_as_an_output_or_not() {
        let mut found = Vec::new();
        visit(&Arguments::command(), "", &mut found);
        let mut known: Vec<(String, String)> = [path_options::OUTPUTS, path_options::OTHERS]
            .concat()
            .iter()
            .map(|(command, argument)| ((*command).to_owned(), (*argument).to_owned()))
            .collect();
        found.sort();
        known.sort();
        assert_eq!(
            found, known,
            "add the new one to tests/common/path_options.rs, and an output to tests/outputs.rs as well"
        );
    }
}
