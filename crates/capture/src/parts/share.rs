//! Who takes which unit. Each part is one stretch of units; between neighbours there is a gap, from whose ends both take,
//! and they meet where they meet: whose disk is faster has more.

use std::collections::VecDeque;
use std::ops::Range;

use super::units::Units;

/// The units of a machine, shared out among parts.
pub(super) struct Share {
    units: Units,
    stretches: Vec<Stretch>,
}

/// What one part has.
struct Stretch {
    /// Its first unit, from which it grows; it belongs to it from the beginning.
    seed: usize,
    /// Whether the first unit was taken.
    begun: bool,
    range: Range<usize>,
    /// Whether it takes more.
    open: bool,
    /// Units taken, but not known to be in the file yet, in the order of taking.
    taken: VecDeque<usize>,
}

impl Share {
    /// Gives each of `parts` parts its first unit: the first part the lowest, the last the highest, the others where the
    /// pages between are equally many. There are at least as many units as parts.
    pub(super) fn new(units: Units, parts: usize) -> Self {
        let (all, gaps) = (units.before(units.len()), parts.saturating_sub(1).max(1));
        let mut stretches: Vec<Stretch> = Vec::with_capacity(parts);
        for part in 0..parts {
            let lowest = stretches.last().map_or(0, |below| below.seed + 1);
            let highest = units.len().saturating_sub(parts - part).max(lowest);
            let pages = u128::from(all) * part as u128 / gaps as u128;
            let seed = match part {
                0 => 0,
                _ if part + 1 == parts => highest,
                _ => units.holding(pages as u64).clamp(lowest, highest),
            };
            let range = seed..seed + 1;
            stretches.push(Stretch { seed, begun: false, range, open: true, taken: VecDeque::new() });
        }
        Self { units, stretches }
    }

    pub(super) fn units(&self) -> &Units {
        &self.units
    }

    /// How many parts there are.
    pub(super) fn parts(&self) -> usize {
        self.stretches.len()
    }

    /// The units of a part.
    pub(super) fn range(&self, part: usize) -> Range<usize> {
        self.stretches[part].range.clone()
    }

    /// Whether a part may still take units.
    pub(super) fn is_open(&self, part: usize) -> bool {
        self.stretches[part].open
    }

    /// Whether a part took units that are not known to be in its file.
    pub(super) fn is_unsettled(&self, part: usize) -> bool {
        !self.stretches[part].taken.is_empty()
    }

    /// The gaps below and above a part. Parts that have nothing and take nothing are no neighbours.
    fn gaps(&self, part: usize) -> (Range<usize>, Range<usize>) {
        let there = |stretch: &&Stretch| stretch.open || !stretch.range.is_empty();
        let range = &self.stretches[part].range;
        let below = self.stretches[..part].iter().rev().find(there).map_or(0, |below| below.range.end);
        let end = self.units.len();
        let above = self.stretches[part + 1..].iter().find(there).map_or(end, |above| above.range.start);
        (below..range.start, range.end..above)
    }

    /// Whether there is a page that a part could take.
    pub(super) fn has_work(&self, part: usize) -> bool {
        let stretch = &self.stretches[part];
        let (below, above) = self.gaps(part);
        let first = if stretch.begun { 0 } else { self.units.kept(stretch.range.clone()) };
        stretch.open && first + self.units.kept(below) + self.units.kept(above) > 0
    }

    /// Has a part take a unit with pages: its first, then the next of the larger gap.
    pub(super) fn take(&mut self, part: usize) -> Option<usize> {
        if !self.has_work(part) {
            return None;
        }
        let (below, above) = self.gaps(part);
        let units = &self.units;
        let stretch = &mut self.stretches[part];
        let unit = if !std::mem::replace(&mut stretch.begun, true) && units.kept(stretch.range.clone()) > 0 {
            stretch.seed
        } else if units.kept(below.clone()) > units.kept(above.clone()) {
            // Units without pages on the way cost nothing.
            let unit = below.rev().find(|&unit| units.kept(unit..unit + 1) > 0)?;
            stretch.range.start = unit;
            unit
        } else {
            let unit = above.into_iter().find(|&unit| units.kept(unit..unit + 1) > 0)?;
            stretch.range.end = unit + 1;
            unit
        };
        stretch.taken.push_back(unit);
        Some(unit)
    }

    /// A part's unit taken first is in its file.
    pub(super) fn settle(&mut self, part: usize) {
        self.stretches[part].taken.pop_front();
    }

    /// A part takes no more, and gives back what is not in its file, but for `keep` units taken first.
    pub(super) fn close(&mut self, part: usize, keep: usize) {
        let stretch = &mut self.stretches[part];
        stretch.open = false;
        while stretch.taken.len() > keep {
            match stretch.taken.pop_back() {
                Some(unit) if unit == stretch.seed => stretch.range = unit..unit,
                Some(unit) if unit > stretch.seed => stretch.range.end = unit,
                Some(unit) => stretch.range.start = unit + 1,
                None => break,
            }
        }
        if !stretch.begun {
            stretch.range.end = stretch.range.start;
        }
    }

    /// A part that takes no more has lost everything: its neighbours may have it.
    pub(super) fn give_up(&mut self, part: usize) {
        let stretch = &mut self.stretches[part];
        stretch.open = false;
        stretch.taken.clear();
        stretch.range.end = stretch.range.start;
    }

    /// Once all is taken, gives the units without pages that are left to whoever is beside them, and says which units with
    /// pages nobody took.
    pub(super) fn close_gaps(&mut self) -> Vec<Range<usize>> {
        let mut left = Vec::new();
        let mut below: Option<usize> = None;
        let mut end = 0;
        for part in (0..self.stretches.len())
            .filter(|&part| !self.stretches[part].range.is_empty())
            .collect::<Vec<_>>()
        {
            let gap = end..self.stretches[part].range.start;
            if self.units.kept(gap.clone()) > 0 {
                left.push(gap);
            } else if let Some(below) = below {
                self.stretches[below].range.end = gap.end;
            } else {
                self.stretches[part].range.start = gap.start;
            }
            end = self.stretches[part].range.end;
            below = Some(part);
        }
        let gap = end..self.units.len();
        match below {
            Some(below) if self.units.kept(gap.clone()) == 0 => self.stretches[below].range.end = gap.end,
            _ if !gap.is_empty() => left.push(gap),
            _ => {}
        }
        left
    }
}
