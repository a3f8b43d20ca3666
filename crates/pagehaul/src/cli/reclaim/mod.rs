//! `pagehaul reclaim`.

mod args;
mod child;
mod compare;
mod export;
mod load;
mod record;
mod report;

use std::process::ExitCode;

pub(crate) use args::ReclaimArguments;
use args::ReclaimCommand;

pub(crate) fn run(arguments: &ReclaimArguments) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        ReclaimCommand::Record(arguments) => record::run(arguments),
        ReclaimCommand::Report(arguments) => report::run(arguments),
        ReclaimCommand::Compare(arguments) => compare::run(arguments),
        ReclaimCommand::Export(arguments) => export::run(arguments),
    }
}
