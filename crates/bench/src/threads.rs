//! The same work on several threads.

use std::thread::{self, Builder};

use crate::error::BenchError;

/// Does `work` on `threads` threads including the calling one, or on as many as the system allows. The threads divide the
/// work among themselves, so fewer of them do the same.
pub(crate) fn on_threads<T: Send>(
    threads: usize,
    work: impl Fn() -> Result<T, BenchError> + Sync,
) -> Result<Vec<T>, BenchError> {
    thread::scope(|scope| {
        let spawn = |_| Builder::new().name("bench".into()).spawn_scoped(scope, &work).ok();
        let others: Vec<_> = (1..threads).filter_map(spawn).collect();
        let mut results = vec![work()];
        for other in others {
            let panicked = |_| Err(BenchError::Wrong("a measuring thread panicked".into()));
            results.push(other.join().unwrap_or_else(panicked));
        }
        results.into_iter().collect()
    })
}
