//! Decodes one sub-buffer: a time stamp, `commit`, then records of a 5-bit type or length, a 27-bit time
//! delta and data.

use super::SubBufferLayout;

/// Values of `type_len` above the lengths (`enum ring_buffer_type`; `events/header_event` prints them).
mod kind {
    /// Padding, or a discarded record.
    pub(super) const PADDING: u32 = 29;
    /// A time delta of more than 27 bits.
    pub(super) const TIME_EXTEND: u32 = 30;
    /// An absolute time stamp.
    pub(super) const TIME_STAMP: u32 = 31;
}

/// Number of data bytes: the lower 20 bits of `commit`.
const COMMIT_MASK: u64 = (1 << 20) - 1;
/// `RB_MISSED_EVENTS`: events were lost before this sub-buffer.
const MISSED_EVENTS: u64 = 1 << 31;
/// `RB_MISSED_STORED`: their number is stored as a `long` after the data.
const MISSED_STORED: u64 = 1 << 30;
/// Absolute time stamps have 59 bits; the upper bits are those of the preceding time stamp.
const STAMP_BITS: u32 = 59;

/// Events lost before a sub-buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissedEvents {
    /// None.
    No,
    /// This many.
    Count(u64),
    /// At least one; the kernel had no room to store the number.
    Unknown,
}

/// A record: its time stamp and the location of its data in the sub-buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Nanoseconds of the trace clock.
    pub ts: u64,
    /// First byte of the data, from the start of the sub-buffer.
    pub start: usize,
    /// One past the last byte.
    pub end: usize,
}

/// A sub-buffer's contents contradict its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("at byte {offset}: {what}")]
pub struct SubBufferError {
    /// Byte offset in the sub-buffer.
    pub offset: usize,
    /// The contradiction.
    pub what: &'static str,
}

/// Iterates over the records of one sub-buffer.
#[derive(Debug, Clone)]
pub struct SubBufferCursor {
    layout: SubBufferLayout,
    ts: u64,
    at: usize,
    end: usize,
    missed: MissedEvents,
}

impl SubBufferCursor {
    /// Starts at the first record. `page` may be truncated after its last record.
    ///
    /// # Errors
    /// [`SubBufferError`] if the header is truncated, or `commit` exceeds the sub-buffer.
    pub fn new(page: &[u8], layout: SubBufferLayout) -> Result<Self, SubBufferError> {
        let abi = layout.abi;
        let word = |at: usize, size: usize| page.get(at..)?.get(..size).and_then(|bytes| abi.unsigned(bytes));
        let long = usize::from(abi.long_size);
        let (Some(ts), Some(commit)) = (word(0, 8), word(layout.commit_offset as usize, long)) else {
            return Err(SubBufferError { offset: page.len(), what: "the header is truncated" });
        };
        let at = layout.data_offset as usize;
        let end = at + (commit & COMMIT_MASK) as usize;
        if end > page.len() {
            return Err(SubBufferError {
                offset: layout.commit_offset as usize,
                what: "commit exceeds the sub-buffer",
            });
        }
        let missed = match commit & (MISSED_EVENTS | MISSED_STORED) {
            0 => MissedEvents::No,
            bits if bits & MISSED_STORED != 0 => {
                word(end, long).map_or(MissedEvents::Unknown, MissedEvents::Count)
            }
            _ => MissedEvents::Unknown,
        };
        Ok(Self { layout, ts, at, end, missed })
    }

    /// Returns the events lost before this sub-buffer.
    pub fn missed(&self) -> MissedEvents {
        self.missed
    }

    /// Returns the next data record; `page` is the one passed to [`SubBufferCursor::new`].
    ///
    /// # Errors
    /// [`SubBufferError`] if a record exceeds the data; the rest of the sub-buffer is unreadable.
    #[inline]
    pub fn next_record(&mut self, page: &[u8]) -> Result<Option<Record>, SubBufferError> {
        while self.at < self.end {
            let header = self.word(page, self.at)?;
            let (type_len, delta) = if self.layout.abi.big_endian {
                (header >> 27, u64::from(header & ((1 << 27) - 1)))
            } else {
                (header & 31, u64::from(header >> 5))
            };
            let array = self.at + 4;
            let (start, end) = match type_len {
                0 => {
                    // The length includes its own word.
                    let len = self.word(page, array)? as usize;
                    if len < 4 {
                        return Err(self.error("a record is shorter than its length word"));
                    }
                    (array + 4, array + len)
                }
                // A null record: the rest of the sub-buffer is unused.
                kind::PADDING if delta == 0 => {
                    self.at = self.end;
                    return Ok(None);
                }
                kind::PADDING => {
                    // A discarded record. Its delta counts, because the next delta builds on it.
                    let len = self.word(page, array)? as usize;
                    self.ts = self.ts.wrapping_add(delta);
                    self.skip_to(array.saturating_add(len.max(4)))?;
                    continue;
                }
                kind::TIME_EXTEND => {
                    let upper = u64::from(self.word(page, array)?);
                    self.ts = self.ts.wrapping_add((upper << 27) + delta);
                    self.skip_to(array + 4)?;
                    continue;
                }
                kind::TIME_STAMP => {
                    let upper = u64::from(self.word(page, array)?);
                    self.ts = absolute((upper << 27) + delta, self.ts);
                    self.skip_to(array + 4)?;
                    continue;
                }
                words => (array, array + words as usize * 4),
            };
            if end > self.end {
                return Err(self.error("a record exceeds the data"));
            }
            self.ts = self.ts.wrapping_add(delta);
            // Lengths and record offsets are multiples of 4.
            self.at = end.next_multiple_of(4);
            return Ok(Some(Record { ts: self.ts, start, end }));
        }
        Ok(None)
    }

    #[inline]
    fn word(&self, page: &[u8], at: usize) -> Result<u32, SubBufferError> {
        let bytes = page.get(..self.end).and_then(|page| page.get(at..)?.first_chunk::<4>());
        let Some(&bytes) = bytes else { return Err(self.error("a record header is truncated")) };
        Ok(if self.layout.abi.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    fn skip_to(&mut self, to: usize) -> Result<(), SubBufferError> {
        if to > self.end {
            return Err(self.error("padding exceeds the data"));
        }
        self.at = to;
        Ok(())
    }

    fn error(&self, what: &'static str) -> SubBufferError {
        SubBufferError { offset: self.at, what }
    }
}

/// Extends an absolute time stamp with the upper five bits of the preceding one. A smaller stamp means that
/// the lower bits wrapped around.
fn absolute(stamp: u64, before: u64) -> u64 {
    let upper = before >> STAMP_BITS << STAMP_BITS;
    let full = upper | stamp;
    if upper != 0 && full < before { full.wrapping_add(1 << STAMP_BITS) } else { full }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(type_len: u32, delta: u32) -> [u8; 4] {
        (type_len | delta << 5).to_le_bytes()
    }

    fn page(ts: u64, flags: u64, data: &[&[u8]], behind: &[u8]) -> Vec<u8> {
        let data = data.concat();
        let mut page = ts.to_le_bytes().to_vec();
        page.extend((data.len() as u64 | flags).to_le_bytes());
        page.extend(data);
        page.extend(behind);
        page.resize(4096, 0);
        page
    }

    fn records(page: &[u8]) -> (Vec<(u64, Vec<u8>)>, Option<SubBufferError>) {
        let mut cursor = SubBufferCursor::new(page, SubBufferLayout::le64(4096)).unwrap();
        let mut out = Vec::new();
        loop {
            match cursor.next_record(page) {
                Ok(Some(record)) => out.push((record.ts, page[record.start..record.end].to_vec())),
                Ok(None) => return (out, None),
                Err(error) => return (out, Some(error)),
            }
        }
    }

    #[test]
    fn all_kinds_of_records_are_read() {
        let page = page(
            1000,
            0,
            &[
                &header(2, 5),
                b"eightbyt",
                &header(kind::TIME_EXTEND, 1),
                &2u32.to_le_bytes(),
                &header(kind::PADDING, 7),
                &8u32.to_le_bytes(),
                b"gone",
                &header(0, 3),
                &12u32.to_le_bytes(),
                b"longword",
                &header(kind::TIME_STAMP, 77),
                &1u32.to_le_bytes(),
                &header(1, 0),
                b"last",
                &header(kind::PADDING, 0),
                b"whatever follows",
            ],
            &[],
        );
        let far = 1005 + (2 << 27) + 1 + 7 + 3;
        let expected =
            [(1005, b"eightbyt".to_vec()), (far, b"longword".to_vec()), ((1 << 27) + 77, b"last".to_vec())];
        assert_eq!(records(&page), (expected.to_vec(), None));
    }

    #[test]
    fn absolute_times_keep_their_upper_bits() {
        let before = (3 << STAMP_BITS) + 500;
        assert_eq!(absolute(600, before), (3 << STAMP_BITS) + 600);
        assert_eq!(absolute(400, before), (4 << STAMP_BITS) + 400);
        assert_eq!(absolute(400, 500), 400);
    }

    #[test]
    fn losses_are_counted_or_known_unknown() {
        let missed = |flags, behind: &[u8]| {
            let page = page(0, flags, &[&header(1, 0), b"data"], behind);
            SubBufferCursor::new(&page, SubBufferLayout::le64(4096)).unwrap().missed()
        };
        assert_eq!(missed(0, &[]), MissedEvents::No);
        assert_eq!(missed(MISSED_EVENTS, &[]), MissedEvents::Unknown);
        assert_eq!(missed(MISSED_EVENTS | MISSED_STORED, &123u64.to_le_bytes()), MissedEvents::Count(123));
    }

    #[test]
    fn damage_ends_the_page_and_says_where() {
        let cut = page(0, 0, &[&header(1, 1), b"good", &header(28, 1), b"too short"], &[]);
        let (good, error) = records(&cut);
        assert_eq!(good.len(), 1);
        assert_eq!(error.unwrap().offset, 24);
        let (_, error) = records(&page(0, 0, &[&header(0, 1), &3u32.to_le_bytes()], &[]));
        assert!(error.unwrap().what.contains("shorter"));
        let long = page(0, 0, &[&header(1, 1), b"good"], &[]);
        assert!(SubBufferCursor::new(&long[..20], SubBufferLayout::le64(4096)).is_err());
        assert!(SubBufferCursor::new(&long[..15], SubBufferLayout::le64(4096)).is_err());
    }
}
