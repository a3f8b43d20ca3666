//! `pagehaul kdump check`.

use std::process::ExitCode;

use clap::Args;
use pagehaul_kdump_setup::{Chain, Expected, Facts, Finding, Proof, Severity, Target, examine};
use pagehaul_present::number::parse_bytes;
use pagehaul_render::kdump as draw;
use serde::Serialize;

use crate::cli::options::{CaptureCpus, Json, RootDirectory};
use crate::{exit, usage};

/// Find what would keep the next crash from being dumped
///
/// Examines what a dump needs, link by link: firmware, command line, reservation, kernel, initramfs, units, mounts, target,
/// program and trigger, with kdump-tools (Debian, Ubuntu), kdump-utils (Fedora, RHEL) or kdump (openSUSE). Each finding comes with
/// its reason and the command that fixes it; what cannot be checked is listed, and -v prints the evidence of each link. Changes
/// nothing, but writes a temporary file with --disk. Some files can be read by root only.
///
/// Exit status: 0, nothing was found, or advice only; 2, the command line is wrong; 3, the next crash is likely not dumped; 4, there are
/// warnings.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul kdump check
  pagehaul kdump check --verbose
  pagehaul kdump check --capture-cpus 8 --disk 500M --json
  pagehaul kdump check --root sosreport/")]
pub(crate) struct CheckArguments {
    #[command(flatten)]
    capture_cpus: CaptureCpus,
    /// Bytes per second that a local target is planned to take: measured by a temporary file of at most 256 MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    disk: Option<u64>,
    /// Print each link of the chain with its evidence
    #[arg(short, long, conflicts_with = "json")]
    verbose: bool,
    #[command(flatten)]
    root: RootDirectory,
    #[command(flatten)]
    json: Json,
}

pub(super) fn run(arguments: &CheckArguments) -> anyhow::Result<ExitCode> {
    let CheckArguments { capture_cpus, disk, verbose, root, json } = arguments;
    let mut facts = super::facts(&root.open()?);
    if let (Some(_), Some(Target::Directory(path))) =
        (disk, facts.config.as_ref().map(|config| &config.target))
    {
        if !root.is_this_machine() {
            return Err(usage::wrong("--disk measures this machine's disk; it takes no --root"));
        }
        facts.target_rate = Some(pagehaul_kdump_plan::disk_rate(path)?);
    }
    let chain = examine(&facts, &Expected { cpus: capture_cpus.capture_cpus, disk: *disk });
    json.print(&Report::new(&facts, &chain), |_| draw::check(&facts, &chain, *verbose))?;
    Ok(match chain.findings.first().map(|finding| finding.severity) {
        None | Some(Severity::Advice) => ExitCode::SUCCESS,
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
    chain: &'a [Proof],
    findings: &'a [Finding],
}

impl<'a> Report<'a> {
    fn new(facts: &'a Facts, chain: &'a Chain) -> Self {
        Self {
            release: &facts.release.0,
            kdump: facts.stack().map(|stack| stack.name()),
            memory: facts.memory,
            cpus: facts.cpus,
            reserved: facts.reserved,
            loaded: facts.loaded,
            chain: &chain.proofs,
            findings: &chain.findings,
        }
    }
}
