//! `pagehaul vmalloc`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use pagehaul_render::vmalloc as draw;
use pagehaul_trace::live::Tracefs;
use pagehaul_trace::{Input, TraceFile};
use pagehaul_vmalloc::{Interval, Monitor, Usage, purge_report, read_trace, record};

use super::tracing::{POLL, TracingArguments, TracingRun};
use crate::files::Recording;
use crate::printed;
use crate::sandbox::{self, Sandbox};

/// Show the areas of the vmalloc space and their callers; or over time: allocations, the backlog of areas that are freed but
/// not purged, and purges
///
/// Without options, shows the present state (/proc/vmallocinfo; needs root). With --interval, --duration or COMMAND, follows the
/// kernel's vmalloc trace events (6.12 has them, 6.1 lacks them), and measures the latency of purges if the kernel has probes;
/// --json then prints one line per interval.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul vmalloc
  pagehaul vmalloc -i 1s --duration 30s
  pagehaul vmalloc -o vmalloc.pht -- modprobe test_vmalloc
  pagehaul vmalloc --from vmalloc.pht -i 1 --json")]
pub(crate) struct VmallocArguments {
    #[command(flatten)]
    tracing: TracingArguments,
    /// Do not record the callers of allocations: reduces the overhead of each allocation
    #[arg(long)]
    no_stacks: bool,
}

pub(crate) fn run(arguments: &VmallocArguments) -> anyhow::Result<ExitCode> {
    let tracing = &arguments.tracing;
    if let Some(path) = &tracing.from {
        show_trace(tracing, path)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &tracing.output {
        let mut run = TracingRun::catch_signals()?;
        let tracefs = Tracefs::find()?;
        let recording = Recording::create(path, tracing.live.overwrite.force)?;
        let recorder =
            recording.start(|file| record(&tracefs, file, tracing.buffer_kb(), &tracing.live.command))?;
        run.start(tracing)?;
        return run.record(recorder, recording, path);
    }
    if tracing.interval.is_some() || tracing.live.duration.is_some() || !tracing.live.command.is_empty() {
        return monitor(arguments);
    }
    let usage = Usage::read()?;
    if tracing.json.json {
        printed::json_line(&usage)?;
    } else {
        printed::text(&draw::usage(&usage))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn monitor(arguments: &VmallocArguments) -> anyhow::Result<ExitCode> {
    let tracing = &arguments.tracing;
    let mut run = TracingRun::catch_signals()?;
    let mut monitor = Monitor::start(&Tracefs::find()?, !arguments.no_stacks, tracing.buffer_kb())?;
    run.start(tracing)?;
    let purge = monitor.purge_function();
    let mut all = Vec::new();
    let mut show = |interval: Interval| -> anyhow::Result<()> {
        print(tracing, &interval, all.is_empty(), purge)?;
        all.push(interval);
        Ok(())
    };
    while !run.is_over() {
        monitor.poll(POLL)?;
        if run.report_due() {
            show(monitor.take()?)?;
        }
    }
    monitor.poll(Duration::ZERO)?;
    show(monitor.take()?)?;
    if !tracing.json.json {
        printed::text(&draw::summary(&all, purge))?;
        if purge.is_none() {
            printed::line("\npurge latency is unknown: this kernel has no function probes")?;
        }
    }
    Ok(run.code)
}

fn show_trace(tracing: &TracingArguments, path: &Path) -> anyhow::Result<()> {
    let input = Input::open(path)?;
    sandbox::enter(Sandbox::default())?;
    let mut trace = TraceFile::from_input(input)?;
    let symbols = trace.info().symbols.clone();
    let page_size = trace.info().machine.bytes(1);
    let intervals = read_trace(&mut trace, symbols, page_size, tracing.intervals());
    let intervals = intervals.with_context(|| path.display().to_string())?;
    for (at, interval) in intervals.iter().enumerate() {
        print(tracing, interval, at == 0, None)?;
    }
    if !tracing.json.json {
        printed::text(&draw::summary(&intervals, None))?;
    }
    Ok(())
}

fn print(
    tracing: &TracingArguments,
    interval: &Interval,
    first: bool,
    purge: Option<&'static str>,
) -> anyhow::Result<()> {
    if !tracing.json.json {
        if first {
            printed::line(draw::interval_header())?;
        }
        return printed::line(draw::interval_row(interval));
    }
    let mut value = serde_json::to_value(interval)?;
    if let Some(object) = value.as_object_mut() {
        object.insert("purge_sizes".into(), serde_json::to_value(interval.purge_sizes.log2_buckets())?);
        if let (Some(function), Some(times)) = (purge, &interval.purge_times) {
            let report = purge_report(function, times.clone());
            object.insert("purge_times".into(), serde_json::to_value(&report)?);
        }
    }
    printed::json_line(&value)
}
