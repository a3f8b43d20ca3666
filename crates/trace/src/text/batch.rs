//! Lines of text, taken apart.

use std::sync::Arc;

use super::header::{LineHeader, LossNotice};
use super::line_format::LineFormat;
use crate::event::Value;

/// A piece of text, and what its lines say. Batches go round: their room is used again.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    /// Whole lines: what counts of `bytes`.
    pub(super) begin: usize,
    pub(super) end: usize,
    /// The events, in the order of their lines.
    pub(super) lines: Vec<Line>,
    /// The values of all events.
    pub(super) values: Vec<Value>,
    /// Lines that are no events but say something, and which event comes next.
    pub(super) notes: Vec<(usize, LossNotice)>,
    /// The kinds of events in this batch, in the order of their first lines.
    pub(super) formats: Vec<Arc<LineFormat>>,
}

/// An event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    /// Where the line begins.
    pub(super) start: usize,
    pub(super) head: LineHeader,
    /// Its kind: a place in the batch's formats.
    pub(super) format: usize,
    /// Its first value, and how many it has.
    pub(super) first: usize,
    pub(super) count: usize,
}

impl Batch {
    /// The lines.
    pub(super) fn text(&self) -> &[u8] {
        self.bytes.get(self.begin..self.end).unwrap_or_default()
    }

    /// Nothing was found in the lines.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.notes.is_empty()
    }
}
