//! Reading a split set: each page from the part that has it.

use std::ops::Range;

use pagehaul_machine::PhysAddr;
use pagehaul_physmem::{PAGE_SHIFT, PAGE_SIZE, PageBuf, PhysMemory, ReadError, View, bits};

use super::SplitSet;
use super::view::at_address;

/// A view of each part, created when it is first needed.
pub(super) struct SetView<'a> {
    set: &'a SplitSet,
    views: Vec<Option<Box<dyn View + 'a>>>,
    /// The part read last.
    last: usize,
}

impl View for SetView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        let pfn = paddr >> PAGE_SHIFT;
        let at = match self.set.disjoint {
            true => self.only(pfn).map_err(|error| at_address(error, paddr))?,
            // Read twice, because a borrowed window cannot outlive the search; the second read finds it cached.
            false => self.any(pfn, |view| view.window(paddr, len).map(drop))?,
        };
        self.part(at).window(paddr, len)
    }

    fn copy_page(&mut self, from: PhysAddr, page: &mut PageBuf) -> Result<(), ReadError> {
        let pfn = from.get() >> PAGE_SHIFT;
        if self.set.disjoint {
            let at = self.only(pfn)?;
            return self.part(at).copy_page(from, page);
        }
        self.any(pfn, |view| view.copy_page(from, page)).map(drop)
    }

    fn is_remote(&self) -> bool {
        self.set.parts().iter().any(|part| part.file().is_remote())
    }

    fn will_need(&mut self, ranges: &[Range<u64>]) {
        for at in 0..self.views.len() {
            let part = self.set.parts()[at].part();
            let of_part = |range: &Range<u64>| {
                let own = range.start.max(part.start << PAGE_SHIFT)..range.end.min(part.end << PAGE_SHIFT);
                (!own.is_empty()).then_some(own)
            };
            let own: Vec<_> = ranges.iter().filter_map(of_part).collect();
            if !own.is_empty() && self.set.parts()[at].file().is_remote() {
                self.part(at).will_need(&own);
            }
        }
    }

    fn end_of_hole(&self, paddr: u64) -> u64 {
        (paddr | (PAGE_SIZE as u64 - 1)).saturating_add(1)
    }
}

impl<'a> SetView<'a> {
    pub(super) fn new(set: &'a SplitSet) -> Self {
        Self { set, views: set.parts().iter().map(|_| None).collect(), last: 0 }
    }

    fn part(&mut self, at: usize) -> &mut (dyn View + 'a) {
        let part = &self.set.parts()[at];
        self.views[at].get_or_insert_with(|| part.view()).as_mut()
    }

    fn covers(&self, at: usize, pfn: u64) -> bool {
        self.set.parts()[at].part().contains(&pfn)
    }

    /// Returns the part whose range has the page.
    fn only(&mut self, pfn: u64) -> Result<usize, ReadError> {
        if !self.covers(self.last, pfn) {
            let found = (0..self.views.len()).find(|&at| self.covers(at, pfn));
            self.last = found.ok_or_else(|| self.nowhere(pfn << PAGE_SHIFT))?;
        }
        Ok(self.last)
    }

    /// Returns a part from which `read` gets the page, of those whose ranges have it, or the most severe error.
    fn any(
        &mut self,
        pfn: u64,
        mut read: impl FnMut(&mut (dyn View + 'a)) -> Result<(), ReadError>,
    ) -> Result<usize, ReadError> {
        let mut worst = None;
        // Consecutive pages are mostly in one part.
        let last = self.last;
        let others = (0..self.views.len()).filter(|&at| at != last);
        for at in std::iter::once(last).chain(others) {
            if !self.covers(at, pfn) {
                continue;
            }
            match read(self.part(at)) {
                Ok(()) => {
                    self.last = at;
                    return Ok(at);
                }
                Err(error) => match &worst {
                    Some(worst) if severity(worst) >= severity(&error) => {}
                    _ => worst = Some(error),
                },
            }
        }
        Err(worst.unwrap_or_else(|| self.nowhere(pfn << PAGE_SHIFT)))
    }

    /// Returns why no part has the page.
    fn nowhere(&self, paddr: u64) -> ReadError {
        let pfn = paddr >> PAGE_SHIFT;
        let mut bits = [0];
        let dumped = self.set.first().mark_dumped(pfn, &mut bits).is_ok() && bits::get(&bits, 0);
        match self.set.ranges().find(paddr) {
            _ if dumped => ReadError::Missing {
                paddr,
                reason: "the part of the split set that has it is missing".into(),
            },
            Some(_) => ReadError::NotInDump { paddr },
            None => ReadError::NotPresent { paddr },
        }
    }
}

/// Ranks errors by what is lost.
fn severity(error: &ReadError) -> u8 {
    match error {
        ReadError::NotPresent { .. } => 0,
        ReadError::NotInDump { .. } => 1,
        ReadError::Missing { .. } => 2,
        _ => 3,
    }
}
