//! A cache of pages.

use pagehaul_physmem::PAGE_SIZE;

/// Slots in which a page can be.
const WAYS: usize = 4;
/// No page has this number.
const EMPTY: u64 = u64::MAX;

/// Pages by number. A page has [`WAYS`] possible slots; a new page takes an empty one, else each in turn.
pub(crate) struct PageCache {
    numbers: Vec<u64>,
    pages: Vec<u8>,
    turn: usize,
}

impl PageCache {
    /// Returns a cache of about `bytes`, whose memory is allocated when it is used.
    pub(crate) fn new(bytes: usize) -> Self {
        let slots = (bytes / PAGE_SIZE / WAYS).max(1).next_power_of_two() * WAYS;
        Self { numbers: vec![EMPTY; slots], pages: vec![0; slots * PAGE_SIZE], turn: 0 }
    }

    /// Returns the first slot in which a page can be.
    fn first(&self, number: u64) -> usize {
        // A power of two.
        let sets = self.numbers.len() / WAYS;
        ((number ^ number >> 10 ^ number >> 20) as usize & (sets - 1)) * WAYS
    }

    fn ways(&self, first: usize) -> &[u64] {
        self.numbers.get(first..first + WAYS).unwrap_or_default()
    }

    /// Returns the page, if it is cached.
    #[inline]
    pub(crate) fn get(&self, number: u64) -> Option<&[u8]> {
        let first = self.first(number);
        let slot = first + self.ways(first).iter().position(|found| *found == number)?;
        self.pages.get(slot * PAGE_SIZE..(slot + 1) * PAGE_SIZE)
    }

    /// Calls `load` to fill a slot with the page, which stays cached unless that fails.
    pub(crate) fn fill<E>(
        &mut self,
        number: u64,
        load: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let first = self.first(number);
        let way = self.ways(first).iter().position(|found| *found == EMPTY).unwrap_or_else(|| {
            self.turn = (self.turn + 1) % WAYS;
            self.turn
        });
        let slot = first + way;
        let page = self.pages.get_mut(slot * PAGE_SIZE..(slot + 1) * PAGE_SIZE).unwrap_or_default();
        if let Some(held) = self.numbers.get_mut(slot) {
            *held = EMPTY;
            load(page)?;
            *held = number;
        }
        Ok(())
    }
}
