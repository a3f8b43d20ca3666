//! When a command that watches the running kernel ends.

use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;

/// After the time asked for, at a signal, or with the command.
pub(crate) struct End {
    begin: Instant,
    limit: Option<Duration>,
    stop: Arc<AtomicBool>,
    command: Option<Child>,
    /// The command's exit status.
    pub(crate) code: ExitCode,
}

impl End {
    /// Catches signals: before anything is set up in the kernel that a signal must not leave there.
    pub(crate) fn catch_signals() -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
        {
            signal_hook::flag::register(signal, Arc::clone(&stop)).context("catching signals")?;
        }
        Ok(Self { begin: Instant::now(), limit: None, stop, command: None, code: ExitCode::SUCCESS })
    }

    /// Starts the command, if there is one, and the clock.
    pub(crate) fn start(&mut self, command: &[String], seconds: Option<u32>) -> anyhow::Result<()> {
        if let Some((program, rest)) = command.split_first() {
            let child = Command::new(program).args(rest).spawn();
            self.command = Some(child.with_context(|| format!("starting {program}"))?);
        } else if seconds.is_none() {
            tell!("Tracing... Hit Ctrl-C to end.");
        }
        self.begin = Instant::now();
        self.limit = seconds.map(|seconds| Duration::from_secs(seconds.into()));
        Ok(())
    }

    /// Time since the start.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Whether it is time to end.
    pub(crate) fn reached(&mut self) -> bool {
        if let Some(child) = &mut self.command
            && let Ok(Some(status)) = child.try_wait()
        {
            self.code = ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1));
            return true;
        }
        self.stop.load(Ordering::Relaxed) || self.limit.is_some_and(|limit| self.begin.elapsed() >= limit)
    }
}
