//! Memory with parts of it overwritten.

use std::ops::Range;

use pagehaul_elfcore::notes;
use pagehaul_physmem::{ReadError, View, Wrap};
use serde::{Deserialize, Serialize};

use crate::free_objects::FreeObjects;

/// What erased bytes are overwritten with: the byte that makedumpfile uses.
pub const PATTERN: u8 = b'X';

/// Parts of physical memory that are overwritten when it is read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Erasure {
    /// Physical addresses, ascending and apart.
    places: Vec<Range<u64>>,
    free_objects: FreeObjects,
    /// Lines of text.
    record: Vec<String>,
    /// What was found: how many, and their bytes.
    count: (u64, u64),
}

impl Erasure {
    pub(crate) fn new(
        mut places: Vec<Range<u64>>,
        free_objects: FreeObjects,
        record: Vec<String>,
        count: (u64, u64),
    ) -> Self {
        places.retain(|place| place.start < place.end);
        places.sort_unstable_by_key(|place| place.start);
        let mut apart: Vec<Range<u64>> = Vec::with_capacity(places.len());
        for place in places {
            match apart.last_mut() {
                Some(last) if last.end >= place.start => last.end = last.end.max(place.end),
                _ => apart.push(place),
            }
        }
        Self { places: apart, free_objects, record, count }
    }

    /// Returns the physical addresses that are overwritten with [`PATTERN`], ascending and apart.
    pub fn places(&self) -> &[Range<u64>] {
        &self.places
    }

    /// Returns how many keys, texts and objects were found, and their bytes.
    pub fn count(&self) -> (u64, u64) {
        self.count
    }

    /// Returns the record, as lines of text in makedumpfile's form.
    pub fn record(&self) -> &[String] {
        &self.record
    }

    /// Returns the places that end after `start` and begin before `end`.
    fn within(&self, start: u64, end: u64) -> &[Range<u64>] {
        let from = self.places.partition_point(|place| place.end <= start);
        let later = self.places.get(from..).unwrap_or_default();
        later.get(..later.partition_point(|place| place.start < end)).unwrap_or_default()
    }

    /// Overwrites what is erased of `bytes`, which are those at `paddr`.
    fn overwrite(&self, paddr: u64, bytes: &mut [u8]) {
        for place in self.within(paddr, paddr.saturating_add(bytes.len() as u64)) {
            let start = place.start.saturating_sub(paddr) as usize;
            let end = (place.end.saturating_sub(paddr)).min(bytes.len() as u64) as usize;
            bytes.get_mut(start..end).unwrap_or_default().fill(PATTERN);
        }
    }
}

/// Returns notes with the record of what was erased, which continues the one that is there.
pub fn with_record(of_source: &[u8], record: &[String]) -> Vec<u8> {
    notes::with_lines(of_source, notes::ERASED, 0, record)
}

impl Wrap for Erasure {
    fn wrap<'a>(&'a self, view: Box<dyn View + 'a>) -> Box<dyn View + 'a> {
        Box::new(ErasedView { erasure: self, view, copy: Vec::new() })
    }
}

struct ErasedView<'a> {
    erasure: &'a Erasure,
    view: Box<dyn View + 'a>,
    /// A window that is overwritten in part.
    copy: Vec<u8>,
}

impl View for ErasedView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        let end = paddr.saturating_add(len as u64);
        let has_free = self.erasure.free_objects.has_any(paddr..end);
        if !has_free && self.erasure.within(paddr, end).is_empty() {
            return self.view.window(paddr, len);
        }
        let window = self.view.window(paddr, len)?;
        let window = window.get(..len).unwrap_or(window);
        self.copy.clear();
        self.copy.extend_from_slice(window);
        if has_free {
            self.erasure.free_objects.overwrite(paddr, &mut self.copy);
        }
        self.erasure.overwrite(paddr, &mut self.copy);
        Ok(&self.copy)
    }

    fn is_remote(&self) -> bool {
        self.view.is_remote()
    }

    fn will_need(&mut self, ranges: &[Range<u64>]) {
        self.view.will_need(ranges);
    }

    fn will_need_tables(&mut self) {
        self.view.will_need_tables();
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

    /// Memory that counts: byte *i* is *i* mod 251.
    struct Counting([u8; 512]);

    impl View for Counting {
        fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
            let len = len.min(self.0.len());
            self.0.iter_mut().zip(paddr..).for_each(|(byte, at)| *byte = (at % 251) as u8);
            Ok(&self.0[..len])
        }
    }

    fn read(erasure: &Erasure, paddr: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        erasure.wrap(Box::new(Counting([0; 512]))).read(paddr, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn only_erased_bytes_are_overwritten() {
        let places = vec![700..701, 100..110, 105..120, 120..121, 3000..3000];
        let erasure = Erasure::new(places, FreeObjects::default(), Vec::new(), (0, 0));
        assert_eq!(erasure.places(), [100..121, 700..701]);
        for (start, len) in
            [(0, 2000), (100, 21), (99, 1), (110, 5), (120, 2), (121, 500), (700, 1), (699, 3)]
        {
            let expected = (start..start + len as u64).map(|at| match at {
                100..121 | 700 => PATTERN,
                at => (at % 251) as u8,
            });
            assert_eq!(read(&erasure, start, len), expected.collect::<Vec<_>>(), "{start}");
        }
    }

    #[test]
    fn a_record_continues_that_of_the_source() {
        let mut notes = Vec::new();
        notes::push(&mut notes, "VMCOREINFO", 0, b"OSRELEASE=6.12\n");
        let once = with_record(&notes, &["erase a size 1".into()]);
        let twice = with_record(&once, &["erase b size 2".into()]);
        let found: Vec<_> =
            notes::iter(&twice).map(|note| (note.name.to_vec(), note.desc.to_vec())).collect();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], (b"VMCOREINFO".to_vec(), b"OSRELEASE=6.12\n".to_vec()));
        assert_eq!(found[1], (b"ERASEINFO".to_vec(), b"erase a size 1\nerase b size 2\n".to_vec()));
    }
}
