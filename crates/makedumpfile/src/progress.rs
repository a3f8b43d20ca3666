//! Progress in makedumpfile's form: once a second at most, and never waiting for the console.

use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use pagehaul_run::{Phase, Progress};

use crate::messages::show_at_once;

/// Interval between two lines on a terminal, such as /dev/console, where each replaces the one before.
const ON_TERMINAL: Duration = Duration::from_secs(1);
/// Interval elsewhere, where they add up.
const IN_LOG: Duration = Duration::from_secs(5);

/// Shows how far a run is until the other end of `end` is dropped.
pub(crate) fn show(progress: &Progress, end: &Receiver<()>) {
    let terminal = std::io::stderr().is_terminal();
    let interval = if terminal { ON_TERMINAL } else { IN_LOG };
    let (mut last, mut begun, mut shown) = (Phase::Prepare, Instant::now(), false);
    while let Err(RecvTimeoutError::Timeout) = end.recv_timeout(interval) {
        let (phase, done, total) = progress.current();
        if phase != last {
            (last, begun) = (phase, Instant::now());
        }
        let line = line(phase, done, total, begun.elapsed());
        show_at_once(&if terminal { format!("\r{line}") } else { format!("{line}\n") });
        shown = true;
    }
    if terminal && shown {
        show_at_once("\n");
    }
}

/// A line of constant width, so that each replaces the one before.
fn line(phase: Phase, done: u64, total: u64, spent: Duration) -> String {
    let what = match phase {
        Phase::Prepare => "Examining the vmcore",
        Phase::Scan => "Excluding unnecessary pages",
        Phase::Copy | Phase::Pack => "Copying data",
        Phase::Finish => "Writing the rest to disk",
    };
    let share = if total == 0 { 0.0 } else { (done as f64 / total as f64).min(1.0) };
    let eta = if share > 0.0 { spent.as_secs_f64() * (1.0 - share) / share } else { 0.0 };
    format!("{what:27} : [{:5.1} %]   eta: {:<8}", share * 100.0, format!("{eta:.0}s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_share_and_the_time_left() {
        let text = line(Phase::Pack, 42, 100, Duration::from_secs(42));
        assert_eq!(text, "Copying data                : [ 42.0 %]   eta: 58s     ");
        let width = line(Phase::Scan, 0, 0, Duration::ZERO).len();
        assert_eq!(text.len(), width);
    }
}
