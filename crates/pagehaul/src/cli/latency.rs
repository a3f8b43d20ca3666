//! `pagehaul latency`.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::Args;
use pagehaul_latency::{
    EventName, EventRecorder, EventSession, HistTriggerSession, Key, LatencyReport, Mechanism, Options,
    ProbeKind, Session, Setup, Unit, trace_file,
};
use pagehaul_present::time::time_of_day;
use pagehaul_trace::live::Tracefs;
use pagehaul_trace::{Input, TraceFile, TraceInfo};

use super::tracing::{POLL, TracingArguments, TracingRun};
use crate::files::Recording;
use crate::printed;
use crate::sandbox::{self, Sandbox};

/// Show the latency of kernel functions, or the time between two trace events, as a histogram
///
/// Uses kprobe events, fprobe events or the function graph tracer, whichever the kernel offers; needs neither a compiler nor
/// eBPF. Ends on Ctrl-C, after --duration, or with COMMAND. --json prints one line per histogram.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul latency -u purge_vmap_node
  pagehaul latency -F 'ext4_sync_*' -- dd if=/dev/zero of=file bs=1M count=100 conv=fsync
  pagehaul latency -u --between vmscan:mm_vmscan_direct_reclaim_begin,vmscan:mm_vmscan_direct_reclaim_end -i 5s
  pagehaul latency --between block:block_rq_issue,block:block_rq_complete --key dev,sector --from trace.dat")]
pub(crate) struct LatencyArguments {
    /// Functions to measure: names, or globs of * and ?
    #[arg(value_name = "FUNCTION", required_unless_present = "between", conflicts_with = "between")]
    functions: Vec<String>,
    /// Measure the time from one trace event to another
    #[arg(long, value_name = "START,END", value_parser = pair)]
    between: Option<(EventName, EventName)>,
    /// What matches starts with ends: task, or fields of both events (dev,sector; pid=next_pid if the names differ)
    #[arg(long, value_name = "KEY", default_value = "task", requires = "between")]
    key: Key,
    #[command(flatten)]
    tracing: TracingArguments,
    /// Microseconds instead of nanoseconds
    #[arg(short, long, conflicts_with = "milliseconds")]
    usecs: bool,
    /// Milliseconds instead of nanoseconds
    #[arg(short, long)]
    milliseconds: bool,
    /// Print the time of day (UTC) above each histogram; with --from the end of the interval, or the trace's clock if the file
    /// lacks the time of day
    #[arg(short = 'T', long, conflicts_with = "output")]
    timestamp: bool,
    /// Only this process, with its threads and children (with --from: this thread); may be repeated
    #[arg(short, long = "pid", value_name = "PID")]
    pids: Vec<u32>,
    /// One histogram per function
    #[arg(short = 'F', long)]
    function: bool,
    /// Linear buckets of STEP units instead of powers of two
    #[arg(long, value_name = "STEP", value_parser = clap::value_parser!(u64).range(1..))]
    linear: Option<u64>,
    /// Count in the kernel with hist triggers, for functions called more often than their events can be read. Buckets are
    /// powers of two, in nanoseconds
    #[arg(long, conflicts_with_all = ["between", "linear", "usecs", "milliseconds", "from", "output"])]
    in_kernel: bool,
    /// Mechanism that measures functions [default: the first of these that the kernel offers]
    #[arg(long, value_enum, conflicts_with_all = ["between", "from"])]
    mechanism: Option<MechanismArgument>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum MechanismArgument {
    /// kprobe events
    Kprobe,
    /// fprobe events
    Fprobe,
    /// The function graph tracer
    Graph,
}

pub(crate) fn run(arguments: &LatencyArguments) -> anyhow::Result<ExitCode> {
    let options = Options {
        unit: match (arguments.usecs, arguments.milliseconds) {
            (true, _) => Unit::Microseconds,
            (_, true) => Unit::Milliseconds,
            _ => Unit::Nanoseconds,
        },
        step: arguments.linear,
        by_function: arguments.function,
        pids: arguments.pids.clone(),
        buffer_kb: arguments.tracing.buffer_kb(),
    };
    if let Some(path) = &arguments.tracing.from {
        read_trace(arguments, path, &options)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut run = TracingRun::catch_signals()?;
    let tracefs = Tracefs::find()?;
    if arguments.in_kernel {
        let Mechanism::Probes(kind) = mechanism(arguments, &tracefs)? else {
            anyhow::bail!("--in-kernel needs kprobe or fprobe events, which this kernel lacks");
        };
        let session = HistTriggerSession::functions(&tracefs, &arguments.functions, kind, &options)?;
        warn_skipped(session.skipped());
        return measure(arguments, session, run);
    }
    let setup = match &arguments.between {
        Some((start, end)) => Setup::between(&tracefs, start, end, &options)?,
        None => Setup::functions(&tracefs, &arguments.functions, mechanism(arguments, &tracefs)?, &options)?,
    };
    warn_skipped(setup.skipped());
    if let Some(path) = &arguments.tracing.output {
        let recording = Recording::create(path, arguments.tracing.live.overwrite.force)?;
        let command = &arguments.tracing.live.command;
        let recorder = recording.start(|file| EventRecorder::start(setup, file, command))?;
        run.start(&arguments.tracing)?;
        return run.record(recorder, recording, path);
    }
    let session = match &arguments.between {
        Some((start, end)) => EventSession::between(setup, start, end, &arguments.key, &options)?,
        None => EventSession::functions(setup, &arguments.functions, &options)?,
    };
    measure(arguments, session, run)
}

fn mechanism(arguments: &LatencyArguments, tracefs: &Tracefs) -> anyhow::Result<Mechanism> {
    Ok(match arguments.mechanism {
        None => Mechanism::choose(tracefs)?,
        Some(MechanismArgument::Kprobe) => Mechanism::Probes(ProbeKind::Kprobe),
        Some(MechanismArgument::Fprobe) => Mechanism::Probes(ProbeKind::Fprobe),
        Some(MechanismArgument::Graph) => Mechanism::FunctionGraph,
    })
}

fn warn_skipped(functions: &[(String, String)]) {
    for (function, why) in functions {
        tell!("pagehaul: skipped {function}: {why}");
    }
}

fn measure(
    arguments: &LatencyArguments,
    mut session: impl Session,
    mut run: TracingRun,
) -> anyhow::Result<ExitCode> {
    run.start(&arguments.tracing)?;
    while !run.is_over() {
        session.poll(POLL)?;
        if run.report_due() {
            print(arguments, &session.take(false)?, now)?;
        }
    }
    session.stop()?;
    while session.poll(Duration::ZERO)? {}
    print(arguments, &session.take(true)?, now)?;
    Ok(run.code)
}

fn read_trace(arguments: &LatencyArguments, path: &Path, options: &Options) -> anyhow::Result<()> {
    let input = Input::open(path)?;
    sandbox::enter(Sandbox::default())?;
    let mut trace = TraceFile::from_input(input)?;
    let intervals = arguments.tracing.intervals();
    let clock = TraceClock::of(trace.info());
    let take = |ts, report: LatencyReport| print(arguments, &report, || clock.time(ts));
    let measured = match &arguments.between {
        Some((start, end)) => {
            trace_file::measure_pair(&mut trace, (start, end, &arguments.key), options, intervals, take)
        }
        None => {
            let symbols = trace.info().symbols.clone();
            trace_file::measure_functions(
                &mut trace,
                (&arguments.functions, symbols),
                options,
                intervals,
                take,
            )
        }
    };
    measured.with_context(|| path.display().to_string())
}

fn print(
    arguments: &LatencyArguments,
    report: &LatencyReport,
    time: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    let time = arguments.timestamp.then(time);
    if arguments.tracing.json.json {
        let mut value = serde_json::to_value(report)?;
        if let (Some(time), Some(object)) = (time, value.as_object_mut()) {
            object.insert("time".into(), time.into());
        }
        printed::json_line(&value)
    } else {
        let time = time.map_or_else(String::new, |time| time + "\n");
        printed::text(&(time + &pagehaul_render::latency::text(report, arguments.function)))
    }
}

fn now() -> String {
    time_of_day(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
}

/// Converts a trace's time stamps to the time of day.
enum TraceClock {
    /// Trace clock and nanoseconds since 1970 at the same moment.
    Known(u64, u64),
    Unknown,
}

impl TraceClock {
    fn of(info: &TraceInfo) -> Self {
        match &info.begin {
            Some(begin) if info.machine.clock.as_deref() == Some("mono") => {
                Self::Known(begin.monotonic_ns, begin.realtime_ns)
            }
            _ => Self::Unknown,
        }
    }

    fn time(&self, ts: u64) -> String {
        match *self {
            Self::Known(clock, realtime) => {
                time_of_day(realtime.wrapping_add(ts.wrapping_sub(clock)) / 1_000_000_000)
            }
            Self::Unknown => format!("{}.{:06} s", ts / 1_000_000_000, ts / 1000 % 1_000_000),
        }
    }
}

fn pair(text: &str) -> Result<(EventName, EventName), String> {
    let (start, end) = text.split_once(',').ok_or("expected two trace events, START,END")?;
    Ok((start.trim().parse()?, end.trim().parse()?))
}
