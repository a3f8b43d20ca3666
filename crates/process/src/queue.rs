//! Jobs on their way from those who copy to those who pack, in order.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::cutter::Job;

/// The jobs that are copied and not yet packed. They leave in the order of their numbers, whatever order they come in:
/// the packer of the lowest number always gets it, so that the writer, who waits for it, gives buffers back.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: BTreeMap<u64, Job>,
    next: u64,
    complete: bool,
    closed: bool,
}

impl Queue {
    pub(crate) fn push(&self, job: Job) {
        self.lock().jobs.insert(job.number, job);
        self.changed.notify_all();
    }

    /// The next job; waits for it. None when there are no more.
    pub(crate) fn pop(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            let next = state.next;
            if let Some(job) = state.jobs.remove(&next) {
                state.next += 1;
                return Some(job);
            }
            if state.complete {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// No more jobs will come.
    pub(crate) fn complete(&self) {
        self.lock().complete = true;
        self.changed.notify_all();
    }

    /// Ends all waiting, and drops what is there.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.jobs.clear();
        drop(state);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cutter::Content;

    #[test]
    fn jobs_leave_in_order() {
        let queue = Queue::default();
        let job = |number| Job { number, range: 0..0, content: Content::Hole };
        for number in [2, 0, 1] {
            queue.push(job(number));
        }
        queue.complete();
        let order: Vec<u64> = std::iter::from_fn(|| queue.pop()).map(|job| job.number).collect();
        assert_eq!(order, [0, 1, 2]);
        queue.push(job(3));
        queue.close();
        assert!(queue.pop().is_none());
    }
}
