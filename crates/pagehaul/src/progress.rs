//! Progress on standard error: a bar on a terminal; elsewhere, such as in a log or on a capture kernel's console, a line every
//! few seconds.

use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pagehaul_run::{Progress, memory};

use pagehaul_present::{number, time};

use crate::signals;
use crate::standard_output::is_console;

/// Interval between two samples; the first ones are shorter, since small machines are done before 100 ms.
const TICK: Duration = Duration::from_millis(100);
const FIRST_TICK: Duration = Duration::from_millis(5);
/// Interval between two lines, where there is no bar.
const LINE: Duration = Duration::from_secs(5);

/// Shows how far a run is until the other end of `end` is dropped. Returns the most anonymous memory seen in use, in bytes.
pub(crate) fn show(progress: &Progress, end: &Receiver<()>, quiet: bool) -> u64 {
    show_until(progress, end, Display::new(quiet), || {})
}

/// Does the same, for work that a signal ends at once: the bar is cleared first.
pub(crate) fn show_until_signal(progress: &Progress, end: &Receiver<()>, quiet: bool) -> u64 {
    let display = Display::new(quiet);
    // Without a bar, signals keep their default action.
    let noted = match &display {
        Display::Bar(bar) => signals::note_signals().ok().map(|noted| (noted, bar.clone())),
        _ => None,
    };
    show_until(progress, end, display, || {
        let Some((noted, bar)) = &noted else { return };
        let signal = noted.load(Ordering::Relaxed);
        if signal != 0 {
            bar.finish_and_clear();
            signals::end_by(signal);
        }
    })
}

fn show_until(
    progress: &Progress,
    end: &Receiver<()>,
    mut display: Display,
    check_signals: impl Fn(),
) -> u64 {
    let mut peak = 0;
    let mut tick = FIRST_TICK;
    loop {
        peak = peak.max(anonymous_memory().unwrap_or(0));
        let over = !matches!(end.recv_timeout(tick), Err(RecvTimeoutError::Timeout));
        tick = (tick * 2).min(TICK);
        check_signals();
        if over {
            display.clear();
            return peak;
        }
        let (phase, done, total) = progress.current();
        display.show(phase.name(), done, total);
    }
}

/// Bytes of anonymous memory that this process uses now (mapped windows of sources are not in it).
fn anonymous_memory() -> Option<u64> {
    memory::bytes_in("/proc/self/status", "RssAnon:")
}

enum Display {
    Nothing,
    Bar(ProgressBar),
    Lines { next: Instant, begun: Instant, phase: &'static str },
}

impl Display {
    fn new(quiet: bool) -> Self {
        if quiet {
            Self::Nothing
        } else if std::io::stderr().is_terminal() && !is_console(std::io::stderr()) {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(style(0));
            Self::Bar(bar)
        } else {
            let now = Instant::now();
            Self::Lines { next: now + LINE, begun: now, phase: "" }
        }
    }

    fn show(&mut self, phase: &'static str, done: u64, total: u64) {
        match self {
            Self::Nothing => {}
            Self::Bar(bar) => {
                if bar.message() != phase || (bar.length() == Some(0)) != (total == 0) {
                    bar.reset();
                    bar.set_style(style(total));
                    bar.set_message(phase);
                }
                bar.set_length(total);
                bar.set_position(done.min(total));
            }
            Self::Lines { next, begun, phase: last } => {
                let now = Instant::now();
                if *last != phase {
                    (*last, *begun) = (phase, now);
                }
                if now < *next {
                    return;
                }
                *next = now + LINE;
                tell!("pagehaul: {}", line(phase, done, total, now - *begun));
            }
        }
    }

    fn clear(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// How a bar looks. Of a phase whose total is not known, only the name is shown.
fn style(total: u64) -> ProgressStyle {
    let template = match total {
        0 => "{msg} …",
        _ => "{msg:8} [{wide_bar}] {bytes} of {total_bytes}  {binary_bytes_per_sec}  ETA {eta}",
    };
    // The templates are constants that are known to be right.
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.progress_chars("=> ")
}

fn line(phase: &str, done: u64, total: u64, spent: Duration) -> String {
    if total == 0 {
        return format!("{phase} …");
    }
    if done == 0 {
        return format!("{phase} 0.0%, 0 B of {}", number::bytes(total));
    }
    let rate = done as f64 / spent.as_secs_f64().max(0.001);
    let rest = total.saturating_sub(done) as f64 / rate.max(1.0);
    format!(
        "{} {:.1}%, {} of {}, {}/s, {} left",
        phase,
        done as f64 * 100.0 / total as f64,
        number::bytes(done),
        number::bytes(total),
        number::bytes(rate as u64),
        time::seconds(rest),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_ends_at_once_has_a_memory_peak_too() {
        let (alive, end) = std::sync::mpsc::channel::<()>();
        drop(alive);
        assert!(show(&Progress::default(), &end, true) > 0);
    }

    #[test]
    fn lines_tell_rate_and_what_is_left() {
        let text = line("pack", 256 << 20, 1 << 30, Duration::from_secs(2));
        assert_eq!(text, "pack 25.0%, 256.0 MiB of 1.0 GiB, 128.0 MiB/s, 6.00 s left");
        // Nothing is known yet of what is left.
        assert_eq!(line("pack", 0, 1 << 30, Duration::from_secs(2)), "pack 0.0%, 0 B of 1.0 GiB");
    }
}
