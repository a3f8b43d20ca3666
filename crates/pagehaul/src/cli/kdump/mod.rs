//! `pagehaul kdump`: a machine's kdump set-up from the plan to the proof.

mod apply;
mod check;
mod plan;
mod recipients;
mod report;
mod test;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use pagehaul_kdump_setup::{Config, Facts, Root};
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

/// Why pagehaul in makedumpfile's place writes no dump with the configured options. `is_encrypted` says whether there are recipients.
fn refused(config: &Config, is_encrypted: bool) -> Option<String> {
    let refusal = makedumpfile::refusal(&config.command_line());
    refusal.or_else(|| makedumpfile::unencrypted(&config.command_line()).filter(|_| is_encrypted))
}

/// Reads a machine's set-up, and has makedumpfile's options read as in a crash.
fn facts(root: &Root) -> Facts {
    let mut facts = Facts::read(root);
    if let Some(config) = &facts.config {
        facts.recipients = recipients::of_machine(root);
        facts.refused = refused(config, facts.recipients.is_some());
        facts.level = makedumpfile::written_by(&config.collector).map(|(level, _)| level.bits());
    }
    facts
}
