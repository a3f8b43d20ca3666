//! Signals that ask for an end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Makes the first signal call `stop`, which may do no more than a signal handler may, and the second end the program
/// at once.
pub(crate) fn on_stop(stop: impl Fn() + Clone + Send + Sync + 'static) -> std::io::Result<()> {
    let again = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&again))?;
        signal_hook::flag::register(signal, Arc::clone(&again))?;
        let stop = stop.clone();
        // SAFETY: the handlers given store to an atomic and do nothing else, which is allowed in a signal handler.
        unsafe { signal_hook::low_level::register(signal, stop)? };
    }
    Ok(())
}
