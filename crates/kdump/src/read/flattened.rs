//! Reading flattened streams: a dump as records, each with the offset of its bytes, for pipes that cannot seek.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;

use pagehaul_physmem::OpenError;
use pagehaul_physmem::file::ReadAt;
use zerocopy::{FromZeros, IntoBytes};

use super::record_index::{Builder, Entry, MAX_WALKED, ROOMY};
use super::records::{HeadersAhead, Indexed, Next, Record, next};
use crate::format::{FLAT_HEADER_SIZE, FLAT_SIGNATURE, FlatHeader};

/// What is wrong with a stream that has no end record, and what to do.
pub const TRUNCATED_STREAM: &str = "the flattened stream is truncated: it has no end record; copy it again if it is whole elsewhere, or \
    make a dump of what arrived for crash and drgn: `pagehaul convert STREAM DUMP`";

/// A flattened stream, presented as the file that it describes.
///
/// Bytes without a record read as zeros, like those of a sparse file. In a truncated stream they may be in the missing part,
/// and reading them fails with [`io::ErrorKind::UnexpectedEof`]; those of a dump's tables read as zeros
/// ([`read_missing_as_zeros`](Self::read_missing_as_zeros)).
pub struct Flattened {
    file: Box<dyn ReadAt>,
    entries: Vec<Entry>,
    /// Where bytes that a truncated stream lacks read as zeros.
    zeros: Range<u64>,
    /// What the stream's index lists, if it was read.
    index: Option<Indexed>,
    size: u64,
    complete: bool,
}

impl Flattened {
    /// Reads the headers of all records; those of a stream on a server from its index, if it has one. A stream without its
    /// terminator, or with a truncated or invalid record, is read up to there.
    pub fn open(file: impl ReadAt + 'static) -> Result<Self, OpenError> {
        Self::with_index(Box::new(file), ROOMY)
    }

    /// Opens a stream with one index entry for each of the first `roomy` records.
    fn with_index(file: Box<dyn ReadAt>, roomy: usize) -> Result<Self, OpenError> {
        check_header(&*file)?;
        let unreadable =
            |source| OpenError::Io { path: file.path().to_owned(), action: "read the records of", source };
        // A disk finds the headers as fast, and they need no trust; but to decrypt them is to decrypt everything.
        let index = if file.is_remote() || file.is_encrypted() {
            Indexed::read(&*file).map_err(unreadable)?
        } else {
            None
        };
        let mut builder = Builder::new(roomy);
        let complete = match &index {
            Some(index) => {
                for record in index.records() {
                    add(&*file, &mut builder, record, record.size)?;
                }
                true
            }
            None => walk(&*file, &mut builder)?,
        };
        let entries = builder.finish();
        let size = entries.last().map_or(0, |entry| entry.end);
        Ok(Self { file, entries, zeros: 0..0, index, size, complete })
    }

    /// Returns whether the stream has its terminator. Without it, it is truncated.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Makes the bytes of `range` that a truncated stream lacks before its end read as zeros, as they are in the file that
    /// `makedumpfile -R` makes of it: those of tables in which zeros mean that nothing is there. Items of `item` bytes, counted from
    /// the start of the range, are zeros as a whole if the stream lacks one of their bytes. Ranges of several calls follow each other.
    pub fn read_missing_as_zeros(&mut self, range: Range<u64>, item: u64) {
        let range = range.start..range.end.min(self.size);
        if self.complete || range.is_empty() {
            return;
        }
        let before = |at: u64| at - (at - range.start) % item;
        let first = self.entries.partition_point(|entry| entry.end <= range.start);
        let last = self.entries.partition_point(|entry| entry.start < range.end);
        // An item may lie in several entries that follow each other.
        for run in self.entries[first..last].chunk_by_mut(|entry, next| entry.end == next.start) {
            let (Some(start), Some(end)) =
                (run.first().map(|entry| entry.start), run.last().map(|entry| entry.end))
            else {
                continue;
            };
            let start = if start > range.start { before(start + item - 1) } else { start };
            let end = if end < range.end { before(end) } else { end };
            for entry in run {
                entry.start = entry.start.max(start);
                entry.end = entry.end.min(end);
            }
        }
        self.entries.retain(|entry| entry.start < entry.end);
        let start = if self.zeros.end == range.start { self.zeros.start } else { range.start };
        self.zeros = start..range.end;
    }

    /// Returns how many bytes of a range are in no record.
    pub(super) fn missing_bytes(&self, range: Range<u64>) -> u64 {
        let first = self.entries.partition_point(|entry| entry.end <= range.start);
        let here = self.entries[first..].iter().take_while(|entry| entry.start < range.end);
        let held: u64 = here.map(|entry| entry.end.min(range.end) - entry.start.max(range.start)).sum();
        (range.end - range.start) - held
    }

    /// Reads as much of `buf` as one entry has from `offset`, which is in it.
    fn read_entry(&self, entry: &Entry, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut walked = [Record::NONE; MAX_WALKED as usize];
        let (first, records) = self.records(entry, &mut walked)?;
        let wanted = (buf.len() as u64).min(entry.end - offset);
        let mut done = 0;
        while done < wanted {
            let (number, piece) = piece(records, offset + done..offset + wanted).ok_or_else(changed)?;
            if let Some(index) = self.index.as_ref().filter(|index| !index.is_compared(first + number)) {
                let header = records[number].header();
                self.file.will_need(&[header..records[number].data, piece.clone()]);
                index.compare(&*self.file, first + number)?;
            }
            let count = piece.end - piece.start;
            let part = &mut buf[done as usize..(done + count) as usize];
            self.file.read_exact_at(piece.start, part)?;
            done += count;
        }
        Ok(wanted as usize)
    }

    /// Returns the records of an entry, and the number of the first in the stream's index: from there, or read to `walked`.
    fn records<'a>(
        &'a self,
        entry: &Entry,
        walked: &'a mut [Record; MAX_WALKED as usize],
    ) -> io::Result<(usize, &'a [Record])> {
        let count = entry.records.min(MAX_WALKED) as usize;
        if let Some(index) = &self.index {
            let first = index.number(entry.header);
            let records = index.records().get(first..).ok_or_else(changed)?;
            return Ok((first, &records[..count.min(records.len())]));
        }
        let walked = &mut walked[..count];
        let mut at = entry.header;
        for record in walked.iter_mut() {
            match next(&*self.file, at)? {
                Next::Record(found) => *record = found,
                Next::End | Next::Truncated => return Err(changed()),
            }
            at = record.next();
        }
        Ok((0, walked))
    }

    /// Adds to `pieces` where the bytes of a range are in the stream, with headers that are compared when they are read.
    fn locate(&self, range: &Range<u64>, pieces: &mut Vec<Range<u64>>) {
        let first = self.entries.partition_point(|entry| entry.end <= range.start);
        for entry in self.entries[first..].iter().take_while(|entry| entry.start < range.end) {
            // The headers of a walk would be read one by one.
            if self.index.is_none() && entry.records > 1 {
                continue;
            }
            let mut walked = [Record::NONE; MAX_WALKED as usize];
            let Ok((first, records)) = self.records(entry, &mut walked) else { return };
            let mut left = range.start.max(entry.start)..range.end.min(entry.end);
            while let Some((number, piece)) = piece(records, left.clone()) {
                if self.index.as_ref().is_some_and(|index| !index.is_compared(first + number)) {
                    pieces.push(records[number].header()..records[number].data);
                }
                left.start += piece.end - piece.start;
                pieces.push(piece);
            }
        }
    }
}

/// Returns which record has the first byte of a range, and where its bytes of the range are in the stream.
fn piece(records: &[Record], range: Range<u64>) -> Option<(usize, Range<u64>)> {
    let number = records.iter().rposition(|record| range.start < range.end && record.has(range.start))?;
    let record = records[number];
    // A later record may have the bytes behind.
    let later = records[number + 1..].iter().map(|record| record.offset).filter(|&at| at > range.start).min();
    let end = later.unwrap_or(u64::MAX).min(record.offset + record.size).min(range.end);
    let start = record.data + (range.start - record.offset);
    Some((number, start..start + (end - range.start)))
}

/// Adds the records of a stream, from one header to the next. Returns whether it has its terminator.
fn walk(file: &dyn ReadAt, builder: &mut Builder) -> Result<bool, OpenError> {
    let unreadable =
        |source| OpenError::Io { path: file.path().to_owned(), action: "read the records of", source };
    let mut at = FLAT_HEADER_SIZE as u64;
    let mut ahead = HeadersAhead::default();
    loop {
        ahead.before(file, at);
        let record = match next(file, at).map_err(unreadable)? {
            Next::Record(record) => record,
            Next::End => return Ok(true),
            Next::Truncated => return Ok(false),
        };
        let held = file.size().saturating_sub(record.data).min(record.size);
        add(file, builder, &record, held)?;
        if held < record.size {
            return Ok(false);
        }
        ahead.after(file, &record);
        at = record.next();
    }
}

/// Adds a record of which the file has `held` bytes.
fn add(file: &dyn ReadAt, builder: &mut Builder, record: &Record, held: u64) -> Result<(), OpenError> {
    if held > 0 && builder.add(record.offset..record.offset + held, record.header()).is_err() {
        return Err(OpenError::Unsupported {
            path: file.path().to_owned(),
            what: "the flattened dump has too many small records that do not follow each other; \
                   rearrange it with `makedumpfile -R` first"
                .into(),
        });
    }
    Ok(())
}

impl ReadAt for Flattened {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if offset >= self.size || buf.is_empty() {
            return Ok(0);
        }
        let after = self.entries.partition_point(|entry| entry.start <= offset);
        let found =
            after.checked_sub(1).and_then(|at| self.entries.get(at)).filter(|entry| offset < entry.end);
        if let Some(entry) = found {
            return self.read_entry(entry, offset, buf);
        }
        let end = self.entries.get(after).map_or(self.size, |entry| entry.start);
        let end = if self.zeros.contains(&offset) { end.min(self.zeros.end) } else { end };
        if !self.complete && !self.zeros.contains(&offset) {
            let what =
                format!("the flattened stream is truncated: the bytes at offset {offset:#x} are missing");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        let count = (buf.len() as u64).min(end - offset) as usize;
        buf[..count].fill(0);
        Ok(count)
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn next_data(&self, offset: u64) -> Range<u64> {
        let after = self.entries.partition_point(|entry| entry.end <= offset);
        match self.entries.get(after) {
            // What a truncated stream did not bring is not zeros.
            Some(entry) if self.complete => entry.start.max(offset)..entry.end,
            _ if self.complete => self.size..self.size,
            _ => offset.min(self.size)..self.size,
        }
    }

    fn path(&self) -> &Path {
        self.file.path()
    }

    fn is_remote(&self) -> bool {
        self.file.is_remote()
    }

    fn will_need(&self, ranges: &[Range<u64>]) {
        let mut pieces = Vec::new();
        ranges.iter().for_each(|range| self.locate(range, &mut pieces));
        if !pieces.is_empty() {
            self.file.will_need(&pieces);
        }
    }

    fn identity(&self) -> (u64, u64) {
        self.file.identity()
    }
}

impl fmt::Debug for Flattened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flattened")
            .field("path", &self.path())
            .field("size", &self.size)
            .field("entries", &self.entries.len())
            .field("complete", &self.complete)
            .finish()
    }
}

fn check_header(file: &dyn ReadAt) -> Result<(), OpenError> {
    let bad = |what: String| OpenError::Format { path: file.path().to_owned(), offset: 0, what };
    let mut header = FlatHeader::new_zeroed();
    file.read_exact_at(0, header.as_mut_bytes()).map_err(|source| match source.kind() {
        io::ErrorKind::UnexpectedEof => bad("the file ends within the header of a flattened dump".into()),
        _ => OpenError::Io { path: file.path().to_owned(), action: "read the header of", source },
    })?;
    if header.signature != FLAT_SIGNATURE {
        return Err(bad("no flattened dump starts here (\"makedumpfile\" was expected)".into()));
    }
    match (header.kind.get(), header.version.get()) {
        (1, 1) => Ok(()),
        (kind, version) => Err(OpenError::Unsupported {
            path: file.path().to_owned(),
            what: format!(
                "a flattened dump of type {kind}, version {version}; only type 1, version 1 is supported"
            ),
        }),
    }
}

fn changed() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the flattened dump changed while it was read")
}

#[cfg(test)]
mod tests {
    use pagehaul_physmem::file::PlainFile;
    use pagehaul_run::BytesWritten;
    use proptest::prelude::*;

    use super::*;
    use crate::write::FlattenedOutput;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// Entries for many records find the same bytes as entries for each.
        #[test]
        fn walking_records_finds_the_last_one(
            moves in prop::collection::vec(
                (prop_oneof![9 => Just(None), 1 => (0u64..3000).prop_map(Some)], 1usize..90, any::<bool>()), 1..200),
        ) {
            let file = tempfile::NamedTempFile::new().unwrap();
            let mut writer = FlattenedOutput::new(file.as_file(), BytesWritten::default()).unwrap();
            // Two interleaved streams, and jumps that overwrite.
            let mut next = [0, 2000];
            let mut expected = Vec::new();
            for (number, (jump, size, which)) in moves.into_iter().enumerate() {
                let offset = jump.unwrap_or(next[usize::from(which)]);
                let bytes = vec![number as u8 | 1; size];
                let end = offset as usize + size;
                next[usize::from(which)] = end as u64;
                writer.record(offset, &bytes).unwrap();
                expected.resize(expected.len().max(end), 0);
                expected[offset as usize..end].copy_from_slice(&bytes);
            }
            writer.finish().unwrap();
            let mut sizes = Vec::new();
            for roomy in [0, 20, ROOMY] {
                let source = PlainFile::open(file.path()).unwrap();
                let flat = Flattened::with_index(Box::new(source), roomy).unwrap();
                let mut found = vec![0xee; expected.len()];
                flat.read_exact_at(0, &mut found).unwrap();
                prop_assert!(found == expected);
                for at in (0..expected.len()).step_by(97) {
                    let mut byte = [0xee];
                    flat.read_exact_at(at as u64, &mut byte).unwrap();
                    prop_assert_eq!(byte[0], expected[at]);
                }
                sizes.push(flat.entries.len());
            }
            // Which of the two smaller ones needs more depends on the records.
            prop_assert!(sizes[0].max(sizes[1]) <= sizes[2], "{sizes:?}");
        }
    }
}
