/// A least-recently-used cache of few values, searched linearly.
pub(super) struct Slots<K, T> {
    slots: Vec<Slot<K, T>>,
    clock: u64,
    most: usize,
}

struct Slot<K, T> {
    key: Option<K>,
    used: u64,
    value: T,
}

impl<K: Copy + PartialEq, T> Slots<K, T> {
    pub(super) fn new(most: usize) -> Self {
        Self { slots: Vec::new(), clock: 0, most }
    }

    /// Returns the slot of `key`, if it is cached.
    pub(super) fn find(&mut self, key: K) -> Option<usize> {
        let at = self.slots.iter().position(|slot| slot.key == Some(key))?;
        self.touch(at);
        Some(at)
    }

    /// Returns the slot of a value to overwrite, created by `make` while there is room. It has no key until
    /// [`keep`](Self::keep), so that a partly written value is never found.
    pub(super) fn spare(&mut self, make: impl FnOnce() -> T) -> usize {
        if self.slots.len() < self.most {
            self.slots.push(Slot { key: None, used: 0, value: make() });
            return self.slots.len() - 1;
        }
        let oldest = (0..self.slots.len()).min_by_key(|&at| self.slots[at].used).unwrap_or(0);
        self.slots[oldest].key = None;
        oldest
    }

    /// Sets the key of slot `at`.
    pub(super) fn keep(&mut self, at: usize, key: K) {
        self.slots[at].key = Some(key);
        self.touch(at);
    }

    pub(super) fn get(&self, at: usize) -> &T {
        &self.slots[at].value
    }

    pub(super) fn get_mut(&mut self, at: usize) -> &mut T {
        &mut self.slots[at].value
    }

    fn touch(&mut self, at: usize) {
        self.clock += 1;
        self.slots[at].used = self.clock;
    }
}

/// A direct-mapped cache by number: each value has one possible slot, and evicts the value there.
pub(super) struct Direct<T> {
    slots: Vec<(Option<u64>, T)>,
}

impl<T: Fill> Direct<T> {
    /// Allocates `count` slots, a power of two.
    pub(super) fn new(count: usize) -> Self {
        Self { slots: (0..count).map(|_| (None, T::empty())).collect() }
    }

    /// Returns the value with this number, from `load` if it is not cached.
    pub(super) fn get_or_load<E>(
        &mut self,
        number: u64,
        load: impl FnOnce(&mut T) -> Result<(), E>,
    ) -> Result<&T, E> {
        let at = (number % self.slots.len() as u64) as usize;
        let (key, value) = &mut self.slots[at];
        if *key != Some(number) {
            *key = None;
            load(value)?;
            *key = Some(number);
        }
        Ok(value)
    }
}

/// Values that start empty and are filled later.
pub(super) trait Fill {
    /// Returns an empty value.
    fn empty() -> Self;
}

impl<const N: usize> Fill for [u64; N] {
    fn empty() -> Self {
        [0; N]
    }
}

impl<T> Fill for Vec<T> {
    fn empty() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_failed_to_load_is_not_there() {
        let mut direct = Direct::<Vec<u8>>::new(4);
        let load = |value: &mut Vec<u8>| {
            value.push(7);
            Ok::<(), ()>(())
        };
        assert_eq!(direct.get_or_load(1, load), Ok(&vec![7]));
        assert_eq!(direct.get_or_load(1, |_| Err(())), Ok(&vec![7]), "it is here already");
        assert_eq!(direct.get_or_load(5, |_| Err(())), Err(()), "it leads to the same place");
        assert_eq!(direct.get_or_load(1, load), Ok(&vec![7, 7]), "it was driven out");
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let mut slots = Slots::new(2);
        for key in [1, 2] {
            let at = slots.spare(|| 0);
            *slots.get_mut(at) = key * 10;
            slots.keep(at, key);
        }
        assert_eq!(slots.find(1).map(|at| *slots.get(at)), Some(10));
        let at = slots.spare(|| 0);
        assert_eq!(slots.find(2), None, "its slot is being overwritten");
        slots.keep(at, 3);
        assert!(slots.find(1).is_some() && slots.find(3).is_some());
    }
}
