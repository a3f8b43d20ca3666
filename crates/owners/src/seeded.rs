//! Hash tables for what is counted once for each page.

use std::collections::HashMap;
use std::hash::BuildHasher;

/// A table whose keys are of a dump, which may have been made to slow it down: hashes depend on random seeds.
pub(crate) type SeededMap<K, V> = HashMap<K, V, Seeded>;

/// ahash with random seeds.
#[derive(Debug, Clone)]
pub(crate) struct Seeded(ahash::RandomState);

impl Default for Seeded {
    fn default() -> Self {
        // ahash's own seeds would wait for the random numbers of a kernel that has just booted.
        let random = std::hash::RandomState::new();
        let [a, b, c, d] = [0, 1, 2, 3].map(|number: u64| random.hash_one(number));
        Self(ahash::RandomState::with_seeds(a, b, c, d))
    }
}

impl BuildHasher for Seeded {
    type Hasher = ahash::AHasher;

    #[inline]
    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}
