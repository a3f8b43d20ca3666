use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
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

/// Calls `work` with each number below `count`, on up to `threads` threads called `name` at once. `worker` makes the state
/// of a thread. Returns what `work` returned other than `None`, in the order of the numbers.
///
/// The calling thread is one of them, so that the work is done where the system allows no other.
pub fn map_numbers<W, R: Send>(
    name: &str,
    threads: usize,
    count: u64,
    worker: impl Fn() -> W + Sync,
    work: impl Fn(&mut W, u64) -> Option<R> + Sync,
) -> Vec<R> {
    let next = AtomicU64::new(0);
    let found = Mutex::new(Vec::new());
    let share = || {
        let mut worker = worker();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            if let Some(result) = work(&mut worker, number) {
                found.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
            }
        }
    };
    thread::scope(|scope| {
        let others = threads.saturating_sub(1).min(usize::try_from(count).unwrap_or(usize::MAX));
        let others: Vec<_> = handles(scope, name, others, || &share).collect();
        share();
        // A scope waits until the closures have returned. Until a thread has ended it counts against the limit.
        for thread in others {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_unstable_by_key(|(number, _)| *number);
    found.into_iter().map(|(_, result)| result).collect()
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

    use super::*;

    #[test]
    fn numbers_are_shared_by_as_many_threads_as_asked_for() {
        let together = Barrier::new(3);
        let meet = || {
            together.wait();
        };
        let even = map_numbers("test", 3, 100, meet, |(), number| (number % 2 == 0).then_some(number));
        assert_eq!(even, (0..100).step_by(2).collect::<Vec<_>>());
        let own = thread::current().id();
        let alone = map_numbers("test", 0, 2, || (), |(), _| Some(thread::current().id()));
        assert_eq!(alone, [own, own]);
        assert!(map_numbers("test", 4, 0, || (), |(), number| Some(number)).is_empty());
    }
}
