//! Which pages of a process exist: never-touched ones are not read, since reading would make them exist.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::ops::Range;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::layout::{Content, Segment};
use crate::mapping::Mapping;
use crate::pagemap::Pagemap;
use crate::units::Pid;
use crate::units::page_size;

/// Bytes of addresses scanned at a time, which bounds the memory that the result takes.
const WINDOW: u64 = 256 << 20;

/// Adjacent pages that exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    /// Where they belong in the core.
    pub(crate) range: Range<u64>,
    /// Where they are in the process.
    pub(crate) address: u64,
}

/// Lists the existing pages of all segments in the order they have in the core.
pub(crate) struct Populated {
    pid: Pid,
    segments: Vec<Segment>,
    mappings: Vec<Mapping>,
    pagemap: Pagemap,
    /// Of a snapshot, the page tables of the process it is of: a fork has none for shared memory (`vma_needs_copy()`,
    /// mm/memory.c).
    shared: Option<Pagemap>,
    /// The segment being scanned, and the address up to which it is scanned.
    segment: usize,
    scanned: u64,
    found: VecDeque<Run>,
    /// The file behind the segment, if there is one that the system lets us open.
    file: Option<File>,
    /// Whether there is shared memory whose existing pages only root can find.
    pub(crate) blind: bool,
}

impl Populated {
    /// For the segments of a process with these mappings. With `shared`, these page tables are used for shared memory.
    pub(crate) fn new(
        pid: Pid,
        pagemap: Pagemap,
        shared: Option<Pagemap>,
        segments: Vec<Segment>,
        mappings: Vec<Mapping>,
    ) -> Self {
        let mut this = Self {
            pid,
            segments,
            mappings,
            pagemap,
            shared,
            segment: 0,
            scanned: 0,
            found: VecDeque::new(),
            file: None,
            blind: false,
        };
        this.enter();
        this
    }

    /// The next existing pages, left in place.
    pub(crate) fn peek(&mut self) -> io::Result<Option<&Run>> {
        while self.found.is_empty() {
            let Some(end) = self.segments.get(self.segment).map(|segment| segment.addresses.end) else {
                return Ok(None);
            };
            if self.scanned >= end {
                self.segment += 1;
                self.enter();
                continue;
            }
            self.scan()?;
        }
        Ok(self.found.front())
    }

    /// Takes up to `most` bytes of the next existing pages.
    pub(crate) fn take(&mut self, most: u64) -> io::Result<Option<Run>> {
        if self.peek()?.is_none() {
            return Ok(None);
        }
        let Some(front) = self.found.front_mut() else { return Ok(None) };
        let length = (front.range.end - front.range.start).min(most);
        let taken = Run { range: front.range.start..front.range.start + length, address: front.address };
        front.range.start += length;
        front.address += length;
        if front.range.is_empty() {
            self.found.pop_front();
        }
        Ok(Some(taken))
    }

    /// Begins with the segment whose turn it is.
    fn enter(&mut self) {
        self.file = None;
        if let Some(segment) = self.segments.get(self.segment) {
            self.scanned = segment.addresses.start;
            if matches!(segment.content, Content::Shared | Content::File) {
                let mapping = self.mappings.get(segment.mapping);
                self.file = mapping.and_then(|mapping| File::open(mapping.link(self.pid)).ok());
                self.blind |= self.file.is_none() && segment.content == Content::Shared;
            }
        }
    }

    /// Looks at the next window of addresses.
    fn scan(&mut self) -> io::Result<()> {
        let Some(segment) = self.segments.get(self.segment) else { return Ok(()) };
        let window = self.scanned..segment.addresses.end.min(self.scanned.saturating_add(WINDOW));
        let (base, offset) = (segment.addresses.start, segment.offset);
        let found = &mut self.found;
        let mut push = |addresses: Range<u64>| {
            let range = offset + (addresses.start - base)..offset + (addresses.end - base);
            match found.back_mut() {
                Some(last)
                    if last.range.end == range.start && last.address + last.len() == addresses.start =>
                {
                    last.range.end = range.end;
                }
                _ => found.push_back(Run { range, address: addresses.start }),
            }
        };
        let mapping = self.mappings.get(segment.mapping);
        let shift = mapping.map_or(0, |mapping| mapping.offset);
        self.scanned = match (segment.content, &self.file) {
            (Content::File, None) => {
                push(window.clone());
                window.end
            }
            // What the file has, and what the process has written where the file has nothing.
            (Content::File, Some(file)) => {
                let mut ranges = Vec::new();
                let scanned = self.pagemap.present(window.clone(), &mut |range| ranges.push(range))?;
                data_ranges(file, &(window.start..scanned), base, shift, &mut |range| ranges.push(range))?;
                ranges.sort_unstable_by_key(|range| range.start);
                let mut end = window.start;
                for range in ranges {
                    if range.end > end {
                        push(range.start.max(end)..range.end);
                        end = range.end;
                    }
                }
                scanned
            }
            (Content::Shared, Some(file)) => {
                data_ranges(file, &window, base, shift, &mut push)?;
                window.end
            }
            // Page tables have only the shared pages that this process has touched.
            _ => {
                let shared = self.shared.as_mut().filter(|_| mapping.is_some_and(Mapping::is_shared));
                shared.unwrap_or(&mut self.pagemap).present(window, &mut push)?
            }
        };
        Ok(())
    }
}

impl Run {
    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

/// The parts of a window that the file behind it has data for; beyond its end and in its holes there is nothing to read.
/// The mapping starts at `base` in memory and at `shift` in the file.
fn data_ranges(
    file: &File,
    window: &Range<u64>,
    base: u64,
    shift: u64,
    push: &mut impl FnMut(Range<u64>),
) -> io::Result<()> {
    let page_size = page_size();
    let to_file = |address: u64| address - base + shift;
    let end = to_file(window.end);
    let mut at = to_file(window.start);
    while at < end {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            // A file system without SEEK_DATA: all of the file is data.
            Err(_) => {
                let size = file.metadata()?.len().next_multiple_of(page_size);
                if at < size {
                    push(at - shift + base..size.min(end) - shift + base);
                }
                break;
            }
        };
        if start >= end {
            break;
        }
        let stop = seek(file, SeekFrom::Hole(start)).unwrap_or(end).next_multiple_of(page_size).min(end);
        let start = start / page_size * page_size;
        push(start - shift + base..stop - shift + base);
        at = stop.max(start + page_size);
    }
    Ok(())
}
