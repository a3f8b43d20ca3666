use std::thread::{self, Builder, Scope, ScopedJoinHandle};

/// Creates up to `count` threads called `name`. Returns how many there are: fewer where the system allows no more
/// (`pids.max`, `RLIMIT_NPROC`, memory).
pub fn spawn_up_to<'scope, F>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    count: usize,
    body: impl FnMut() -> F,
) -> usize
where
    F: FnOnce() + Send + 'scope,
{
    handles(scope, name, count, body).count()
}

/// Runs `work` on up to `threads` threads called `name` at once and waits for all of them. The calling thread is one of
/// them, so that the work is done where the system allows no other.
pub fn share_work(name: &str, threads: usize, work: impl Fn() + Sync) {
    thread::scope(|scope| {
        let others: Vec<_> = handles(scope, name, threads.saturating_sub(1), || &work).collect();
        work();
        // A scope waits until the closures have returned. Until a thread has ended it counts against the limit.
        for thread in others {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
}

/// Creates threads until there are `count`, or one cannot be created.
fn handles<'scope, F>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    count: usize,
    mut body: impl FnMut() -> F,
) -> impl Iterator<Item = ScopedJoinHandle<'scope, ()>>
where
    F: FnOnce() + Send + 'scope,
{
    (0..count).map_while(move |_| Builder::new().name(name.into()).spawn_scoped(scope, body()).ok())
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn share_work_uses_as_many_threads_as_asked_for() {
        let (count, together) = (AtomicUsize::new(0), Barrier::new(3));
        share_work("test", 3, || {
            together.wait();
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 3);
        let alone = AtomicUsize::new(0);
        share_work("test", 0, || {
            alone.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(alone.into_inner(), 1);
    }
}
