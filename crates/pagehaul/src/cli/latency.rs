//! `pagehaul latency`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use pagehaul_latency::{
    EventName, EventRecorder, EventSession, HistTriggerSession, Key, Mechanism, Options, ProbeKind, Report,
    Session, Setup, Unit,
    trace_file::{self, Intervals},
};
use pagehaul_present::number::{bytes, count};
use pagehaul_trace::live::Tracefs;
use pagehaul_trace::{TraceFile, TraceInfo};

use crate::printed;
use crate::until::End;

/// How often the kernel's buffers are emptied.
const POLL: Duration = Duration::from_millis(100);

/// Show how long kernel functions take, as a histogram; or how long it takes from one trace event to another
///
/// Functions are caught by kprobe events, fprobe events or the function graph tracer, whichever the kernel offers; neither a
/// compiler nor eBPF is needed. Ends on Ctrl-C, after --duration, or with the command.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul latency -u purge_vmap_node
  pagehaul latency -F 'ext4_sync_*' -- dd if=/dev/zero of=file bs=1M count=100 conv=fsync
  pagehaul latency -u --between vmscan:mm_vmscan_direct_reclaim_begin,vmscan:mm_vmscan_direct_reclaim_end -i 5
  pagehaul latency --between block:block_rq_issue,block:block_rq_complete --key dev,sector --from trace.dat")]
pub(crate) struct LatencyArguments {
    /// Functions to time: names, or globs of * and ?
    #[arg(value_name = "FUNCTION", required_unless_present = "between", conflicts_with = "between")]
    functions: Vec<String>,
    /// Time the way from one trace event to another instead
    #[arg(long, value_name = "START,END", value_parser = pair)]
    between: Option<(EventName, EventName)>,
    /// What tells which start belongs to which end: task, or fields of both events (dev,sector; pid=next_pid where the names
    /// differ)
    #[arg(long, value_name = "KEY", default_value = "task", requires = "between")]
    key: Key,
    /// Read a recorded trace instead of the running kernel: our own, trace.dat, text; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["in_kernel", "mechanism", "command"])]
    from: Option<PathBuf>,
    /// Record the events to this file instead, for --from
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["from", "interval", "in_kernel", "json", "timestamp"])]
    output: Option<PathBuf>,
    /// Microseconds instead of nanoseconds
    #[arg(short, long, conflicts_with = "milliseconds")]
    usecs: bool,
    /// Milliseconds instead of nanoseconds
    #[arg(short, long)]
    milliseconds: bool,
    /// Print every so many seconds, and begin anew; of a recording, by its own clock, and not where it has no event
    #[arg(short, long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    interval: Option<u32>,
    /// End after so many seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    duration: Option<u32>,
    /// Print the time above each histogram; of a recording, that of its end, or its clock where it does not tell the time of day
    #[arg(short = 'T', long)]
    timestamp: bool,
    /// Only this process, with its threads and children (in a recording: this thread); may be repeated
    #[arg(short, long = "pid", value_name = "PID")]
    pids: Vec<u32>,
    /// A histogram for each function
    #[arg(short = 'F', long)]
    function: bool,
    /// Rows of STEP units each instead of powers of two
    #[arg(long, value_name = "STEP", value_parser = clap::value_parser!(u64).range(1..))]
    linear: Option<u64>,
    /// Count in the kernel, with histogram triggers: for functions called more often than their events can be read. Rows
    /// are powers of two, in nanoseconds
    #[arg(long, conflicts_with_all = ["between", "linear", "usecs", "milliseconds"])]
    in_kernel: bool,
    /// How to catch functions [default: the first of these that the kernel offers]
    #[arg(long, value_enum, conflicts_with = "between")]
    mechanism: Option<MechanismArgument>,
    /// KiB of the kernel's buffer for each CPU
    #[arg(long, visible_alias = "buffer-size", value_name = "KIB", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(64..=1 << 20))]
    buffer: u32,
    /// Print JSON: one object for each histogram, on a line of its own
    #[arg(long)]
    json: bool,
    /// Trace while this command runs (everything, not only the command)
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
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
        buffer_kb: arguments.buffer,
    };
    if let Some(path) = &arguments.from {
        from_recording(arguments, path, &options)?;
        return Ok(ExitCode::SUCCESS);
    }
    let end = End::catch_signals()?;
    let tracefs = Tracefs::find()?;
    if arguments.in_kernel {
        let Mechanism::Probes(kind) = mechanism(arguments, &tracefs)? else {
            anyhow::bail!("--in-kernel needs kprobe or fprobe events, which this kernel lacks");
        };
        let session = HistTriggerSession::functions(&tracefs, &arguments.functions, kind, &options)?;
        warn_skipped(session.skipped());
        return measure(arguments, session, end);
    }
    let setup = set_up(arguments, &tracefs, &options)?;
    warn_skipped(setup.skipped());
    if let Some(path) = &arguments.output {
        return record(arguments, setup, path, end);
    }
    let session = match &arguments.between {
        Some((start, end)) => EventSession::between(setup, start, end, &arguments.key, &options)?,
        None => EventSession::functions(setup, &arguments.functions, &options)?,
    };
    measure(arguments, session, end)
}

fn set_up(arguments: &LatencyArguments, tracefs: &Tracefs, options: &Options) -> anyhow::Result<Setup> {
    Ok(match &arguments.between {
        Some((start, end)) => Setup::between(tracefs, start, end, options)?,
        None => Setup::functions(tracefs, &arguments.functions, mechanism(arguments, tracefs)?, options)?,
    })
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
    mut end: End,
) -> anyhow::Result<ExitCode> {
    end.start(&arguments.command, arguments.duration)?;
    let interval = arguments.interval.map(|seconds| Duration::from_secs(seconds.into()));
    let mut next = interval;
    while !end.reached() {
        session.poll(POLL)?;
        if let (Some(at), Some(step)) = (next, interval)
            && end.elapsed() >= at
        {
            print(arguments, &session.take(false)?, now)?;
            next = Some(at + step);
        }
    }
    session.stop()?;
    while session.poll(Duration::ZERO)? {}
    print(arguments, &session.take(true)?, now)?;
    Ok(end.code)
}

fn record(arguments: &LatencyArguments, setup: Setup, path: &Path, mut end: End) -> anyhow::Result<ExitCode> {
    let recording = EventRecorder::start(setup, path, &arguments.command)?;
    end.start(&arguments.command, arguments.duration)?;
    while !recording.failed() && !end.reached() {
        std::thread::sleep(POLL);
    }
    let summary = recording.finish()?;
    let (events, lost) = (count(summary.events), count(summary.lost));
    let size = bytes(summary.file_bytes);
    say!("{}: {events} events, {lost} lost, {size}", path.display())?;
    Ok(end.code)
}

fn from_recording(arguments: &LatencyArguments, path: &Path, options: &Options) -> anyhow::Result<()> {
    let mut recording = TraceFile::open(path)?;
    let time = |seconds: Option<u32>| seconds.map(|seconds| Duration::from_secs(seconds.into()));
    let intervals = Intervals { interval: time(arguments.interval), duration: time(arguments.duration) };
    let clock = RecordedClock::of(recording.info());
    let take = |ts, report: Report| print(arguments, &report, || clock.at(ts));
    let timed = match &arguments.between {
        Some((start, end)) => {
            trace_file::measure_pair(&mut recording, (start, end, &arguments.key), options, intervals, take)
        }
        None => {
            let symbols = recording.info().symbols.clone();
            trace_file::measure_functions(
                &mut recording,
                (&arguments.functions, symbols),
                options,
                intervals,
                take,
            )
        }
    };
    timed.with_context(|| path.display().to_string())
}

fn print(arguments: &LatencyArguments, report: &Report, time: impl FnOnce() -> String) -> anyhow::Result<()> {
    let now = arguments.timestamp.then(time);
    if arguments.json {
        let mut value = serde_json::to_value(report)?;
        if let (Some(now), Some(object)) = (now, value.as_object_mut()) {
            object.insert("time".into(), now.into());
        }
        printed::line(value)
    } else {
        let now = now.map_or_else(String::new, |now| now + "\n");
        printed::text(&(now + &report.text(arguments.function)))
    }
}

/// The time of day, in UTC: `13:59:59`.
fn time_of_day(since_1970: Duration) -> String {
    let day = since_1970.as_secs() % 86_400;
    format!("{:02}:{:02}:{:02}", day / 3600, day / 60 % 60, day % 60)
}

fn now() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    time_of_day(now.unwrap_or_default())
}

/// What a recording's time stamps mean.
enum RecordedClock {
    /// Nanoseconds of the trace's clock and since 1970 at the same moment.
    Known(u64, u64),
    Unknown,
}

impl RecordedClock {
    fn of(info: &TraceInfo) -> Self {
        match &info.begin {
            Some(begin) if info.clock.as_deref() == Some("mono") => {
                Self::Known(begin.monotonic_ns, begin.realtime_ns)
            }
            _ => Self::Unknown,
        }
    }

    fn at(&self, ts: u64) -> String {
        match *self {
            Self::Known(clock, realtime) => {
                time_of_day(Duration::from_nanos(realtime.wrapping_add(ts.wrapping_sub(clock))))
            }
            Self::Unknown => format!("{}.{:06} s", ts / 1_000_000_000, ts / 1000 % 1_000_000),
        }
    }
}

fn pair(text: &str) -> Result<(EventName, EventName), String> {
    let (start, end) = text.split_once(',').ok_or("expected two trace events, START,END")?;
    Ok((start.trim().parse()?, end.trim().parse()?))
}
