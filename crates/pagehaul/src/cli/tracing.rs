//! Options and run of the commands that trace the running kernel and report on it: `latency` and `vmalloc`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use pagehaul_latency::EventRecorder;
use pagehaul_latency::trace_file::Intervals;
use pagehaul_present::number::{bytes, count};
use rustix::process::{Pid, Signal, kill_process};

use crate::cli::options::{Json, LiveTrace, positive_duration};
use crate::files::Recording;

/// Time between two reads of the kernel's buffers.
pub(super) const POLL: Duration = Duration::from_millis(100);

/// How long a command may take to end after SIGTERM, before it gets SIGKILL.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct TracingArguments {
    /// Report every TIME (500ms, 10s, 5m; a number without a unit is in seconds). With --from, on the trace's clock, and
    /// only intervals with events
    #[arg(short, long, value_name = "TIME", value_parser = positive_duration)]
    pub(super) interval: Option<Duration>,
    /// Record the events to OUTPUT, to be read with --from
    #[arg(short, long, conflicts_with_all = ["from", "interval", "json"])]
    pub(super) output: Option<PathBuf>,
    /// Read a trace file instead of the running kernel: a pagehaul recording (.pht), trace.dat or text; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "command")]
    pub(super) from: Option<PathBuf>,
    #[command(flatten)]
    pub(super) live: LiveTrace,
    #[command(flatten)]
    pub(super) json: Json,
}

impl TracingArguments {
    /// KiB of the kernel's buffer per CPU.
    pub(super) fn buffer_kb(&self) -> u32 {
        self.live.buffer_kb(4 << 10)
    }

    pub(super) fn intervals(&self) -> Intervals {
        Intervals { interval: self.interval, duration: self.live.duration }
    }
}

/// Catches signals that end a run. Must precede all changes to the kernel, so that no signal leaves them behind.
pub(super) fn catch_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let signalled = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&signalled)).context("cannot catch signals")?;
    }
    Ok(signalled)
}

/// A run of tracing: ends after --duration, on a signal, or with the command.
pub(super) struct TracingRun {
    begin: Instant,
    duration: Option<Duration>,
    interval: Option<Duration>,
    next_report: Option<Duration>,
    signalled: Arc<AtomicBool>,
    command: Option<Child>,
    /// When the command got SIGTERM.
    asked: Option<Instant>,
    /// The command's exit status.
    pub(super) code: ExitCode,
}

impl TracingRun {
    pub(super) fn catch_signals() -> anyhow::Result<Self> {
        Ok(Self {
            begin: Instant::now(),
            duration: None,
            interval: None,
            next_report: None,
            signalled: catch_signals()?,
            command: None,
            asked: None,
            code: ExitCode::SUCCESS,
        })
    }

    /// Starts the command, if any, and the clock.
    pub(super) fn start(&mut self, arguments: &TracingArguments) -> anyhow::Result<()> {
        if let Some((program, rest)) = arguments.live.command.split_first() {
            let child = Command::new(program).args(rest).spawn();
            self.command = Some(child.with_context(|| format!("cannot start {program}"))?);
        } else if arguments.live.duration.is_none() {
            tell!("Tracing... Hit Ctrl-C to end.");
        }
        (self.duration, self.interval) = (arguments.live.duration, arguments.interval);
        self.next_report = self.interval;
        self.begin = Instant::now();
        Ok(())
    }

    /// Returns whether the run is over. On a signal, the command is ended first: with SIGTERM, in the end with SIGKILL.
    pub(super) fn is_over(&mut self) -> bool {
        let late = self.duration.is_some_and(|duration| self.begin.elapsed() >= duration);
        let signalled = self.signalled.load(Ordering::Relaxed);
        let Some(child) = &mut self.command else { return late || signalled };
        if let Ok(Some(status)) = child.try_wait() {
            self.code = ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
            self.command = None;
            return true;
        }
        if signalled && self.asked.is_none_or(|since| since.elapsed() >= PATIENCE) {
            end(child, if self.asked.is_none() { Signal::TERM } else { Signal::KILL });
            self.asked = Some(Instant::now());
        }
        late && !signalled
    }

    /// Returns whether an interval has passed since the last report.
    pub(super) fn report_due(&mut self) -> bool {
        let Some((next, interval)) = self.next_report.zip(self.interval) else { return false };
        let due = self.begin.elapsed() >= next;
        if due {
            self.next_report = next.checked_add(interval);
        }
        due
    }

    /// Records until the run is over.
    pub(super) fn record(
        mut self,
        recorder: EventRecorder,
        recording: Recording,
        path: &Path,
    ) -> anyhow::Result<ExitCode> {
        while !recorder.failed() && !self.is_over() {
            std::thread::sleep(POLL);
        }
        let summary = recording.finish(recorder.finish())?;
        let (events, lost) = (count(summary.events), count(summary.lost));
        say!("{}: {events} events, {lost} lost, {}", path.display(), bytes(summary.file_bytes))?;
        Ok(self.code)
    }
}

impl Drop for TracingRun {
    fn drop(&mut self) {
        // Tracing failed, or was stopped while it was set up. With --duration, the command goes on.
        if let Some(child) = self.command.as_ref().filter(|_| self.duration.is_none()) {
            end(child, Signal::TERM);
        }
    }
}

fn end(child: &Child, signal: Signal) {
    // It may have ended by now; as long as nothing waited for it, no other process has its PID.
    let _ = kill_process(Pid::from_child(child), signal);
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::process::Stdio;

    use super::*;

    #[test]
    fn a_command_that_ignores_sigterm_is_killed() {
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; echo; while :; do sleep 1; done"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // It ignores the signal from here on.
        child.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
        let mut run = TracingRun {
            begin: Instant::now(),
            duration: None,
            interval: None,
            next_report: None,
            signalled: Arc::new(AtomicBool::new(true)),
            command: Some(child),
            asked: None,
            code: ExitCode::SUCCESS,
        };
        assert!(!run.is_over());
        assert!(run.asked.is_some() && run.command.as_mut().unwrap().try_wait().unwrap().is_none());
        // As if the time were over.
        run.asked = Instant::now().checked_sub(PATIENCE);
        assert!(!run.is_over());
        run.command.as_mut().unwrap().wait().unwrap();
        assert!(run.is_over() && run.command.is_none());
    }
}
