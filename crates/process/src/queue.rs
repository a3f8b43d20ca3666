//! Tiles on their way from copying threads to packing threads, in order.
//!
//! Not a lane of the worker pool: several threads take from it, and the arena bounds what is in it, not a number of
//! buffers.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::tiler::Tile;

/// The tiles that are copied and not yet packed. They leave in the order of their numbers, as [`Work::next`] has to hand
/// them out, whatever order they come in.
///
/// [`Work::next`]: pagehaul_pool::Work::next
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    tiles: BTreeMap<u64, Tile>,
    next: u64,
    complete: bool,
    closed: bool,
}

impl Queue {
    pub(crate) fn push(&self, tile: Tile) {
        self.lock().tiles.insert(tile.number, tile);
        self.changed.notify_all();
    }

    /// Returns the next tile; blocks until it is there. Returns `None` after the last.
    pub(crate) fn pop(&self) -> Option<Tile> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            let next = state.next;
            if let Some(tile) = state.tiles.remove(&next) {
                state.next += 1;
                return Some(tile);
            }
            if state.complete {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// No more tiles will come.
    pub(crate) fn complete(&self) {
        self.lock().complete = true;
        self.changed.notify_all();
    }

    /// Ends all waiting, and drops what is there.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.tiles.clear();
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
    use crate::tiler::Content;

    #[test]
    fn tiles_leave_in_order() {
        let queue = Queue::default();
        let tile = |number| Tile { number, range: 0..0, content: Content::Hole };
        for number in [2, 0, 1] {
            queue.push(tile(number));
        }
        queue.complete();
        let order: Vec<u64> = std::iter::from_fn(|| queue.pop()).map(|tile| tile.number).collect();
        assert_eq!(order, [0, 1, 2]);
        queue.push(tile(3));
        queue.close();
        assert!(queue.pop().is_none());
    }
}
