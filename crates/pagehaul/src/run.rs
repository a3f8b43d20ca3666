//! The scaffold of every long run: progress on standard error, and signals that end it early.

use std::sync::mpsc::{self, Receiver};
use std::thread;

use anyhow::Context;
use pagehaul_run::Progress;

use crate::{progress, signals};

/// Runs `work` with its progress shown, unless `quiet`. SIGINT, SIGTERM and SIGHUP cancel it, so that it ends with what it
/// has. Returns the result, and the most anonymous memory seen in use.
pub(crate) fn cancellable<T>(quiet: bool, work: impl FnOnce(&Progress) -> T) -> anyhow::Result<(T, u64)> {
    cancellable_with(|progress, end| progress::show(progress, end, quiet), work)
        .map(|(result, peak)| (result, peak.unwrap_or(0)))
}

/// Does the same as [`cancellable`] with another display: `show` runs until its receiver is disconnected. Returns what it returns.
pub(crate) fn cancellable_with<T, S: Send>(
    show: impl FnOnce(&Progress, &Receiver<()>) -> S + Send,
    work: impl FnOnce(&Progress) -> T,
) -> anyhow::Result<(T, Option<S>)> {
    let progress = Progress::default();
    signals::cancel_on_signals(&progress.cancel_token()).context("cannot set up signal handlers")?;
    Ok(shown_with(&progress, show, work))
}

/// Runs `work` with its progress shown, unless `quiet`. Signals end the program: for work that leaves nothing behind.
pub(crate) fn shown<T>(progress: &Progress, quiet: bool, work: impl FnOnce(&Progress) -> T) -> (T, u64) {
    let (result, peak) =
        shown_with(progress, |progress, end| progress::show_until_signal(progress, end, quiet), work);
    (result, peak.unwrap_or(0))
}

fn shown_with<T, S: Send>(
    progress: &Progress,
    show: impl FnOnce(&Progress, &Receiver<()>) -> S + Send,
    work: impl FnOnce(&Progress) -> T,
) -> (T, Option<S>) {
    thread::scope(|scope| {
        let (running, end) = mpsc::channel::<()>();
        // Without a thread, the run continues without a display.
        let display =
            thread::Builder::new().name("progress".into()).spawn_scoped(scope, move || show(progress, &end));
        let result = work(progress);
        drop(running);
        (result, display.ok().and_then(|display| display.join().ok()))
    })
}
