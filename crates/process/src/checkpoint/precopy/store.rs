//! Copies of a process's pages, by their addresses: in memory, spilled to the container, or in the base of that.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU32;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::tracked::push_joined;
use crate::checkpoint::container::Block as Written;
use crate::reserved::Reserved;
use crate::units::PAGE;

/// Pages of addresses that are looked up together: as many as a word of bits has.
const BLOCK_PAGES: u64 = 16;
const BLOCK: u64 = BLOCK_PAGES * PAGE;
/// Maximum length of a piece.
const PIECE: u64 = 1 << 20;
/// Maximum number of places, which are numbers of 32 bits: 16 TiB.
const MOST: u64 = u32::MAX as u64;

/// Memory for the copies of all processes of a tree.
pub(super) struct Room {
    memory: Reserved,
    /// Bytes of a page of this machine.
    page: u64,
    /// Units of [`PAGE`] that may be taken, and those that were. A page of this machine has one or several, and gets room for all of them
    /// or for none: CRIU cannot save a part of it.
    most: AtomicU64,
    taken: AtomicU64,
}

impl Room {
    /// Of a machine whose pages have `page` bytes.
    pub(super) fn new(bytes: u64, page: u64) -> io::Result<Arc<Self>> {
        let memory = Reserved::new(bytes.min(MOST * PAGE) as usize)?;
        let most = (memory.bytes() as u64).min(MOST * PAGE);
        let most = AtomicU64::new(most / page * page / PAGE);
        Ok(Arc::new(Self { memory, page, most, taken: AtomicU64::new(0) }))
    }

    /// Lets no more than these bytes be taken.
    pub(super) fn limit(&self, bytes: u64) {
        self.most.fetch_min(bytes / self.page * self.page / PAGE, Ordering::Relaxed);
    }

    /// Bytes in use.
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed) * PAGE
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> u64 {
        (self.most.load(Ordering::Relaxed) * PAGE).saturating_sub(self.taken())
    }

    /// Takes a page: its number, counted from 1.
    fn take(&self) -> Option<NonZeroU32> {
        let page = self.taken.fetch_add(1, Ordering::Relaxed);
        if page >= self.most.load(Ordering::Relaxed) {
            self.taken.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        NonZeroU32::new(page as u32 + 1)
    }
}

/// The copies of one process's pages.
pub(super) struct PageStore {
    room: Arc<Room>,
    blocks: BTreeMap<u64, Block>,
    spilled: Spilled,
}

/// What was written to the container while the process ran.
#[derive(Default)]
pub(crate) struct Spilled {
    pub(crate) blocks: Vec<Written>,
    /// Bytes that these hold.
    pub(crate) bytes: u64,
    /// Bytes of CRIU's that were written as they came, in the blocks that follow.
    pub(crate) drained: u64,
}

/// Pages of contiguous addresses.
#[derive(Default)]
struct Block {
    /// Those that have a place in memory.
    memory: Places,
    /// Those that were spilled.
    spilled: Option<Box<Places>>,
    /// A bit for each page that is the same in the base.
    in_base: u16,
}

impl Block {
    /// The pages that are held anywhere.
    fn held(&self) -> u16 {
        self.memory.held | self.in_base | self.spilled.as_ref().map_or(0, |spilled| spilled.held)
    }

    fn forget(&mut self, bits: u16) {
        self.memory.held &= !bits;
        self.in_base &= !bits;
        if let Some(spilled) = &mut self.spilled {
            spilled.held &= !bits;
        }
    }
}

/// Where the pages of a block are.
#[derive(Default)]
struct Places {
    /// A bit for each page that is held.
    held: u16,
    /// By page: its number, counted from 1, in the memory, or among all pages that were spilled.
    pages: [Option<NonZeroU32>; BLOCK_PAGES as usize],
}

/// The byte at which the page with this number begins.
fn byte_of(page: NonZeroU32) -> u64 {
    (u64::from(page.get()) - 1) * PAGE
}

/// Where contiguous pages are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Memory,
    /// In the container, from this byte of what was spilled on.
    Spilled(u64),
    /// In the base of the container, at the same addresses.
    Base,
}

/// Addresses whose places in memory are contiguous.
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
        let bits = pages(&part).fold(0, |bits, (_, index)| bits | 1 << index);
        (number, part, bits)
    })
}

/// The pages of a part of a block: the address of each, and its index in the block.
fn pages(part: &Range<u64>) -> impl Iterator<Item = (u64, usize)> + use<> {
    part.clone().step_by(PAGE as usize).map(|page| (page, (page % BLOCK / PAGE) as usize))
}

impl PageStore {
    pub(super) fn new(room: Arc<Room>) -> Self {
        Self { room, blocks: BTreeMap::new(), spilled: Spilled::default() }
    }

    /// Bytes of a page of this machine.
    pub(super) fn page(&self) -> u64 {
        self.room.page
    }

    /// Makes room in memory for these pages. Returns those for which there is none.
    pub(super) fn reserve(&mut self, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut without = Vec::new();
        for (number, part, _) in ranges.iter().flat_map(parts) {
            let block = self.blocks.entry(number).or_default();
            for (page, index) in pages(&part) {
                let place = &mut block.memory.pages[index];
                *place = place.or_else(|| self.room.take());
                if place.is_none() {
                    push_joined(&mut without, page..page + PAGE);
                }
            }
        }
        without
    }

    /// Returns where these pages belong in memory. Those without room are left out.
    pub(super) fn pieces(&self, ranges: &[Range<u64>]) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for (number, part, _) in ranges.iter().flat_map(parts) {
            let Some(block) = self.blocks.get(&number) else { continue };
            for (page, index) in pages(&part) {
                let Some(at) = block.memory.pages[index].map(|page| byte_of(page) as usize) else { continue };
                match pieces.last_mut() {
                    Some(last)
                        if last.addresses.end == page
                            && last.at + last.len() == at
                            && page - last.addresses.start < PIECE =>
                    {
                        last.addresses.end += PAGE;
                    }
                    _ => pieces.push(Piece { addresses: page..page + PAGE, at }),
                }
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
        // SAFETY: pieces lie within pages that were taken, which lie within the mapping; the caller makes sure that it is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.room.memory.base().add(piece.at), piece.len()) }
    }

    /// Sets whether these pages are held in memory, as far as they have room there. They are held nowhere else then.
    pub(super) fn set_held(&mut self, range: &Range<u64>, is_held: bool) {
        for (number, part, bits) in parts(range) {
            if let Some(block) = self.blocks.get_mut(&number) {
                block.forget(bits);
                if is_held {
                    let placed = pages(&part).filter(|(_, index)| block.memory.pages[*index].is_some());
                    block.memory.held |= placed.fold(0, |bits, (_, index)| bits | 1 << index);
                }
            }
        }
    }

    /// Adds a block of the container, which has these pages.
    pub(super) fn add_spilled(&mut self, written: Written, ranges: &[Range<u64>]) {
        let first = self.spilled.bytes / PAGE;
        let mut numbers = (first..).map(|page| NonZeroU32::new(page as u32 + 1));
        for (number, part, bits) in ranges.iter().flat_map(parts) {
            let block = self.blocks.entry(number).or_default();
            block.forget(bits);
            let spilled = block.spilled.get_or_insert_default();
            for ((_, index), number) in pages(&part).zip(&mut numbers) {
                spilled.pages[index] = number;
            }
            spilled.held |= bits;
        }
        self.spilled.bytes += u64::from(written.bytes);
        self.spilled.blocks.push(written);
    }

    /// Adds pages that are the same in the base.
    pub(super) fn add_in_base(&mut self, range: &Range<u64>) {
        for (number, _, bits) in parts(range) {
            let block = self.blocks.entry(number).or_default();
            block.forget(bits);
            block.in_base |= bits;
        }
    }

    /// Bytes that can still be spilled.
    pub(super) fn spillable(&self) -> u64 {
        (MOST * PAGE).saturating_sub(self.spilled.bytes)
    }

    /// Bytes that were spilled, stale pages included.
    pub(super) fn spilled_bytes(&self) -> u64 {
        self.spilled.bytes
    }

    /// Bytes that are held elsewhere than in memory.
    pub(super) fn bytes_elsewhere(&self) -> u64 {
        let elsewhere = |block: &Block| u64::from((block.held() & !block.memory.held).count_ones()) * PAGE;
        self.blocks.values().map(elsewhere).sum()
    }

    pub(super) fn take_spilled(&mut self) -> Spilled {
        std::mem::take(&mut self.spilled)
    }

    /// All pages that are held, in order.
    pub(super) fn held(&self) -> Vec<Range<u64>> {
        let mut all = Vec::new();
        for (&number, block) in &self.blocks {
            let held = block.held();
            for (page, index) in pages(&(number * BLOCK..(number + 1) * BLOCK)) {
                if held >> index & 1 != 0 {
                    push_joined(&mut all, page..page + PAGE);
                }
            }
        }
        all
    }

    /// Passes the parts of a range of held pages to `push`, with where they are held.
    pub(super) fn places(&self, range: &Range<u64>, push: &mut impl FnMut(Range<u64>, Place)) {
        let mut last: Option<(Range<u64>, Place)> = None;
        let mut pass = |part: Range<u64>, place: Place| match &mut last {
            Some((range, Place::Spilled(at)))
                if place == Place::Spilled(*at + (part.start - range.start)) =>
            {
                range.end = part.end;
            }
            Some((range, same)) if place == *same && !matches!(place, Place::Spilled(_)) => {
                range.end = part.end
            }
            last => {
                if let Some((range, place)) = last.replace((part, place)) {
                    push(range, place);
                }
            }
        };
        for (number, part, bits) in parts(range) {
            match self.blocks.get(&number).filter(|block| block.memory.held & bits != bits) {
                None => pass(part, Place::Memory),
                Some(block) => {
                    for (page, index) in pages(&part) {
                        let spilled = block.spilled.as_ref().filter(|spilled| spilled.held >> index & 1 == 1);
                        let place = match spilled.and_then(|spilled| spilled.pages[index]) {
                            Some(page) => Place::Spilled(byte_of(page)),
                            None if block.in_base >> index & 1 == 1 => Place::Base,
                            None => Place::Memory,
                        };
                        pass(page..page + PAGE, place);
                    }
                }
            }
        }
        if let Some((range, place)) = last {
            push(range, place);
        }
    }

    /// Copies pages that are held in memory, from `address` on, to `buffer`.
    pub(super) fn read(&self, address: u64, buffer: &mut [u8]) {
        let end = address + buffer.len() as u64;
        let whole = address / PAGE * PAGE..end.next_multiple_of(PAGE);
        for piece in self.pieces(std::slice::from_ref(&whole)) {
            let part = piece.addresses.start.max(address)..piece.addresses.end.min(end);
            let from =
                (part.start - piece.addresses.start) as usize..(part.end - piece.addresses.start) as usize;
            let to = (part.start - address) as usize..(part.end - address) as usize;
            // SAFETY: `self` is borrowed, so that nothing writes to the memory.
            let memory = unsafe { self.memory(&piece) };
            if let (Some(to), Some(from)) = (buffer.get_mut(to), memory.get(from)) {
                to.copy_from_slice(from);
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
    use crate::units::PAGE_SIZES;
    use proptest::prelude::*;

    #[test]
    fn what_has_no_room_is_named() {
        let mut store = PageStore::new(Room::new(1, PAGE).unwrap());
        let (fits, more) = (0..2 << 20, 4 << 20..5 << 20);
        assert_eq!(store.reserve(std::slice::from_ref(&fits)), []);
        assert_eq!(store.pieces(std::slice::from_ref(&fits)).len(), 2);
        assert_eq!(store.reserve(&[fits, more.clone()]), *std::slice::from_ref(&more));
        assert_eq!(store.pieces(std::slice::from_ref(&more)), []);
        assert_eq!((store.room.taken(), store.room.left()), (2 << 20, 0));
    }

    #[test]
    fn no_page_has_room_for_a_part_of_it() {
        for page in PAGE_SIZES {
            let room = Room::new(1, page).unwrap();
            room.limit(3 * page + page - 1);
            let mut store = PageStore::new(room);
            assert_eq!(store.reserve(&[page..3 * page, 5 * page..8 * page]), [6 * page..8 * page]);
            assert_eq!((store.room.taken(), store.room.left()), (3 * page, 0));
        }
    }

    proptest! {
        /// Each page is written by a number: to memory or to the container, or is in the base or not held at all.
        #[test]
        fn pages_come_back_as_they_were(
            writes in proptest::collection::vec((0u64..200, 1u64..40, any::<u8>()), 1..40),
        ) {
            let mut store = PageStore::new(Room::new(2 << 20, PAGE).unwrap());
            let (mut spilled, mut expected) = (Vec::new(), BTreeMap::new());
            for (first, count, value) in writes {
                let range = first * PAGE..(first + count) * PAGE;
                if value % 4 == 1 {
                    spilled.extend(std::iter::repeat_n(value, count as usize));
                    let bytes = (count * PAGE) as u32;
                    let written = Written { offset: 0, stored: 0, bytes, checksum: 0 };
                    store.add_spilled(written, std::slice::from_ref(&range));
                } else if value % 4 == 2 {
                    store.reserve(std::slice::from_ref(&range));
                    for piece in store.pieces(std::slice::from_ref(&range)) {
                        // SAFETY: the only reference.
                        unsafe { store.memory(&piece) }.fill(value);
                    }
                    store.set_held(&range, true);
                } else if value % 4 == 3 {
                    store.add_in_base(&range);
                } else {
                    store.set_held(&range, false);
                }
                for page in first..first + count {
                    let value = if value % 4 == 3 { 3 } else { value };
                    if value % 4 == 0 { expected.remove(&page); } else { expected.insert(page, value); }
                }
            }
            let mut all: Vec<Range<u64>> = Vec::new();
            expected.keys().for_each(|page| push_joined(&mut all, page * PAGE..(page + 1) * PAGE));
            prop_assert_eq!(&store.held(), &all);
            let (mut found, mut elsewhere) = (BTreeMap::new(), 0);
            let mut take = |range: Range<u64>, place| {
                let mut content = vec![0; (range.end - range.start) as usize];
                match place {
                    Place::Memory => store.read(range.start, &mut content),
                    Place::Base => {
                        elsewhere += range.end - range.start;
                        content.fill(3);
                    }
                    Place::Spilled(at) => {
                        elsewhere += range.end - range.start;
                        let first = (at / PAGE) as usize;
                        for (page, value) in content.chunks_mut(PAGE as usize).zip(&spilled[first..]) {
                            page.fill(*value);
                        }
                    }
                }
                for (page, content) in (range.start / PAGE..).zip(content.chunks(PAGE as usize)) {
                    assert!(content.iter().all(|byte| *byte == content[0]));
                    found.insert(page, content[0]);
                }
            };
            all.iter().for_each(|range| store.places(range, &mut take));
            prop_assert_eq!(&found, &expected);
            prop_assert_eq!(store.bytes_elsewhere(), elsewhere);
            prop_assert_eq!(store.take_spilled().bytes, spilled.len() as u64 * PAGE);
        }
    }
}
