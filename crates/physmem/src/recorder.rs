//! Records which pages are read.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pagehaul_machine::{PageCount, PageSize, Pfn, PhysAddr};

use crate::PAGE_SHIFT;
use crate::error::ReadError;
use crate::view::{PhysMemory, View};
use crate::wrapped::{Wrap, Wrapped};

/// Pages that are recorded at most: 4 GiB of memory.
const MAX_PAGES: usize = 1 << 20;

/// Memory that records which of its pages are read, so that a dump can have them first.
pub type Recorder<'a> = Wrapped<'a, Recording>;

/// The pages that were read.
#[derive(Default)]
pub struct Recording {
    /// Addresses of pages of 4 KiB.
    pages: Mutex<BTreeSet<PhysAddr>>,
}

impl<'a> Recorder<'a> {
    /// Starts to record the pages that are read through it.
    pub fn new(memory: &'a dyn PhysMemory) -> Self {
        Self::through(Recording::default(), memory)
    }

    /// Returns the PFNs of the pages of `size` of which a part was read so far, ascending, without duplicates.
    pub fn runs(&self, size: PageSize) -> Vec<Range<Pfn>> {
        let mut runs: Vec<Range<Pfn>> = Vec::new();
        for page in self.wrap().pages().iter() {
            let pfn = page.pfn(size);
            let next = pfn + PageCount::new(1);
            match runs.last_mut() {
                Some(last) if last.end > pfn => {}
                Some(last) if last.end == pfn => last.end = next,
                _ => runs.push(pfn..next),
            }
        }
        runs
    }
}

impl Recording {
    fn pages(&self) -> MutexGuard<'_, BTreeSet<PhysAddr>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, paddr: u64, len: usize) {
        let mut pages = self.pages();
        let last = paddr.saturating_add((len as u64).saturating_sub(1)) >> PAGE_SHIFT;
        for pfn in paddr >> PAGE_SHIFT..=last {
            if pages.len() < MAX_PAGES {
                pages.insert(PhysAddr::new(pfn << PAGE_SHIFT));
            }
        }
    }
}

impl Wrap for Recording {
    fn wrap<'a>(&'a self, view: Box<dyn View + 'a>) -> Box<dyn View + 'a> {
        Box::new(RecordingView { recording: self, view })
    }
}

struct RecordingView<'a> {
    recording: &'a Recording,
    view: Box<dyn View + 'a>,
}

impl View for RecordingView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        let window = self.view.window(paddr, len)?;
        self.recording.record(paddr, window.len().min(len));
        Ok(window)
    }

    fn is_remote(&self) -> bool {
        self.view.is_remote()
    }

    fn will_need(&mut self, ranges: &[Range<u64>]) {
        self.view.will_need(ranges);
    }

    fn end_of_hole(&self, paddr: u64) -> u64 {
        self.view.end_of_hole(paddr)
    }

    fn take_fault(&mut self) -> bool {
        self.view.take_fault()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranges::RangeMap;

    /// Memory of zeros.
    struct Zeros(RangeMap);

    impl PhysMemory for Zeros {
        fn ranges(&self) -> &RangeMap {
            &self.0
        }

        fn mark_stored(&self, _: PhysAddr, bits: &mut [u64]) -> Result<(), ReadError> {
            bits.fill(u64::MAX);
            Ok(())
        }

        fn view(&self) -> Box<dyn View + '_> {
            Box::new(ZeroView([0; 8192]))
        }

        fn notes(&self) -> &[u8] {
            &[]
        }

        fn files(&self) -> Vec<(u64, u64)> {
            Vec::new()
        }
    }

    struct ZeroView([u8; 8192]);

    impl View for ZeroView {
        fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
            if paddr >= 1 << 20 {
                return Err(ReadError::NotPresent { paddr });
            }
            Ok(&self.0[..len.min(8192)])
        }
    }

    #[test]
    fn pages_that_are_read_are_recorded() {
        let memory = Zeros(RangeMap::default());
        let recorder = Recorder::new(&memory);
        let mut view = recorder.view();
        view.read(0x5ff8, &mut [0; 16]).unwrap();
        view.read(0x9000, &mut [0; 4096]).unwrap();
        assert!(view.read(1 << 20, &mut [0; 8]).is_err());
        let runs = |size| {
            let runs = recorder.runs(size).into_iter();
            runs.map(|run| run.start.number()..run.end.number()).collect::<Vec<_>>()
        };
        assert_eq!(runs(PageSize::KIB_4), [5..7, 9..10]);
        view.read(0x1_0000, &mut [0; 8]).unwrap();
        assert_eq!(runs(PageSize::new(16 << 10).unwrap()), [1..3, 4..5]);
    }
}
