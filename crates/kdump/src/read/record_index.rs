//! Finds the records of a flattened file by the bytes they hold.
//!
//! A dump of a terabyte has tens of millions of records of any size, in interleaved streams (descriptors and page data). Once
//! there are many, an entry stands for a run of bytes and up to [`MAX_WALKED`] consecutive records of the file, whose
//! headers a reader walks. The last of them that has a byte of the run is the valid one. Other records in between do no harm:
//! a later record of the run has all bytes of the run that they have.

use std::collections::BTreeMap;
use std::ops::Range;

/// Records per entry at most, and so headers to read per lookup.
pub(super) const MAX_WALKED: u32 = 16;
/// Entries at most: enough for a terabyte in records of 64 KiB, and 32 MiB of memory.
const MAX_ENTRIES: usize = 1 << 20;

/// A run of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    /// First byte of the run.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
    /// File offset of the header of the first record.
    pub header: u64,
    /// Number of records to walk from there.
    pub records: u32,
}

/// Entries up to which each record has its own, for fast lookups: 2 MiB.
pub(super) const ROOMY: usize = 1 << 16;

/// Builds the index from the records in file order.
pub(super) struct Builder {
    /// Entries up to which each record has its own.
    roomy: usize,
    runs: BTreeMap<u64, Run>,
    records: u64,
}

#[derive(Clone, Copy)]
struct Run {
    end: u64,
    header: u64,
    /// The number in the file of the record at `header`.
    first: u64,
    records: u32,
}

/// The index would exceed [`MAX_ENTRIES`].
pub(super) struct TooMany;

impl Builder {
    pub(super) fn new(roomy: usize) -> Self {
        Self { roomy, runs: BTreeMap::new(), records: 0 }
    }

    /// Adds the next record of the file, which has the bytes `range` and its header at `header`.
    pub(super) fn add(&mut self, range: Range<u64>, header: u64) -> Result<(), TooMany> {
        let number = self.records;
        self.records += 1;
        self.cut_out(&range);
        if self.runs.len() >= self.roomy
            && let Some((_, run)) = self.runs.range_mut(..range.start).next_back()
            && run.end == range.start
            && number - run.first < u64::from(MAX_WALKED)
        {
            run.end = range.end;
            run.records = (number - run.first) as u32 + 1;
            return Ok(());
        }
        let run = Run { end: range.end, header, first: number, records: 1 };
        self.runs.insert(range.start, run);
        if self.runs.len() > MAX_ENTRIES { Err(TooMany) } else { Ok(()) }
    }

    /// Removes `range` from the runs that have bytes of it: a later record has them now.
    fn cut_out(&mut self, range: &Range<u64>) {
        while let Some((&start, &run)) = self.runs.range(..range.end).next_back() {
            if run.end <= range.start {
                return;
            }
            self.runs.remove(&start);
            if start < range.start {
                self.runs.insert(start, Run { end: range.start, ..run });
            }
            if range.end < run.end {
                self.runs.insert(range.end, run);
            }
        }
    }

    /// Returns the entries, ascending and disjoint.
    pub(super) fn finish(self) -> Vec<Entry> {
        let entry = |(start, run): (u64, Run)| Entry {
            start,
            end: run.end,
            header: run.header,
            records: run.records,
        };
        self.runs.into_iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_streams_take_an_entry_each() {
        let mut builder = Builder::new(0);
        let (mut low, mut high) = (0, 1 << 40);
        for number in 0..u64::from(MAX_WALKED) / 2 {
            assert!(builder.add(low..low + 24, number * 2000).is_ok());
            assert!(builder.add(high..high + 777, number * 2000 + 100).is_ok());
            (low, high) = (low + 24, high + 777);
        }
        let entries = builder.finish();
        assert_eq!(entries.len(), 2);
        assert_eq!((entries[0].end, entries[1].end), (low, high));
        assert_eq!((entries[0].records, entries[1].records), (MAX_WALKED - 1, MAX_WALKED - 1));
    }

    #[test]
    fn a_later_record_splits_what_it_overwrites() {
        let mut builder = Builder::new(0);
        assert!(builder.add(0..100, 0).is_ok());
        assert!(builder.add(40..44, 116).is_ok());
        let runs: Vec<_> = builder.finish().iter().map(|entry| (entry.start, entry.end)).collect();
        assert_eq!(runs, [(0, 44), (44, 100)]);
    }
}
