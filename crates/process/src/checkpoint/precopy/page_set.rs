//! A set of pages, by their addresses.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::units::PAGE;

/// Pages of a block.
const PAGES: u64 = 64;

/// A set of pages.
#[derive(Default)]
pub(super) struct PageSet(BTreeMap<u64, u64>);

/// Blocks of a range, each with the bits of its pages.
fn parts(range: &Range<u64>) -> impl Iterator<Item = (u64, u64)> + use<> {
    let (first, end) = (range.start / PAGE, range.end.div_ceil(PAGE));
    (first / PAGES..end.div_ceil(PAGES)).map(move |block| {
        let (from, to) = (first.max(block * PAGES) % PAGES, (end - 1).min(block * PAGES + PAGES - 1) % PAGES);
        (block, (u64::MAX >> (PAGES - 1 - to)) & (u64::MAX << from))
    })
}

impl PageSet {
    pub(super) fn insert(&mut self, range: &Range<u64>) {
        for (block, bits) in parts(range) {
            *self.0.entry(block).or_default() |= bits;
        }
    }

    /// Passes the parts of a range that are not in the set to `push`.
    pub(super) fn missing(&self, range: &Range<u64>, push: &mut impl FnMut(Range<u64>)) {
        let (first, end) = (range.start / PAGE, range.end.div_ceil(PAGE));
        let mut at = first;
        let mut pass = |pages: Range<u64>| {
            if pages.start < pages.end {
                push(pages.start * PAGE..pages.end * PAGE);
            }
        };
        for (&block, &bits) in self.0.range(first / PAGES..end.div_ceil(PAGES)) {
            for page in (0..PAGES).filter(|page| bits >> page & 1 == 1).map(|page| block * PAGES + page) {
                if (first..end).contains(&page) {
                    pass(at..page);
                    at = page + 1;
                }
            }
        }
        pass(at..end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn what_is_missing_was_not_inserted(
            ranges in proptest::collection::vec((0u64..300, 1u64..100), 0..20),
            first in 0u64..300,
            count in 1u64..200,
        ) {
            let (mut set, mut expected) = (PageSet::default(), BTreeSet::new());
            for (first, count) in ranges {
                set.insert(&(first * PAGE..(first + count) * PAGE));
                expected.extend(first..first + count);
            }
            let mut missing = Vec::new();
            set.missing(&(first * PAGE..(first + count) * PAGE), &mut |range| {
                missing.extend(range.start / PAGE..range.end / PAGE);
            });
            let wanted = (first..first + count).filter(|page| !expected.contains(page));
            prop_assert_eq!(missing, wanted.collect::<Vec<_>>());
        }
    }
}
