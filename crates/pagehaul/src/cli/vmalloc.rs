//! `pagehaul vmalloc`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use pagehaul_present::number::{bytes, count};
use pagehaul_trace::TraceFile;
use pagehaul_trace::live::Tracefs;
use pagehaul_vmalloc::{
    Interval, Monitor, Usage, interval_header, interval_row, purge_report, read_trace, record, summary,
};

use crate::printed;
use crate::until::End;

/// How often the kernel's buffers are emptied.
const POLL: Duration = Duration::from_millis(100);

/// Show what vmalloc is doing: areas and who holds them; or over time, allocations, the backlog of areas freed but not
/// purged, and purges
///
/// Without options, what there is now (/proc/vmallocinfo; for root). With -i, -d or a command, what happens meanwhile, from
/// the kernel's vmalloc trace events (in 6.12, not in 6.1); how long purges take is measured where the kernel has probes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul vmalloc
  pagehaul vmalloc -i 1 -d 30
  pagehaul vmalloc -o vmalloc.rec -- modprobe test_vmalloc
  pagehaul vmalloc --from vmalloc.rec -i 1 --json")]
pub(crate) struct VmallocArguments {
    /// Print a line every so many seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    interval: Option<u32>,
    /// End after so many seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    duration: Option<u32>,
    /// Record the events to this file instead, for --from
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["from", "interval", "json"])]
    output: Option<PathBuf>,
    /// Read a recorded trace instead of the running kernel: our own, trace.dat, text; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["duration", "command"])]
    from: Option<PathBuf>,
    /// Do not record who allocates: less to do in each allocation
    #[arg(long)]
    no_stacks: bool,
    /// KiB of the kernel's buffer for each CPU
    #[arg(long, visible_alias = "buffer-size", value_name = "KIB", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(64..=1 << 20))]
    buffer: u32,
    /// Print JSON: one object for each interval, on a line of its own
    #[arg(long)]
    json: bool,
    /// Watch while this command runs (everything, not only the command)
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(arguments: &VmallocArguments) -> anyhow::Result<ExitCode> {
    if let Some(path) = &arguments.from {
        from_recording(arguments, path)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &arguments.output {
        let mut end = End::catch_signals()?;
        let recorder = record(&Tracefs::find()?, path, arguments.buffer, &arguments.command)?;
        end.start(&arguments.command, arguments.duration)?;
        while !recorder.failed() && !end.reached() {
            std::thread::sleep(POLL);
        }
        let summary = recorder.finish()?;
        let (events, lost) = (count(summary.events), count(summary.lost));
        let size = bytes(summary.file_bytes);
        say!("{}: {events} events, {lost} lost, {size}", path.display())?;
        return Ok(end.code);
    }
    if arguments.interval.is_none() && arguments.duration.is_none() && arguments.command.is_empty() {
        let usage = Usage::read()?;
        if arguments.json {
            printed::line(serde_json::to_string(&usage)?)?;
        } else {
            printed::text(&usage.text())?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    watch(arguments)
}

fn watch(arguments: &VmallocArguments) -> anyhow::Result<ExitCode> {
    let mut end = End::catch_signals()?;
    let mut monitor = Monitor::start(&Tracefs::find()?, !arguments.no_stacks, arguments.buffer)?;
    end.start(&arguments.command, arguments.duration)?;
    let interval = arguments.interval.map(|seconds| Duration::from_secs(seconds.into()));
    let begin = Instant::now();
    let mut next = interval;
    let mut all = Vec::new();
    let purge = monitor.purge_function();
    let mut show = |interval: Interval| -> anyhow::Result<()> {
        print(arguments, &interval, all.is_empty(), purge)?;
        all.push(interval);
        Ok(())
    };
    while !end.reached() {
        monitor.poll(POLL)?;
        if let (Some(at), Some(step)) = (next, interval)
            && begin.elapsed() >= at
        {
            show(monitor.take()?)?;
            next = Some(at + step);
        }
    }
    monitor.poll(Duration::ZERO)?;
    show(monitor.take()?)?;
    if !arguments.json {
        printed::text(&summary(&all, purge))?;
        if purge.is_none() {
            printed::line("\npurge latency is unknown: this kernel has no function probes")?;
        }
    }
    Ok(end.code)
}

fn from_recording(arguments: &VmallocArguments, path: &Path) -> anyhow::Result<()> {
    let mut recording = TraceFile::open(path)?;
    let symbols = recording.info().symbols.clone();
    let interval = arguments.interval.map(|seconds| Duration::from_secs(seconds.into()));
    let intervals =
        read_trace(&mut recording, symbols, interval).with_context(|| path.display().to_string())?;
    for (at, interval) in intervals.iter().enumerate() {
        print(arguments, interval, at == 0, None)?;
    }
    if !arguments.json {
        printed::text(&summary(&intervals, None))?;
    }
    Ok(())
}

fn print(
    arguments: &VmallocArguments,
    interval: &Interval,
    first: bool,
    purge: Option<&'static str>,
) -> anyhow::Result<()> {
    if !arguments.json {
        if first {
            printed::line(interval_header())?;
        }
        return printed::line(interval_row(interval));
    }
    let mut value = serde_json::to_value(interval)?;
    if let Some(object) = value.as_object_mut() {
        object.insert("purge_sizes".into(), serde_json::to_value(interval.purge_sizes.log2_buckets())?);
    }
    if let (Some(object), Some(function), Some(times)) = (value.as_object_mut(), purge, &interval.purge_times)
    {
        let report = purge_report(function, times.clone());
        object.insert("purge_times".into(), serde_json::to_value(&report)?);
    }
    printed::line(value)
}
