//! The end of a dump to which all pages were added.

use std::time::{Duration, Instant};

use pagehaul_machine::PageSize;
use pagehaul_output::{DumpWriter, FinishBound, PageBatch, Recorded, WriteCosts, WriteError};

use super::finish_in_time;
use crate::limits::Deadline;
use crate::options::Limits;
use crate::report::Clock;

/// A dump whose pages in flight never get to the disk.
#[derive(Default)]
struct Stalled {
    asked_until: Option<Instant>,
    finished: bool,
    /// Bytes in the page cache.
    cached: u64,
    saved: usize,
}

impl DumpWriter for Stalled {
    fn begin(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    fn write_batch(&mut self, _batch: PageBatch<'_>) -> Result<(), WriteError> {
        Ok(())
    }

    fn write_until(&mut self, until: Instant) -> Result<bool, WriteError> {
        self.asked_until = Some(until);
        Ok(false)
    }

    fn finish(&mut self, _complete: bool) -> Result<(), WriteError> {
        self.finished = true;
        Ok(())
    }

    fn abandon(&mut self, _until: Option<Instant>) -> Recorded {
        Recorded::pages(0)
    }

    fn save(&mut self) -> Result<(), WriteError> {
        self.saved += 1;
        self.cached = 0;
        Ok(())
    }

    fn size_with(&self, _batch: PageBatch<'_>) -> u64 {
        0
    }

    fn finish_bound(&self) -> FinishBound {
        FinishBound::default()
    }

    fn costs(&self) -> WriteCosts {
        WriteCosts { cached: self.cached, ..WriteCosts::default() }
    }

    fn size(&self) -> u64 {
        0
    }
}

#[test]
fn pages_in_flight_are_not_waited_for_beyond_the_time_limit() {
    let clock = Clock::start();
    let limit = Duration::from_secs(60);
    let mut dump = Stalled::default();
    let deadline = Deadline::new(Limits { time: Some(limit), size: None }, 0, &clock);
    assert!(!finish_in_time(&mut dump, &deadline, true).unwrap());
    assert!(!dump.finished);
    let until = dump.asked_until.unwrap();
    assert!(until > clock.start_time() && until < clock.start_time() + limit);

    let mut dump = Stalled::default();
    let deadline = Deadline::new(Limits { time: None, size: None }, 0, &clock);
    assert!(finish_in_time(&mut dump, &deadline, true).unwrap());
    assert!(dump.finished && dump.asked_until.is_none());
}

/// A power cut loses what is in the page cache.
#[test]
fn a_stream_is_flushed_also_without_a_time_limit() {
    let clock = Clock::start();
    let mut dump = Stalled::default();
    let mut deadline = Deadline::new(Limits::default(), 0, &clock);
    let nothing = PageBatch { page_size: PageSize::KIB_4, pfns: &[], pages: &[], data: &[] };
    dump.cached = 64 << 20;
    for _ in 0..3 {
        assert!(deadline.reached(&mut dump, nothing).unwrap().is_none());
    }
    assert!(dump.saved >= 1 && dump.cached == 0, "{} saves", dump.saved);
}
