//! Reading flattened streams: a dump as records, each with the offset of its bytes, for pipes that cannot seek.

use std::fmt;
use std::io;
use std::ops::Range;
use std::path::Path;

use pagehaul_physmem::OpenError;
use pagehaul_physmem::file::ReadAt;
use zerocopy::{FromZeros, IntoBytes};

use super::record_index::{Builder, Entry, MOST_WALKED, ROOMY};
use crate::format::{FLAT_HEADER_SIZE, FLAT_SIGNATURE, FlatHeader, FlatRecord};

const HEAD: u64 = FlatRecord::SIZE as u64;

/// A flattened stream, presented as the file that it describes.
///
/// Bytes without a record read as zeros, like those of a sparse file. In a truncated stream they may be in the missing part,
/// and reading them fails with [`io::ErrorKind::UnexpectedEof`].
pub struct Flattened {
    file: Box<dyn ReadAt>,
    entries: Vec<Entry>,
    size: u64,
    complete: bool,
}

impl Flattened {
    /// Reads the headers of all records. A stream without its terminator, or with a truncated or invalid record, is read up
    /// to there.
    pub fn open(file: impl ReadAt + 'static) -> Result<Self, OpenError> {
        Self::with_index(Box::new(file), ROOMY)
    }

    /// Opens a stream with one index entry for each of the first `roomy` records.
    fn with_index(file: Box<dyn ReadAt>, roomy: usize) -> Result<Self, OpenError> {
        check_header(&*file)?;
        let mut builder = Builder::new(roomy);
        let mut at = FLAT_HEADER_SIZE as u64;
        let complete = loop {
            let record = match next(&*file, at).map_err(|source| unreadable(&*file, source))? {
                Next::Record(record) => record,
                Next::End => break true,
                Next::Truncated => break false,
            };
            let data = at + HEAD;
            let held = file.size().saturating_sub(data).min(record.size);
            if held > 0 && builder.add(record.offset..record.offset + held, at).is_err() {
                return Err(OpenError::Unsupported {
                    path: file.path().to_owned(),
                    what: "the flattened dump has too many small records that do not follow each other; \
                           rearrange it with `makedumpfile -R` first"
                        .into(),
                });
            }
            if held < record.size {
                break false;
            }
            at = data + record.size;
        };
        let entries = builder.finish();
        let size = entries.last().map_or(0, |entry| entry.end);
        Ok(Self { file, entries, size, complete })
    }

    /// Returns whether the stream has its terminator. Without it, it is truncated.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Reads as much of `buf` as one entry has from `offset`, which is in it.
    fn read_entry(&self, entry: &Entry, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut records = [Record { offset: 0, size: 0, data: 0 }; MOST_WALKED as usize];
        let records = &mut records[..entry.records.min(MOST_WALKED) as usize];
        let mut at = entry.header;
        for record in records.iter_mut() {
            match next(&*self.file, at)? {
                Next::Record(found) => *record = found,
                Next::End | Next::Truncated => return Err(changed()),
            }
            at = record.data.saturating_add(record.size);
        }
        let wanted = (buf.len() as u64).min(entry.end - offset);
        let mut done = 0;
        while done < wanted {
            let place = offset + done;
            let last = records.iter().rposition(|record| record.has(place)).ok_or_else(changed)?;
            let record = records[last];
            let later =
                records[last + 1..].iter().map(|record| record.offset).filter(|&start| start > place).min();
            let end = later.unwrap_or(u64::MAX).min(record.offset + record.size);
            let count = (end - place).min(wanted - done);
            let part = &mut buf[done as usize..(done + count) as usize];
            self.file.read_exact_at(record.data + (place - record.offset), part)?;
            done += count;
        }
        Ok(wanted as usize)
    }
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
        if !self.complete {
            let what =
                format!("the flattened stream is truncated: the bytes at offset {offset:#x} are missing");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
        }
        let end = self.entries.get(after).map_or(self.size, |entry| entry.start);
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

/// One record: `size` bytes at `data` of the stream, for `offset` of the file it describes.
#[derive(Debug, Clone, Copy)]
struct Record {
    offset: u64,
    size: u64,
    data: u64,
}

impl Record {
    fn has(&self, place: u64) -> bool {
        (self.offset..self.offset + self.size).contains(&place)
    }
}

enum Next {
    Record(Record),
    /// The terminator.
    End,
    /// The end of the file, or the zeros that a crashed file system leaves there.
    Truncated,
}

fn next(file: &dyn ReadAt, at: u64) -> io::Result<Next> {
    let mut head = FlatRecord::new_zeroed();
    match file.read_exact_at(at, head.as_mut_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Next::Truncated),
        read => read?,
    }
    let (offset, size) = (head.offset.get(), head.size.get());
    match (u64::try_from(offset), u64::try_from(size)) {
        _ if offset == FlatRecord::END => Ok(Next::End),
        (Ok(_), Ok(0)) => Ok(Next::Truncated),
        (Ok(start), Ok(size)) if offset.checked_add_unsigned(size).is_some() => {
            Ok(Next::Record(Record { offset: start, size, data: at + HEAD }))
        }
        // The offset of the next record is unknown.
        _ => Ok(Next::Truncated),
    }
}

fn unreadable(file: &dyn ReadAt, source: io::Error) -> OpenError {
    OpenError::Io { path: file.path().to_owned(), action: "read the records of", source }
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
