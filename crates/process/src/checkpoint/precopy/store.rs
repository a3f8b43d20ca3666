//! Copies of a process's pages, by their addresses.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::reserved::Reserved;
use crate::units::PAGE;

/// Bytes of addresses that share a slot of memory. Larger ones would waste memory on stacks and other sparse mappings.
const BLOCK: u64 = 64 << 10;
/// Maximum length of a piece.
const PIECE: u64 = 1 << 20;

/// Memory for the copies of all processes of a tree.
pub(super) struct Room {
    memory: Reserved,
    taken: AtomicUsize,
}

impl Room {
    pub(super) fn new(bytes: u64) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self { memory: Reserved::new(bytes as usize)?, taken: AtomicUsize::new(0) }))
    }

    /// Bytes in use.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed).min(self.memory.bytes()) as u64
    }

    fn slot(&self) -> Option<usize> {
        let slot = self.taken.fetch_add(BLOCK as usize, Ordering::Relaxed);
        (slot + BLOCK as usize <= self.memory.bytes()).then_some(slot)
    }
}

/// The copies of one process's pages.
pub(super) struct PageStore {
    room: Arc<Room>,
    blocks: BTreeMap<u64, Block>,
}

#[derive(Clone, Copy)]
struct Block {
    /// Where its slot begins in the memory.
    slot: usize,
    /// A bit for each page that is held.
    held: u16,
}

/// Addresses whose slots are contiguous in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) addresses: Range<u64>,
    at: usize,
}

/// The parts of a range within blocks: the block's number, the part, and the bits of its pages.
fn parts(range: &Range<u64>) -> impl Iterator<Item = (u64, Range<u64>, u16)> + use<> {
    let Range { start, end } = *range;
    (start / BLOCK..end.div_ceil(BLOCK)).map(move |number| {
        let part = start.max(number * BLOCK)..end.min((number + 1) * BLOCK);
        let (first, last) = (part.start % BLOCK / PAGE, (part.end - 1) % BLOCK / PAGE);
        let bits = (first..=last).fold(0, |bits, page| bits | 1 << page);
        (number, part, bits)
    })
}

impl PageStore {
    pub(super) fn new(room: Arc<Room>) -> Self {
        Self { room, blocks: BTreeMap::new() }
    }

    /// Makes room for these pages. Fails if there is none left.
    pub(super) fn reserve(&mut self, ranges: &[Range<u64>]) -> io::Result<()> {
        for (number, ..) in ranges.iter().flat_map(parts) {
            if let std::collections::btree_map::Entry::Vacant(entry) = self.blocks.entry(number) {
                let slot = self.room.slot().ok_or(io::ErrorKind::OutOfMemory)?;
                entry.insert(Block { slot, held: 0 });
            }
        }
        Ok(())
    }

    /// Returns where these pages belong. Those without room are left out.
    pub(super) fn pieces(&self, ranges: &[Range<u64>]) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for (number, part, _) in ranges.iter().flat_map(parts) {
            let Some(block) = self.blocks.get(&number) else { continue };
            let at = block.slot + (part.start % BLOCK) as usize;
            match pieces.last_mut() {
                Some(last)
                    if last.addresses.end == part.start
                        && last.at + last.len() == at
                        && part.end - last.addresses.start <= PIECE =>
                {
                    last.addresses.end = part.end;
                }
                _ => pieces.push(Piece { addresses: part, at }),
            }
        }
        pieces
    }

    /// The memory of a piece.
    ///
    /// # Safety
    /// No other reference to memory of these addresses may be alive.
    #[expect(clippy::mut_from_ref, reason = "pieces that do not overlap are written to by several threads")]
    pub(super) unsafe fn memory(&self, piece: &Piece) -> &mut [u8] {
        // SAFETY: pieces lie within slots, which lie within the mapping; the caller makes sure that it is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.room.memory.base().add(piece.at), piece.len()) }
    }

    /// Sets whether these pages are held.
    pub(super) fn set_held(&mut self, range: &Range<u64>, is_held: bool) {
        for (number, _, bits) in parts(range) {
            if let Some(block) = self.blocks.get_mut(&number) {
                if is_held {
                    block.held |= bits;
                } else {
                    block.held &= !bits;
                }
            }
        }
    }

    /// Passes the pages of a range that are not held to `push`.
    pub(super) fn missing(&self, range: &Range<u64>, push: &mut impl FnMut(Range<u64>)) {
        let mut at = range.start;
        // The process is frozen, and most of its memory may have no blocks.
        for (&number, block) in self.blocks.range(range.start / BLOCK..range.end.div_ceil(BLOCK)) {
            let part = range.start.max(number * BLOCK)..range.end.min((number + 1) * BLOCK);
            if at < part.start {
                push(at..part.start);
            }
            at = part.end;
            for page in part.step_by(PAGE as usize) {
                if block.held & 1 << (page % BLOCK / PAGE) == 0 {
                    push(page..page + PAGE);
                }
            }
        }
        if at < range.end {
            push(at..range.end);
        }
    }

    /// Copies pages that are held, from `address` on, to `buffer`.
    pub(super) fn read(&self, address: u64, buffer: &mut [u8]) {
        let range = address..address + buffer.len() as u64;
        for piece in self.pieces(std::slice::from_ref(&range)) {
            let into = (piece.addresses.start - address) as usize;
            if let Some(buffer) = buffer.get_mut(into..into + piece.len()) {
                // SAFETY: `self` is borrowed, so that nothing writes to the memory.
                buffer.copy_from_slice(unsafe { self.memory(&piece) });
            }
        }
    }
}

impl Piece {
    pub(super) fn len(&self) -> usize {
        (self.addresses.end - self.addresses.start) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_full_room_is_an_error() {
        let mut store = PageStore::new(Room::new(1).unwrap());
        let (fits, more) = (0..2 << 20, 4 << 20..5 << 20);
        store.reserve(std::slice::from_ref(&fits)).unwrap();
        assert_eq!(store.pieces(std::slice::from_ref(&fits)).len(), 2);
        let error = store.reserve(std::slice::from_ref(&more)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        assert_eq!(store.room.taken(), 2 << 20);
    }

    proptest! {
        #[test]
        fn pages_come_back_as_they_were(
            writes in proptest::collection::vec((0u64..200, 1u64..40, any::<u8>()), 1..40),
        ) {
            let mut store = PageStore::new(Room::new(2 << 20).unwrap());
            let mut expected: BTreeMap<u64, u8> = BTreeMap::new();
            for (first, count, value) in writes {
                let range = first * PAGE..(first + count) * PAGE;
                store.reserve(std::slice::from_ref(&range)).unwrap();
                for piece in store.pieces(std::slice::from_ref(&range)) {
                    // SAFETY: the only reference.
                    unsafe { store.memory(&piece) }.fill(value);
                }
                store.set_held(&range, value % 4 != 0);
                for page in first..first + count {
                    if value % 4 == 0 { expected.remove(&page); } else { expected.insert(page, value); }
                }
            }
            let mut missing = Vec::new();
            store.missing(&(0..240 * PAGE), &mut |range| missing.extend(range.start / PAGE..range.end / PAGE));
            prop_assert_eq!(missing, (0..240).filter(|page| !expected.contains_key(page)).collect::<Vec<_>>());
            for (page, value) in expected {
                let mut buffer = [0; PAGE as usize];
                store.read(page * PAGE, &mut buffer);
                prop_assert!(buffer.iter().all(|byte| *byte == value));
            }
        }
    }
}
