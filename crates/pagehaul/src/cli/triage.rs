//! `pagehaul triage`.

mod text;

use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, ValueEnum};
use pagehaul_inspect::{Machine, Report, Task, TaskStack};
use pagehaul_kernel::{AddressSpace, KernelLog, VirtualMemory};
use pagehaul_physmem::{PhysMemory, Recorder};
use serde::Serialize;

use crate::cli::options::{Dumps, Json};
use crate::crash_report::{CrashReport, Outcome, limit_process};
use crate::printed;

/// Explain why a machine crashed or stalled, from its dump alone
///
/// Needs no debug symbols: names, types and unwind tables are in the kernel's memory, at every dump level. Every line rests
/// on the dump; a frame that was searched on the stack instead of unwound has a `?`. /proc/kcore is the running kernel. --json
/// holds all tasks and stacks only with --tasks and --stacks.
///
/// Exit status: 0, the report was printed; 1, the dump cannot be read or has no symbols; 2, the command line is wrong.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul triage dump
  pagehaul triage dump --section waits --section memory
  pagehaul triage dump --tasks
  pagehaul triage dump --stacks
  pagehaul triage dump --pid 1
  pagehaul triage dump --json")]
pub(crate) struct TriageArguments {
    #[command(flatten)]
    dumps: Dumps,
    /// Print this section in full; may be repeated
    #[arg(short, long, value_enum, value_name = "NAME")]
    section: Vec<Section>,
    /// List all tasks
    #[arg(long)]
    tasks: bool,
    /// Print the stacks of all tasks
    #[arg(long)]
    stacks: bool,
    /// Print one task: its state, parents and stack
    #[arg(long, value_name = "PID", conflicts_with_all = ["tasks", "stacks", "section"])]
    pid: Option<u32>,
    #[command(flatten)]
    json: Json,
    /// For `capture --triage`: print the report and the pages that it is made of
    #[arg(long, hide = true)]
    for_capture: bool,
}

/// Parts of the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Section {
    /// Kind of crash, its stack and signature
    What,
    /// Findings
    Verdict,
    /// Each CPU with its stack
    Cpus,
    /// Tasks by state, blocked tasks by stack
    Tasks,
    /// Locks: who waits for whom
    Waits,
    /// Zones, counters, largest processes, slab caches, vmalloc
    Memory,
    /// Block requests in flight
    Io,
    /// Loaded modules
    Modules,
    /// The end of the kernel log
    Log,
}

#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    tasks: Option<&'a [Task]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stacks: Option<Vec<TaskStack>>,
}

pub(crate) fn run(arguments: &TriageArguments) -> anyhow::Result<ExitCode> {
    if arguments.for_capture {
        limit_process();
        let outcome = match for_capture(&arguments.dumps) {
            Ok(report) => Outcome::Report(report),
            Err(error) => Outcome::Error(format!("{error:#}")),
        };
        printed::json(&outcome)?;
        return Ok(ExitCode::SUCCESS);
    }
    let source = arguments.dumps.open()?;
    let name = || source.path().display().to_string();
    let memory = source.memory();
    let kernel = AddressSpace::discover(memory).with_context(name)?;
    let virtual_memory = VirtualMemory::new(&kernel, memory);
    let machine = Machine::open(&kernel, &virtual_memory, memory.notes()).with_context(name)?;
    let log = KernelLog::read(memory);
    let mut report = Report::new(&machine, log.as_ref().unwrap_or(&KernelLog::default()));
    report.missing.extend(source.warnings());
    if let Err(why) = &log {
        report.missing.push(format!("the log: {why}"));
    }
    if arguments.json.json {
        let stacks = arguments.stacks.then(|| report.stacks(&machine));
        let tasks = arguments.tasks.then_some(report.tasks.all.as_slice());
        printed::json(&Printed { report: &report, tasks, stacks })?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = match arguments.pid {
        Some(pid) => {
            let task =
                report.tasks.by_pid(pid).with_context(|| format!("{}: no task has the PID {pid}", name()))?;
            text::one_task(&report, task, &report.stacks(&machine))
        }
        None if arguments.tasks || arguments.stacks => {
            let stacks = if arguments.stacks { report.stacks(&machine) } else { Vec::new() };
            text::tasks(&report, &stacks)
        }
        None if arguments.section.is_empty() => text::summary(&report, &name()),
        None => text::sections(&report, &arguments.section),
    };
    printed::text(&printable(&text))?;
    Ok(ExitCode::SUCCESS)
}

/// Makes the one screen, and records which pages that took, with those of all stacks.
fn for_capture(dumps: &Dumps) -> anyhow::Result<CrashReport> {
    let source = dumps.open()?;
    let recorder = Recorder::new(source.memory());
    let kernel = AddressSpace::discover(&recorder)?;
    let unrecorded = VirtualMemory::new(&kernel, source.memory());
    let memory = VirtualMemory::new(&kernel, &recorder);
    let machine = Machine::open_recorded(&kernel, &memory, &unrecorded, recorder.notes())?;
    let log = KernelLog::read(&recorder);
    let report = Report::new(&machine, log.as_ref().unwrap_or(&KernelLog::default()));
    report.stacks(&machine);
    let text = printable(&text::summary(&report, &source.path().display().to_string()));
    Ok(CrashReport { text, pages: recorder.runs() })
}

/// What programs of the crashed machine named themselves must not steer the terminal of the reader.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}
