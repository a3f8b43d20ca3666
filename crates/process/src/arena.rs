//! The memory that a process is copied to while it is stopped: one ring, allocated before the process is stopped, so that
//! no page fault lengthens the pause.

use std::collections::VecDeque;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::reserved::{HUGE, Reserved};

/// Bytes that are returned to the kernel at a time once nothing more is copied.
const RETURN: usize = 64 << 20;

/// The ring.
pub(crate) struct Arena {
    /// Reached through [`Slice`]s only, which never overlap.
    memory: Reserved,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Start of the next slice.
    head: usize,
    /// Slices that were taken, oldest first: number, end, and whether it was returned.
    out: VecDeque<(u64, usize, bool)>,
    next: u64,
    /// Bytes between the oldest slice's start and `head`, around the ring.
    used: usize,
    /// Start of the oldest slice.
    tail: usize,
    closed: bool,
    /// Whether a thread waits, or had to wait, for room.
    starved: bool,
    /// No more slices will be taken.
    draining: bool,
}

impl Arena {
    /// Allocates a ring of `capacity` bytes, rounded up to huge pages.
    pub(crate) fn new(capacity: usize) -> io::Result<Arc<Self>> {
        let memory = Reserved::new(capacity)?;
        Ok(Arc::new(Self { memory, state: Mutex::default(), changed: Condvar::new() }))
    }

    /// Returns its size in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.memory.bytes()
    }

    /// Makes the kernel allocate the first `bytes` of the memory now, on several threads.
    pub(crate) fn populate(&self, bytes: usize, threads: usize) {
        let bytes = bytes.min(self.capacity());
        let share = bytes.div_ceil(threads.max(1)).next_multiple_of(HUGE);
        let share = share.max(HUGE);
        let shares = bytes.div_ceil(share) as u64;
        pagehaul_pool::map_numbers(
            "memory",
            threads,
            shares,
            || (),
            |(), number| -> Option<()> {
                let start = number as usize * share;
                // SAFETY: within the mapping, and no slice is out yet. Where the kernel (before 5.14) does not know the advice,
                // pages come when they are first written to.
                unsafe {
                    let first = self.memory.base().add(start).cast();
                    libc::madvise(first, share.min(bytes - start), libc::MADV_POPULATE_WRITE);
                };
                None
            },
        );
    }

    /// Takes `len` contiguous bytes. Blocks until there is room. Returns `None` if the arena is closed or too small.
    pub(crate) fn take(self: &Arc<Self>, len: usize) -> Option<Slice> {
        let mut state = self.lock();
        loop {
            if state.closed || len > self.capacity() {
                return None;
            }
            if let Some(start) = state.place(len, self.capacity()) {
                let number = state.next;
                state.next += 1;
                state.out.push_back((number, start + len, false));
                return Some(Slice { arena: Arc::clone(self), start, len, number });
            }
            state.starved = true;
            self.changed.notify_all();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Blocks until a thread had to wait for room, everything is copied, or the arena is closed.
    pub(crate) fn wait_until_needed(&self) {
        let mut state = self.lock();
        while !(state.starved || state.draining || state.closed) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Returns whether a thread had to wait for room.
    pub(crate) fn was_starved(&self) -> bool {
        self.lock().starved
    }

    /// Ends the taking of slices: returned room goes back to the kernel.
    pub(crate) fn drain(&self) {
        self.lock().draining = true;
        self.changed.notify_all();
    }

    /// Ends all waiting for room.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_back(&self, number: u64) {
        let mut state = self.lock();
        if let Some(entry) = state.out.iter_mut().find(|entry| entry.0 == number) {
            entry.2 = true;
        }
        let before = state.tail;
        while let Some(&(_, end, true)) = state.out.front() {
            state.out.pop_front();
            let gone = if end >= state.tail { end - state.tail } else { self.capacity() - state.tail + end };
            state.used -= gone.min(state.used);
            state.tail = end;
        }
        if state.out.is_empty() {
            (state.used, state.tail) = (0, state.head);
        }
        let (mut from, to) = (before / RETURN * RETURN, state.tail / RETURN * RETURN);
        if state.used > 0 && state.head <= state.tail {
            // It goes around: the newest slices end at the head, right below the oldest.
            from = from.max(state.head.next_multiple_of(HUGE));
        }
        if state.draining && from < to {
            // SAFETY: within the mapping, and between the newest slice and the oldest that are out; nothing is taken any
            // more.
            unsafe { libc::madvise(self.memory.base().add(from).cast(), to - from, libc::MADV_DONTNEED) };
        }
        self.changed.notify_all();
    }
}

impl State {
    /// Finds room for `len` bytes and accounts for it.
    fn place(&mut self, len: usize, capacity: usize) -> Option<usize> {
        if self.used == 0 {
            (self.head, self.tail) = (0, 0);
        }
        // What is left at the end is skipped if it is too short.
        let around = self.head + len > capacity;
        let skip = if around { capacity - self.head } else { 0 };
        if self.used + skip + len > capacity {
            return None;
        }
        let start = if around { 0 } else { self.head };
        self.used += skip + len;
        self.head = start + len;
        Some(start)
    }
}

/// A part of the arena. Dropping it returns the room.
pub(crate) struct Slice {
    arena: Arc<Arena>,
    start: usize,
    len: usize,
    number: u64,
}

impl Deref for Slice {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the ring's accounting gives these bytes to this slice alone until it is dropped; they are mapped,
        // readable, and initialised by the kernel.
        unsafe { std::slice::from_raw_parts(self.arena.memory.base().add(self.start), self.len) }
    }
}

impl DerefMut for Slice {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; and `self` is borrowed for as long as the bytes are.
        unsafe { std::slice::from_raw_parts_mut(self.arena.memory.base().add(self.start), self.len) }
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        self.arena.give_back(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn room_comes_back_in_any_order() {
        let arena = Arena::new(HUGE).unwrap();
        let slices: Vec<Slice> = (0..4).map(|_| arena.take(HUGE / 4).unwrap()).collect();
        let waiter = std::thread::spawn({
            let arena = Arc::clone(&arena);
            move || arena.take(HUGE / 2).is_some()
        });
        arena.wait_until_needed();
        let [a, b, c, d] = slices.try_into().ok().unwrap();
        drop(b);
        drop(a);
        assert!(waiter.join().unwrap());
        drop((c, d));
        assert!(arena.was_starved());
        assert!(arena.take(HUGE + 1).is_none());
        arena.close();
        assert!(arena.take(1).is_none());
    }

    #[test]
    fn memory_is_given_back_around_what_is_out() {
        let piece = 1 << 20;
        // The ring is full, with its oldest slice at any place, when nothing more is taken.
        for turn in [1, 63, 64, 65, 70, 127, 130] {
            let arena = Arena::new(2 * RETURN + 10 * piece).unwrap();
            let count = arena.capacity() / piece;
            let take = |number: usize| {
                let mut slice = arena.take(piece).unwrap();
                (slice[0], slice[piece - 1]) = (number as u8 | 1, number as u8 | 1);
                slice
            };
            let mut out: VecDeque<Slice> = (0..count).map(take).collect();
            for number in count..count + turn {
                out.pop_front();
                out.push_back(take(number));
            }
            arena.drain();
            for number in turn.. {
                let Some(slice) = out.pop_front() else { break };
                assert_eq!(
                    (slice[0], slice[piece - 1]),
                    (number as u8 | 1, number as u8 | 1),
                    "{turn}: slice {number}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn slices_never_overlap(steps in proptest::collection::vec((1usize..HUGE / 2, any::<prop::sample::Index>()), 1..200)) {
            let arena = Arena::new(HUGE).unwrap();
            let mut out: Vec<Slice> = Vec::new();
            for (len, index) in steps {
                let fits = arena.lock().place(len, arena.capacity()).is_some();
                if fits {
                    // Undoes the trial placement, which was accounted for but not handed out.
                    let mut state = arena.lock();
                    let start = state.head - len;
                    let number = state.next;
                    state.next += 1;
                    state.out.push_back((number, start + len, false));
                    drop(state);
                    let slice = Slice { arena: Arc::clone(&arena), start, len, number };
                    for other in &out {
                        prop_assert!(slice.start + slice.len <= other.start || other.start + other.len <= slice.start);
                    }
                    out.push(slice);
                } else if !out.is_empty() {
                    out.swap_remove(index.index(out.len()));
                }
            }
            out.clear();
            prop_assert!(arena.take(HUGE).is_some(), "all room is there again");
        }
    }
}
