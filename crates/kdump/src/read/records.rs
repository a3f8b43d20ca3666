//! The records of a flattened stream: read one after the other, or all at once from its index.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use pagehaul_physmem::file::ReadAt;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::format::{FLAT_HEADER_SIZE, FLAT_INDEX_SIGNATURE, FlatIndex, FlatRecord};

/// Bytes of a record's header.
const HEAD: u64 = FlatRecord::SIZE as u64;
/// Bytes at the end of a file that are fetched together: the index of 2,000 records.
const TAIL: u64 = 32 << 10;
/// Headers that are fetched ahead at most: as many requests as are in flight at a time, four times.
const MAX_AHEAD: u64 = 64;

/// One record: `size` bytes at `data` of the stream, for `offset` of the file it describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) data: u64,
}

impl Record {
    /// No record.
    pub(super) const NONE: Self = Self { offset: 0, size: 0, data: HEAD };

    pub(super) fn has(&self, place: u64) -> bool {
        (self.offset..self.offset + self.size).contains(&place)
    }

    /// Returns where its header is.
    pub(super) fn header(&self) -> u64 {
        self.data - HEAD
    }

    /// Returns where the next header is.
    pub(super) fn next(&self) -> u64 {
        self.data.saturating_add(self.size)
    }
}

pub(super) enum Next {
    Record(Record),
    /// The terminator.
    End,
    /// The end of the file, or the zeros that a crashed file system leaves there.
    Truncated,
}

/// Reads the header at `at`.
pub(super) fn next(file: &dyn ReadAt, at: u64) -> io::Result<Next> {
    let mut head = FlatRecord::new_zeroed();
    match file.read_exact_at(at, head.as_mut_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Next::Truncated),
        read => read.map(|()| parse(&head, at)),
    }
}

fn parse(head: &FlatRecord, at: u64) -> Next {
    let (offset, size) = (head.offset.get(), head.size.get());
    match (u64::try_from(offset), u64::try_from(size)) {
        _ if offset == FlatRecord::END => Next::End,
        (Ok(_), Ok(0)) => Next::Truncated,
        (Ok(start), Ok(size)) if offset.checked_add_unsigned(size).is_some() => {
            Next::Record(Record { offset: start, size, data: at + HEAD })
        }
        // The offset of the next record is unknown.
        _ => Next::Truncated,
    }
}

/// Announces the headers that follow a record if all records are as large, as those of makedumpfile are. Does so for more of them
/// each time that it was right.
#[derive(Default)]
pub(super) struct HeadersAhead {
    /// Size of the last record.
    size: u64,
    /// Headers that were announced and not yet read, and how many to announce next.
    announced: u64,
    count: u64,
}

impl HeadersAhead {
    /// Announces the header at `at` if it was not: read without, it would be taken for the start of what is read next.
    pub(super) fn before(&self, file: &dyn ReadAt, at: u64) {
        if self.announced == 0 {
            file.will_need(&[at..at.saturating_add(HEAD)]);
        }
    }

    pub(super) fn after(&mut self, file: &dyn ReadAt, record: &Record) {
        if !file.is_remote() {
            return;
        }
        if record.size != self.size {
            *self = Self { size: record.size, announced: 0, count: 1 };
            return;
        }
        self.announced = self.announced.saturating_sub(1);
        if self.announced > 0 {
            return;
        }
        self.count = (self.count * 2).clamp(1, MAX_AHEAD);
        let stride = HEAD.saturating_add(record.size);
        let headers = (0..self.count).map_while(|number| {
            let start = record.next().checked_add(stride.checked_mul(number)?)?;
            (start < file.size()).then(|| start..start.saturating_add(HEAD))
        });
        file.will_need(&headers.collect::<Vec<_>>());
        self.announced = self.count;
    }
}

/// The records that the index of a stream lists.
///
/// Together they are all bytes between the header and the terminator, so that none leads out of the file. Whether the stream has
/// them is checked when one is used.
pub(super) struct Indexed {
    records: Vec<Record>,
    /// A bit for each record whose header was compared.
    compared: Vec<AtomicU64>,
}

impl Indexed {
    /// Reads the index. Returns nothing if there is none, or if it contradicts the file.
    pub(super) fn read(file: &dyn ReadAt) -> io::Result<Option<Self>> {
        let size = file.size();
        let (first, last) = (FLAT_HEADER_SIZE as u64, size.saturating_sub(FlatIndex::SIZE as u64));
        if last < first {
            return Ok(None);
        }
        file.will_need(&[size.saturating_sub(TAIL).max(first)..size]);
        let mut index = FlatIndex::new_zeroed();
        file.read_exact_at(last, index.as_mut_bytes())?;
        let count = index.count.get();
        if index.signature != FLAT_INDEX_SIGNATURE
            || index.version.get() != 1
            || count > FlatIndex::MOST as u64
        {
            return Ok(None);
        }
        // The terminator precedes the headers.
        let terminator = last.checked_sub((count + 1) * HEAD).filter(|start| *start >= first);
        let Some(terminator) = terminator else { return Ok(None) };
        let mut bytes = vec![0; (last - terminator) as usize];
        file.will_need(&[terminator..last]);
        file.read_exact_at(terminator, &mut bytes)?;
        let Some((end, headers)) = bytes.split_at_checked(FlatRecord::SIZE) else { return Ok(None) };
        if end != [0xff; FlatRecord::SIZE] || FlatIndex::new(headers).as_bytes() != index.as_bytes() {
            return Ok(None);
        }
        let mut records = Vec::with_capacity(count as usize);
        let mut at = first;
        for head in headers.chunks(FlatRecord::SIZE) {
            match FlatRecord::read_from_bytes(head).map(|head| parse(&head, at)) {
                Ok(Next::Record(record)) if record.next() <= terminator => {
                    at = record.next();
                    records.push(record);
                }
                _ => return Ok(None),
            }
        }
        let compared = records.chunks(64).map(|_| AtomicU64::new(0)).collect();
        Ok((at == terminator).then_some(Self { records, compared }))
    }

    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns the number of the record with its header at `header`.
    pub(super) fn number(&self, header: u64) -> usize {
        self.records.partition_point(|record| record.header() < header)
    }

    /// Returns whether the header of a record was found in the stream.
    pub(super) fn is_compared(&self, number: usize) -> bool {
        self.compared
            .get(number / 64)
            .is_some_and(|bits| bits.load(Ordering::Relaxed) >> (number % 64) & 1 == 1)
    }

    /// Fails if the stream has another header than that of record `number`.
    pub(super) fn compare(&self, file: &dyn ReadAt, number: usize) -> io::Result<()> {
        let (Some(record), Some(bits)) = (self.records.get(number), self.compared.get(number / 64)) else {
            return Ok(());
        };
        match next(file, record.header())? {
            Next::Record(found) if found == *record => {
                bits.fetch_or(1 << (number % 64), Ordering::Relaxed);
                Ok(())
            }
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "the index of the flattened dump contradicts the record at offset {:#x}",
                    record.header()
                ),
            )),
        }
    }
}
