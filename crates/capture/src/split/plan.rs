//! Which part takes which unit. Each part is one range of units. Neighbours take units from both ends of the gap between
//! them until they meet, so a faster disk gets more.

use std::collections::VecDeque;
use std::ops::Range;

use super::units::Units;

/// The distribution of a machine's units among parts.
pub(super) struct SplitPlan {
    units: Units,
    plans: Vec<PartPlan>,
}

/// The units of one part.
struct PartPlan {
    /// The unit from which it grows, which is its own from the beginning.
    seed: usize,
    /// Whether the first unit was taken.
    begun: bool,
    range: Range<usize>,
    /// Whether it takes more.
    open: bool,
    /// Units taken but not recorded as being in the file, oldest first.
    taken: VecDeque<usize>,
}

impl SplitPlan {
    /// Gives each of `parts` parts its seed: the first part the lowest unit, the last the highest, the others at equal
    /// distances in pages. There must be at least as many units as parts.
    pub(super) fn new(units: Units, parts: usize) -> Self {
        let (all, gaps) = (units.before(units.len()), parts.saturating_sub(1).max(1));
        let mut plans: Vec<PartPlan> = Vec::with_capacity(parts);
        for part in 0..parts {
            let lowest = plans.last().map_or(0, |below| below.seed + 1);
            let highest = units.len().saturating_sub(parts - part).max(lowest);
            let pages = u128::from(all) * part as u128 / gaps as u128;
            let seed = match part {
                0 => 0,
                _ if part + 1 == parts => highest,
                _ => units.holding(pages as u64).clamp(lowest, highest),
            };
            let range = seed..seed + 1;
            plans.push(PartPlan { seed, begun: false, range, open: true, taken: VecDeque::new() });
        }
        Self { units, plans }
    }

    pub(super) fn units(&self) -> &Units {
        &self.units
    }

    /// The number of parts.
    pub(super) fn parts(&self) -> usize {
        self.plans.len()
    }

    /// The range of units of a part.
    pub(super) fn range(&self, part: usize) -> Range<usize> {
        self.plans[part].range.clone()
    }

    /// Returns whether a part may still take units.
    pub(super) fn is_open(&self, part: usize) -> bool {
        self.plans[part].open
    }

    /// Returns whether a part took units that are not recorded as being in its file.
    pub(super) fn has_unrecorded(&self, part: usize) -> bool {
        !self.plans[part].taken.is_empty()
    }

    /// Returns the gaps below and above a part. Closed parts without units are not neighbours.
    fn gaps(&self, part: usize) -> (Range<usize>, Range<usize>) {
        let there = |own: &&PartPlan| own.open || !own.range.is_empty();
        let range = &self.plans[part].range;
        let below = self.plans[..part].iter().rev().find(there).map_or(0, |below| below.range.end);
        let end = self.units.len();
        let above = self.plans[part + 1..].iter().find(there).map_or(end, |above| above.range.start);
        (below..range.start, range.end..above)
    }

    /// Returns whether there is a page that a part could take.
    pub(super) fn has_work(&self, part: usize) -> bool {
        let own = &self.plans[part];
        let (below, above) = self.gaps(part);
        let first = if own.begun { 0 } else { self.units.kept(own.range.clone()) };
        own.open && first + self.units.kept(below) + self.units.kept(above) > 0
    }

    /// Takes the next unit with pages for a part: its seed, then from the larger gap.
    pub(super) fn take(&mut self, part: usize) -> Option<usize> {
        if !self.has_work(part) {
            return None;
        }
        let (below, above) = self.gaps(part);
        let units = &self.units;
        let own = &mut self.plans[part];
        let unit = if !std::mem::replace(&mut own.begun, true) && units.kept(own.range.clone()) > 0 {
            own.seed
        } else if units.kept(below.clone()) > units.kept(above.clone()) {
            // Skipped units have no pages.
            let unit = below.rev().find(|&unit| units.kept(unit..unit + 1) > 0)?;
            own.range.start = unit;
            unit
        } else {
            let unit = above.into_iter().find(|&unit| units.kept(unit..unit + 1) > 0)?;
            own.range.end = unit + 1;
            unit
        };
        own.taken.push_back(unit);
        Some(unit)
    }

    /// Records that a part's oldest unit is in its file.
    pub(super) fn record(&mut self, part: usize) {
        self.plans[part].taken.pop_front();
    }

    /// Closes a part: it takes no more units, and gives back those not in its file, except the `keep` oldest.
    pub(super) fn close(&mut self, part: usize, keep: usize) {
        let own = &mut self.plans[part];
        own.open = false;
        while own.taken.len() > keep {
            match own.taken.pop_back() {
                Some(unit) if unit == own.seed => own.range = unit..unit,
                Some(unit) if unit > own.seed => own.range.end = unit,
                Some(unit) => own.range.start = unit + 1,
                None => break,
            }
        }
        if !own.begun {
            own.range.end = own.range.start;
        }
    }

    /// Gives all units of a closed part, which lost them, to its neighbours.
    pub(super) fn give_up(&mut self, part: usize) {
        let own = &mut self.plans[part];
        own.open = false;
        own.taken.clear();
        own.range.end = own.range.start;
    }

    /// Gives the units without pages that are left to an adjacent part. Returns the units with pages that no part took.
    pub(super) fn close_gaps(&mut self) -> Vec<Range<usize>> {
        let mut left = Vec::new();
        let mut below: Option<usize> = None;
        let mut end = 0;
        for part in
            (0..self.plans.len()).filter(|&part| !self.plans[part].range.is_empty()).collect::<Vec<_>>()
        {
            let gap = end..self.plans[part].range.start;
            if self.units.kept(gap.clone()) > 0 {
                left.push(gap);
            } else if let Some(below) = below {
                self.plans[below].range.end = gap.end;
            } else {
                self.plans[part].range.start = gap.start;
            }
            end = self.plans[part].range.end;
            below = Some(part);
        }
        let gap = end..self.units.len();
        match below {
            Some(below) if self.units.kept(gap.clone()) == 0 => self.plans[below].range.end = gap.end,
            _ if !gap.is_empty() => left.push(gap),
            _ => {}
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the share of time between the end of the first part and of the last, when disk *n* needs `seconds[n]` per
    /// unit, and the units that each took.
    fn race(seconds: &[u64], count: usize) -> (f64, Vec<usize>) {
        let mut plan = SplitPlan::new(Units::of(&vec![1024; count]), seconds.len());
        let mut free = vec![0; seconds.len()];
        let mut ends = vec![None; seconds.len()];
        while let Some(part) =
            (0..free.len()).filter(|&part| ends[part].is_none()).min_by_key(|&part| free[part])
        {
            match plan.take(part) {
                Some(_) => free[part] += seconds[part],
                None => ends[part] = Some(free[part]),
            }
        }
        let last = ends.iter().flatten().max().copied().unwrap_or(0);
        let first = ends.iter().flatten().min().copied().unwrap_or(0);
        let taken = (0..seconds.len()).map(|part| plan.range(part).len()).collect();
        ((last - first) as f64 / last as f64, taken)
    }

    #[test]
    fn disks_end_together_whatever_they_take() {
        for seconds in [vec![1, 1], vec![1, 10], vec![7, 2], vec![5, 5, 5], vec![2, 1, 2], vec![3, 4, 2, 5]] {
            let (idle, taken) = race(&seconds, 1000);
            assert!(idle < 0.03, "{seconds:?}: {idle}, {taken:?}");
            assert_eq!(taken.iter().sum::<usize>(), 1000, "{seconds:?}");
        }
        let (_, taken) = race(&[1, 9], 1000);
        assert!((895..=905).contains(&taken[0]), "{taken:?}");
    }

    /// The limit of three parts or more: a disk at an end has only the work between it and its neighbour.
    #[test]
    fn an_end_disk_faster_than_all_others_together_is_done_early() {
        let (idle, taken) = race(&[1, 10, 10], 1000);
        assert!(idle > 0.5 && taken[0] <= 500, "{idle}, {taken:?}");
        let (idle, taken) = race(&[10, 1, 10], 1000);
        assert!(idle < 0.03 && taken[1] > 800, "{idle}, {taken:?}");
    }

    #[derive(Debug, Clone)]
    enum Event {
        Take(usize),
        Record(usize),
        Close(usize),
        GiveUp(usize),
    }

    fn event() -> impl Strategy<Value = Event> {
        (0..4usize, 0..12).prop_map(|(part, kind)| match kind {
            0 => Event::Close(part),
            1 => Event::GiveUp(part),
            2..6 => Event::Record(part),
            _ => Event::Take(part),
        })
    }

    proptest! {
        /// Whatever happens, no unit is in two parts, recorded units stay, and a part that goes on gets everything that no
        /// other part has, unless other parts are in between.
        #[test]
        fn every_unit_has_one_owner(
            pages in prop::collection::vec(prop::sample::select(vec![0, 64, 1024]), 4..40),
            parts in 1..5usize,
            events in prop::collection::vec(event(), 0..120),
        ) {
            let parts = parts.min(pages.len());
            let mut plan = SplitPlan::new(Units::of(&pages), parts);
            let mut recorded = vec![Vec::new(); parts];
            for event in events {
                match event {
                    Event::Take(part) if part < parts => drop(plan.take(part)),
                    Event::Record(part) if part < parts => {
                        recorded[part].extend(plan.plans[part].taken.front());
                        plan.record(part);
                    }
                    Event::Close(part) if part < parts => plan.close(part, 0),
                    Event::GiveUp(part) if part < parts => {
                        plan.give_up(part);
                        recorded[part].clear();
                    }
                    _ => {}
                }
                let ranges: Vec<_> = (0..parts).map(|part| plan.range(part)).filter(|range| !range.is_empty()).collect();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].start), "{ranges:?}");
                for (part, recorded) in recorded.iter().enumerate() {
                    prop_assert!(recorded.iter().all(|unit| plan.range(part).contains(unit)));
                }
            }
            let open: Vec<usize> = (0..parts).filter(|&part| plan.is_open(part)).collect();
            for &part in &open {
                while plan.take(part).is_some() {}
                prop_assert!(!plan.has_work(part));
            }
            let owned: Vec<_> = (0..parts).map(|part| plan.range(part)).collect();
            let left = plan.close_gaps();
            if open.len() == parts {
                prop_assert!(left.is_empty(), "{left:?} of {owned:?}");
            }
            let kept: u64 = (0..parts).map(|part| plan.units().kept(plan.range(part))).sum();
            let lost: u64 = left.iter().map(|gap| plan.units().kept(gap.clone())).sum();
            prop_assert_eq!(kept + lost, plan.units().before(pages.len()));
        }
    }
}
