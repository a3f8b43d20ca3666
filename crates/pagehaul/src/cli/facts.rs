//! `pagehaul facts`.

use std::process::ExitCode;

use clap::Args;
use pagehaul_facts::Facts;
use pagehaul_vmcore::Source;

use crate::cli::options::{Dumps, Verbose};
use crate::cli::redact::{Redact, task_names};
use crate::crash_report::{Outcome, limit_process};
use crate::printed;

/// Print the facts of a crash as JSON: ID, host, kernel, kind of death, signature, log
///
/// Needs no debug symbols, and little of the dump: its notes and its log. `capture --facts` writes the same next to the dump;
/// pagehaul-fleet makes tables of it. docs/schema.md describes the fields.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul facts dump
  pagehaul capture --facts /proc/vmcore /var/crash/dump")]
pub(crate) struct FactsArguments {
    #[command(flatten)]
    dumps: Dumps,
    #[command(flatten)]
    redact: Redact,
    #[command(flatten)]
    pub(crate) verbose: Verbose,
    /// For `capture --facts`: print them for the capture
    #[arg(long, hide = true)]
    for_capture: bool,
}

pub(crate) fn run(arguments: &FactsArguments) -> anyhow::Result<ExitCode> {
    if arguments.for_capture {
        limit_process();
        let outcome = match arguments.dumps.open().and_then(|source| text(&source)) {
            Ok(text) => Outcome::Report(text),
            Err(error) => Outcome::Error(format!("{error:#}")),
        };
        printed::json(&outcome)?;
        return Ok(ExitCode::SUCCESS);
    }
    let redaction = arguments.redact.key()?;
    let source = arguments.dumps.open()?;
    let mut facts = read(&source);
    if let Some(redaction) = &redaction {
        redaction.facts(&mut facts, &task_names(source.memory()));
    }
    printed::json(&facts)?;
    Ok(ExitCode::SUCCESS)
}

fn read(source: &Source) -> Facts {
    Facts::read(source.memory(), concat!("pagehaul ", env!("CARGO_PKG_VERSION")).to_owned())
}

fn text(source: &Source) -> anyhow::Result<String> {
    let mut text = serde_json::to_string_pretty(&read(source))?;
    text.push('\n');
    Ok(text)
}
