//! Text in pieces: read a megabyte at a time, cut at the end of a line.

use super::head::{Head, Note};
use crate::event::Value;
use crate::{EventFormat, Input, TraceError};

/// Bytes read at a time. A line that is longer is left out.
pub(super) const CHUNK: usize = 1 << 20;

/// Lines of text, and what they say. Batches go round: their room is used again.
#[derive(Default)]
pub(super) struct Batch {
    /// The text; what counts of it is `len` bytes.
    pub(super) bytes: Vec<u8>,
    pub(super) len: usize,
    /// The events, in the order of their lines.
    pub(super) lines: Vec<Line>,
    /// The values of all events.
    pub(super) values: Vec<Value>,
    /// Lines that are no events but say something, and which event comes next.
    pub(super) notes: Vec<(usize, Note)>,
    /// Kinds of events that no batch before had, in the order of their numbers.
    pub(super) formats: Vec<EventFormat>,
    /// Events whose kind could not be learned.
    pub(super) unknown: u64,
}

/// An event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    /// Where the line begins.
    pub(super) start: usize,
    pub(super) head: Head,
    /// The number of its format.
    pub(super) format: usize,
    /// Its first value, and how many it has.
    pub(super) first: usize,
    pub(super) count: usize,
}

/// Reads on and on.
pub(super) struct Chunks {
    input: Input,
    offset: u64,
    /// The begin of a line whose end was not read yet.
    tail: Vec<u8>,
}

impl Chunks {
    pub(super) fn new(input: Input) -> Self {
        Self { input, offset: 0, tail: Vec::new() }
    }

    /// Whether all was read.
    pub(super) fn at_end(&self) -> bool {
        self.tail.is_empty() && self.offset >= self.input.len()
    }

    /// Fills a batch with whole lines; false at the end.
    pub(super) fn fill(&mut self, batch: &mut Batch) -> Result<bool, TraceError> {
        batch.bytes.resize(CHUNK, 0);
        loop {
            let held = self.tail.len();
            batch.bytes[..held].copy_from_slice(&self.tail);
            self.tail.clear();
            let count = self.input.read_at(self.offset, &mut batch.bytes[held..])?;
            self.offset += count as u64;
            let text = &batch.bytes[..held + count];
            if text.len() < CHUNK {
                // The end of the file, with the end of its last line or without.
                batch.len = text.len();
                return Ok(!text.is_empty());
            }
            if let Some(end) = memchr::memrchr(b'\n', text) {
                self.tail.extend_from_slice(&text[end + 1..]);
                batch.len = end + 1;
                return Ok(true);
            }
        }
    }
}
