//! `pagehaul kdump check`.

use std::process::ExitCode;

use clap::Args;
use pagehaul_kdump_setup::{Expected, Facts, Finding, Severity, Target, check};
use pagehaul_present::number::{bytes, parse_bytes};
use serde::Serialize;

use super::plan;
use crate::cli::options::{CaptureCpus, Json, RootDirectory};
use crate::{exit, usage};

/// Find what would keep the next crash from being dumped
///
/// Examines the reservation, the loaded capture kernel, the configuration of kdump-tools (Debian, Ubuntu), kdump-utils
/// (Fedora, RHEL) or kdump (openSUSE), the initramfs, the program that writes the dump, and the target. Each finding comes with
/// its reason and the command that fixes it. Changes nothing, but writes a temporary file with --disk. Some files can be read by root only.
///
/// Exit status: 0, nothing was found; 2, the command line is wrong; 3, the next crash is likely not dumped; 4, only warnings
/// were found.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul kdump check
  pagehaul kdump check --capture-cpus 8 --disk 500M --json
  pagehaul kdump check --root sosreport/")]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    capture_cpus: CaptureCpus,
    /// Bytes per second that a local target is planned to take: measured by a temporary file of at most 256 MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    disk: Option<u64>,
    #[command(flatten)]
    root: RootDirectory,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(arguments: &CheckArguments) -> anyhow::Result<ExitCode> {
    let CheckArguments { capture_cpus, disk, root, json } = arguments;
    let mut facts = super::facts(&root.open()?);
    if let (Some(_), Some(Target::Directory(path))) =
        (disk, facts.config.as_ref().map(|config| &config.target))
    {
        if !root.is_this_machine() {
            return Err(usage::wrong("--disk measures this machine's disk; it takes no --root"));
        }
        facts.target_rate = Some(plan::disk_rate(path)?);
    }
    let findings = check(&facts, &Expected { cpus: capture_cpus.capture_cpus, disk: *disk });
    json.print(&Report::new(&facts, &findings), |_| text(&facts, &findings))?;
    Ok(match findings.first().map(|finding| finding.severity) {
        None => ExitCode::SUCCESS,
        Some(Severity::Problem) => ExitCode::from(exit::KDUMP_PROBLEM),
        Some(Severity::Warning) => ExitCode::from(exit::KDUMP_WARNING),
    })
}

#[derive(Serialize)]
struct Report<'a> {
    release: &'a str,
    kdump: Option<&'static str>,
    memory: u64,
    cpus: u32,
    reserved: Option<u64>,
    loaded: bool,
    findings: &'a [Finding],
}

impl<'a> Report<'a> {
    fn new(facts: &'a Facts, findings: &'a [Finding]) -> Self {
        Self {
            release: &facts.release.0,
            kdump: facts.stack().map(|stack| stack.name()),
            memory: facts.memory,
            cpus: facts.cpus,
            reserved: facts.reserved,
            loaded: facts.loaded,
            findings,
        }
    }
}

fn text(facts: &Facts, findings: &[Finding]) -> String {
    let mut out = format!(
        "Linux {}, {}, {} CPUs, {}\n{} reserved, {}\n",
        facts.release,
        bytes(facts.memory),
        facts.cpus,
        facts.stack().map_or("no kdump", |stack| stack.name()),
        facts.reserved.map_or_else(|| "nothing".to_owned(), bytes),
        if facts.loaded { "a capture kernel is loaded" } else { "no capture kernel is loaded" },
    );
    for Finding { id, severity, what, why, fix } in findings {
        let severity = match severity {
            Severity::Problem => "PROBLEM",
            Severity::Warning => "warning",
        };
        out += &format!("\n{severity}  {what} [{id}]\n     why  {why}\n     fix  {fix}\n");
    }
    if findings.is_empty() {
        out += "\nnothing found that would keep a crash from being dumped\n";
    }
    out
}
