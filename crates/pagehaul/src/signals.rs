//! Signals that ask a run to end, and one that must not.

use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use pagehaul_run::{CancelToken, Stop};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::low_level;

/// Time after the first signal in which further ones are ignored. timeout(1) sends two at once, systemd may send SIGTERM and
/// SIGHUP, and an impatient user presses Ctrl-C twice: none of them asks to lose the dump.
pub(crate) const GRACE: Duration = Duration::from_secs(3);

/// Cancelled by the first signal, whichever run it is for.
static CANCELLED: LazyLock<CancelToken> = LazyLock::new(CancelToken::default);

/// Lets a write beyond the limit of file sizes (`ulimit -f`) fail with EFBIG, of which a command makes a sentence and a marked dump; the
/// signal would end it. Programs that are started have their own way again, which is not so where it is ignored.
pub(crate) fn fail_writes_beyond_limits() {
    // Without it, the signal ends the program.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// The end of what a signal cancels.
pub(crate) fn stop() -> Stop {
    Stop::new(CANCELLED.clone())
}

/// Whether a signal has asked a run to end.
pub(crate) fn cancelled() -> CancelToken {
    CANCELLED.clone()
}

/// Makes the first SIGINT, SIGTERM or SIGHUP cancel the run. Later ones end the program at once, but not within
/// [`GRACE`].
pub(crate) fn cancel_on_signals(cancel: &CancelToken) -> io::Result<()> {
    let first = Arc::new(AtomicU64::new(0));
    let all = CANCELLED.clone();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let (cancel, all, first) = (cancel.clone(), all.clone(), Arc::clone(&first));
        let handler = move || {
            let now = monotonic_millis();
            cancel.cancel();
            all.cancel();
            let earlier = first.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
            // Another thread may have handled the first signal after this one read the clock.
            if earlier.is_err_and(|first| now.saturating_sub(first) > GRACE.as_millis() as u64) {
                let _ = low_level::emulate_default_handler(signal);
            }
        };
        // SAFETY: the handler reads a clock, stores to atomics, and calls a function documented as safe in a signal handler.
        unsafe { low_level::register(signal, handler)? };
    }
    // A signal that came before, while what precedes this run was done.
    if CANCELLED.is_cancelled() {
        cancel.cancel();
    }
    Ok(())
}

/// Makes SIGINT, SIGTERM and SIGHUP store their number, for [`end_by`]. A second one ends the program at once.
pub(crate) fn note_signals() -> io::Result<Arc<AtomicI32>> {
    let noted = Arc::new(AtomicI32::new(0));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let noted = Arc::clone(&noted);
        let handler = move || {
            if noted.swap(signal, Ordering::Relaxed) != 0 {
                end_by(signal);
            }
        };
        // SAFETY: the handler changes an atomic, and calls a function documented as safe in a signal handler.
        unsafe { low_level::register(signal, handler)? };
    }
    Ok(noted)
}

/// Ends the program as a signal without a handler does.
pub(crate) fn end_by(signal: i32) {
    let _ = low_level::emulate_default_handler(signal);
}

/// Milliseconds since boot; clock_gettime(2) is async-signal-safe (POSIX.1-2008).
fn monotonic_millis() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000).max(1)
}
