use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use pagehaul_present::number::{bytes, count};
use pagehaul_trace::Run;
use pagehaul_trace::live::{Instance, InstanceOptions, Recorder, RecorderOptions, RecordingSummary, Tracefs};

use super::args::RecordArguments;
use super::child;
use crate::cli::tracing::catch_signals;
use crate::files::Recording;

/// Events that say why reclaim took long, in addition to vmscan's. Kernels lack some of them.
const MORE_EVENTS: [(&str, &str); 9] = [
    ("compaction", "mm_compaction_begin"),
    ("compaction", "mm_compaction_end"),
    ("compaction", "mm_compaction_try_to_compact_pages"),
    ("compaction", "mm_compaction_migratepages"),
    ("compaction", "mm_compaction_kcompactd_wake"),
    ("compaction", "mm_compaction_kcompactd_sleep"),
    ("oom", "mark_victim"),
    // Linux before 5.16, which has mm_vmscan_throttled.
    ("writeback", "writeback_congestion_wait"),
    ("writeback", "writeback_wait_iff_congested"),
];

/// Default size of the kernel's buffer per CPU.
const BUFFER_KB: u32 = 8 << 10;

pub(super) fn run(arguments: &RecordArguments) -> Result<ExitCode> {
    let signal = catch_signals()?;
    let tracefs = Tracefs::find()?;
    check(&tracefs, arguments)?;
    let recording = Recording::create(&arguments.output, arguments.live.overwrite.force)?;
    let options =
        InstanceOptions { buffer_kb: arguments.live.buffer_kb(BUFFER_KB), clock: arguments.clock.clone() };
    let begin = Instant::now();
    let recorder = recording.start(|file| {
        let instance = tracefs.create_instance(&options)?;
        enable(&instance, arguments)?;
        let options =
            RecorderOptions { command: arguments.live.command.clone(), ..RecorderOptions::default() };
        anyhow::Ok(Recorder::start(instance, file, &options)?)
    })?;
    if !arguments.quiet.quiet && arguments.live.command.is_empty() && arguments.live.duration.is_none() {
        tell!("recording; Ctrl-C ends it");
    }
    let over = || {
        let late = arguments.live.duration.is_some_and(|duration| begin.elapsed() >= duration);
        late || signal.load(Ordering::Relaxed) || recorder.failed()
    };
    let runs = if arguments.live.command.is_empty() {
        while !over() {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Vec::new())
    } else {
        run_all(arguments, &recorder, &over)
    };
    // The recording is completed whatever became of the command.
    let summary = recording.finish(recorder.finish());
    let (runs, summary) = (runs?, summary?);
    if !arguments.quiet.quiet {
        say(arguments, &summary, begin.elapsed());
    }
    Ok(exit_code(&runs))
}

/// Fails if the kernel lacks an event, before anything is created.
fn check(tracefs: &Tracefs, arguments: &RecordArguments) -> Result<()> {
    if tracefs.events("vmscan").is_empty() {
        bail!("this kernel has no vmscan events: it was built without CONFIG_FTRACE or CONFIG_EVENT_TRACING");
    }
    for name in &arguments.event {
        let (system, event) = split(name)?;
        if !tracefs.has_event(system, event) {
            bail!(
                "this kernel has no trace event {name}: `ls {}/events` shows what it has",
                tracefs.root().display()
            );
        }
    }
    Ok(())
}

fn split(name: &str) -> Result<(&str, &str)> {
    name.split_once(':').with_context(|| format!("{name:?}: expected SYSTEM:EVENT"))
}

fn enable(instance: &Instance, arguments: &RecordArguments) -> Result<()> {
    for event in instance.tracefs().events("vmscan") {
        instance.enable("vmscan", &event)?;
    }
    for (system, event) in MORE_EVENTS {
        if instance.tracefs().has_event(system, event) {
            instance.enable(system, event)?;
        }
    }
    for name in &arguments.event {
        let (system, event) = split(name)?;
        instance.enable(system, event)?;
    }
    Ok(())
}

fn run_all(arguments: &RecordArguments, recorder: &Recorder, over: &dyn Fn() -> bool) -> Result<Vec<Run>> {
    let mut runs = Vec::new();
    for _ in 0..arguments.repeat {
        if !runs.is_empty() && over() {
            break;
        }
        let run = child::run(&arguments.live.command, over)?;
        recorder.run(&run)?;
        runs.push(run);
    }
    Ok(runs)
}

fn say(arguments: &RecordArguments, summary: &RecordingSummary, elapsed: Duration) {
    let lost = if summary.lost > 0 {
        format!("; {} events were LOST: record with a larger --buffer-size", count(summary.lost))
    } else {
        String::new()
    };
    tell!(
        "{}: {} events in {:.2} s, {} ({} of trace), {:.1} ms of CPU{lost}",
        arguments.output.display(),
        count(summary.events),
        elapsed.as_secs_f64(),
        bytes(summary.file_bytes),
        bytes(summary.raw_bytes),
        summary.cpu_ns as f64 / 1e6,
    );
}

/// That of the first run that failed, as a shell gives it.
fn exit_code(runs: &[Run]) -> ExitCode {
    let Some(run) = runs.iter().find(|run| !run.succeeded()) else { return ExitCode::SUCCESS };
    let code = run.exit.unwrap_or_else(|| 128 + run.signal.unwrap_or(0));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
