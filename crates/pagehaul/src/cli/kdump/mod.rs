//! `pagehaul kdump`: a machine's kdump set-up from the plan to the proof.

mod apply;
mod check;
mod plan;
mod recipients;
mod report;
mod test;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use pagehaul_kdump_setup::{Facts, Root};
use pagehaul_makedumpfile as makedumpfile;

/// Plan, check, apply and prove how this machine is set up for kdump
#[derive(Debug, Args)]
pub(crate) struct KdumpArguments {
    #[command(subcommand)]
    command: KdumpCommand,
}

impl KdumpArguments {
    /// Whether it is `kdump check`.
    pub(crate) fn is_check(&self) -> bool {
        matches!(self.command, KdumpCommand::Check(_))
    }
}

#[derive(Debug, Subcommand)]
enum KdumpCommand {
    Plan(plan::PlanArguments),
    Check(check::CheckArguments),
    Apply(apply::ApplyArguments),
    Test(test::TestArguments),
    Report(report::ReportArguments),
}

pub(crate) fn run(arguments: &KdumpArguments) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        KdumpCommand::Plan(arguments) => plan::run(arguments),
        KdumpCommand::Check(arguments) => check::run(arguments),
        KdumpCommand::Apply(arguments) => apply::run(arguments),
        KdumpCommand::Test(arguments) => test::run(arguments),
        KdumpCommand::Report(arguments) => report::run(arguments),
    }
}

/// Reads a machine's set-up, and has makedumpfile's options read as in a crash.
fn facts(root: &Root) -> Facts {
    let mut facts = Facts::read(root);
    if let Some(config) = &facts.config {
        facts.recipients = recipients::of_machine(root);
        facts.refused = makedumpfile::refusal(&config.command_line());
        facts.level = makedumpfile::written_by(&config.collector).map(|(level, _)| level.bits());
    }
    facts
}
