//! The units of PFNs that parts consist of.

use std::ops::Range;

/// Units per machine, unless [`SMALLEST`] or [`LARGEST`] applies: small compared to what a disk takes.
const WANTED: u64 = 4096;
/// Pages of a unit: 4 MiB of memory …
const SMALLEST: u64 = 1 << 10;
/// … to 128 MiB, so that the counts of 64 TiB of memory take 4 MiB.
const LARGEST: u64 = 1 << 15;

/// A machine's PFNs in units of equal size, and the number of kept pages in each.
pub(super) struct Units {
    pages: u64,
    max_pfn: u64,
    /// Kept pages before each unit, and in all; until [`sum_up`](Self::sum_up), those of the previous unit.
    before: Vec<u64>,
}

impl Units {
    /// Covers the PFNs below `max_pfn`, with no page kept.
    pub(super) fn new(max_pfn: u64) -> Self {
        let pages = (max_pfn / WANTED).next_power_of_two().clamp(SMALLEST, LARGEST);
        let count = max_pfn.div_ceil(pages) as usize;
        Self { pages, max_pfn, before: vec![0; count + 1] }
    }

    /// Adds the pages set in `kept`, whose bit 0 is PFN `first`, a multiple of 64.
    pub(super) fn count(&mut self, first: u64, kept: &[u64]) {
        for (word, pfn) in kept.iter().zip((first..).step_by(64)) {
            if let Some(count) = self.before.get_mut((pfn / self.pages) as usize + 1) {
                *count += u64::from(word.count_ones());
            }
        }
    }

    /// Ends counting.
    pub(super) fn sum_up(&mut self) {
        let mut sum = 0;
        for count in &mut self.before {
            sum += *count;
            *count = sum;
        }
    }

    /// The number of units.
    pub(super) fn len(&self) -> usize {
        self.before.len() - 1
    }

    /// Pages of a unit, a multiple of 64.
    pub(super) fn pages(&self) -> u64 {
        self.pages
    }

    /// Returns the kept pages before `unit`, which may be one past the last.
    pub(super) fn before(&self, unit: usize) -> u64 {
        let last = self.before.len() - 1;
        self.before[unit.min(last)]
    }

    /// Returns the unit of the kept page that has `pages` before it.
    pub(super) fn holding(&self, pages: u64) -> usize {
        self.before.partition_point(|&before| before <= pages).saturating_sub(1)
    }

    /// Returns the kept pages in `units`.
    pub(super) fn kept(&self, units: Range<usize>) -> u64 {
        self.before(units.end) - self.before(units.start).min(self.before(units.end))
    }

    /// Divides the units into as many ranges as there are `parts`, of as equal numbers of kept pages as units allow. There must be at
    /// least as many units as parts.
    pub(super) fn shares(&self, parts: usize) -> Vec<Range<usize>> {
        let all = u128::from(self.before(self.len()));
        let mut starts = vec![0];
        for part in 1..parts {
            let lowest = starts[part - 1] + 1;
            let highest = (self.len() + part).saturating_sub(parts).max(lowest);
            let pages = all * part as u128 / parts as u128;
            starts.push(self.holding(pages as u64).clamp(lowest, highest));
        }
        let ends = starts.iter().copied().skip(1).chain([self.len()]);
        starts.iter().zip(ends).map(|(&start, end)| start..end).collect()
    }

    /// Returns the PFNs of `units`.
    pub(super) fn pfns(&self, units: &Range<usize>) -> Range<u64> {
        let pfn = |unit: usize| (unit as u64 * self.pages).min(self.max_pfn);
        pfn(units.start)..pfn(units.end)
    }
}

#[cfg(test)]
impl Units {
    /// Units of `pages` kept pages each.
    pub(super) fn of(pages: &[u64]) -> Self {
        let mut units = Self::new(pages.len() as u64 * 1024);
        for (unit, &pages) in pages.iter().enumerate() {
            let bits: Vec<u64> = (0..16).map(|word| u64::from(word * 64 < pages) * u64::MAX).collect();
            units.count(unit as u64 * 1024, &bits);
        }
        units.sum_up();
        units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_where_they_are() {
        let mut units = Units::new(3 * 1024 + 100);
        assert_eq!((units.len(), units.pages()), (4, 1024));
        units.count(0, &[u64::MAX; 16]);
        units.count(1024, &[0; 32]);
        units.count(3 * 1024, &[1, 3]);
        units.sum_up();
        assert_eq!([0, 1, 2, 3, 4].map(|unit| units.before(unit)), [0, 1024, 1024, 1024, 1027]);
        assert_eq!([0, 1023, 1024, 1026].map(|pages| units.holding(pages)), [0, 0, 3, 3]);
        assert_eq!(units.kept(1..3), 0);
        assert_eq!(units.pfns(&(2..4)), 2048..3172);
    }

    #[test]
    fn shares_have_as_many_pages_as_units_allow() {
        assert_eq!(Units::of(&[64; 8]).shares(4), [0..2, 2..4, 4..6, 6..8]);
        assert_eq!(Units::of(&[64, 64, 64, 64, 1024, 64, 64, 64]).shares(2), [0..4, 4..8]);
        // Each has a unit, even where no page is.
        for pages in [[0; 4], [1024, 0, 0, 0], [0, 0, 0, 1024]] {
            assert_eq!(Units::of(&pages).shares(4), [0..1, 1..2, 2..3, 3..4], "{pages:?}");
        }
        assert_eq!(Units::of(&[0; 5]).shares(1), [0..5]);
    }

    #[test]
    fn the_largest_machine_has_few_enough_units() {
        let units = Units::new(1 << 34);
        assert_eq!(units.len(), 1 << 19);
        assert_eq!(Units::new(4 << 20).pages(), 1024);
    }
}
