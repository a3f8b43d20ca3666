//! `pagehaul kdump test`.

use std::fs;
use std::io::{BufRead, IsTerminal, stdin};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use clap::Args;
use pagehaul_kdump_setup::{Expected, Root, Severity, check, state};
use pagehaul_present::number::bytes;
use pagehaul_present::time::seconds;
use serde::{Deserialize, Serialize};

use super::plan::{self, Basis, Planned};
use crate::{printed, usage};

/// What was expected of a crash, for `kdump report`.
const STATE: &str = "test.json";

/// Crash this machine to prove that the crash is dumped
///
/// Runs `kdump check` first, and refuses to crash a machine whose crash would not be dumped. Asks twice, unless --yes is given.
/// Saves the plan's estimates for `kdump report`, writes all file systems back, and panics by SysRq c. The machine boots again
/// when the capture kernel has written the dump, as the distribution's scripts have it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul kdump test
  pagehaul kdump test --yes")]
pub(crate) struct TestArguments {
    #[command(flatten)]
    planned: Planned,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Crash even if `kdump check` finds problems
    #[arg(long)]
    ignore_problems: bool,
}

/// What was expected of a crash.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Test {
    /// Seconds since 1970.
    pub(super) time: u64,
    pub(super) level: u8,
    pub(super) dump_bytes: u64,
    pub(super) seconds: f64,
}

impl Test {
    pub(super) fn last(root: &Root) -> anyhow::Result<Option<Self>> {
        Ok(state::read(root, STATE)?)
    }
}

pub(super) fn run(arguments: &TestArguments) -> anyhow::Result<ExitCode> {
    if !arguments.planned.root.is_this_machine() {
        return Err(usage::wrong("kdump test crashes the machine it runs on; it takes no --root"));
    }
    if !arguments.yes && !stdin().is_terminal() {
        return Err(usage::wrong(
            "kdump test asks before it crashes the machine; run it in a terminal, or add --yes",
        ));
    }
    let root = arguments.planned.root.open()?;
    let facts = super::facts(&root);
    let findings = check(&facts, &Expected::default());
    let problems = findings.iter().filter(|finding| finding.severity == Severity::Problem).count();
    if !facts.loaded {
        bail!("no capture kernel is loaded, so this crash would leave nothing; see `pagehaul kdump check`");
    }
    if problems > 0 && !arguments.ignore_problems {
        bail!("`pagehaul kdump check` finds {problems} problems; fix them, or add --ignore-problems");
    }
    let plan = plan::make(&arguments.planned, Basis::Configured)?;
    printed::text(&format!(
        "planned: a dump of {} at level {} in {}\n",
        bytes(plan.dump_bytes),
        plan.level,
        seconds(plan.seconds)
    ))?;
    if !arguments.yes {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        ask("This crashes the machine now. Whatever is not saved is lost, for all its users.", host.trim())?;
        ask("The machine is down until the dump is written and it has booted again.", "crash")?;
    }
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let test = Test { time, level: plan.level, dump_bytes: plan.dump_bytes, seconds: plan.seconds };
    state::save(&root, STATE, &test)?;
    printed::text("crashing\n")?;
    rustix::fs::sync();
    // Root may write this whatever kernel.sysrq says.
    let trigger = PathBuf::from("/proc/sysrq-trigger");
    fs::write(&trigger, "c").with_context(|| format!("cannot write to {}", trigger.display()))?;
    bail!("the kernel ignored SysRq c");
}

/// Goes on only if the answer is `expected`.
fn ask(warning: &str, expected: &str) -> anyhow::Result<()> {
    printed::text(&format!("{warning}\nType {expected} to go on: \n"))?;
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
    if answer.trim() != expected {
        bail!("not confirmed; nothing was done");
    }
    Ok(())
}
