use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request to end a run early. Clones share one flag.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// Asks the run to end with what it has. Safe to call from a signal handler: stores to an atomic and does nothing
    /// else.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the run was asked to end.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
