//! The scaffold of every long run: progress on standard error, and signals that end it early.

use std::sync::mpsc;
use std::thread;

use anyhow::Context;
use pagehaul_run::Progress;

use crate::{progress, signals};

/// Runs `work` with its progress shown, unless `quiet`. SIGINT, SIGTERM and SIGHUP cancel it, so that it ends with what it
/// has. Returns the result, and the most anonymous memory seen in use.
pub(crate) fn cancellable<T>(quiet: bool, work: impl FnOnce(&Progress) -> T) -> anyhow::Result<(T, u64)> {
    let progress = Progress::default();
    signals::cancel_on_signals(&progress.cancel_token()).context("cannot set up signal handlers")?;
    Ok(shown(&progress, quiet, work))
}

/// Runs `work` with its progress shown, unless `quiet`. Signals keep their default action: for work that leaves nothing
/// behind.
pub(crate) fn shown<T>(progress: &Progress, quiet: bool, work: impl FnOnce(&Progress) -> T) -> (T, u64) {
    thread::scope(|scope| {
        let (running, end) = mpsc::channel::<()>();
        // Without a thread to show it, the run goes on unseen.
        let display = thread::Builder::new()
            .name("progress".into())
            .spawn_scoped(scope, move || progress::show(progress, &end, quiet));
        let result = work(progress);
        drop(running);
        let peak = display.ok().and_then(|display| display.join().ok());
        (result, peak.unwrap_or(0))
    })
}
