//! Parsed lines of text.

use std::sync::Arc;

use super::header::{LineHeader, LossNotice};
use super::line_format::LineFormat;
use crate::event::Value;

/// A chunk of text and its parsed lines. Batches are reused.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) bytes: Vec<u8>,
    /// The whole lines of the chunk are `bytes[begin..end]`.
    pub(super) begin: usize,
    pub(super) end: usize,
    /// Events in line order.
    pub(super) lines: Vec<Line>,
    /// Values of all events.
    pub(super) values: Vec<Value>,
    /// Loss notices, each with the index of the event that follows it.
    pub(super) notes: Vec<(usize, LossNotice)>,
    /// Line formats in this batch, in order of first use.
    pub(super) formats: Vec<Arc<LineFormat>>,
}

/// An event.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    /// Offset of the line.
    pub(super) start: usize,
    pub(super) header: LineHeader,
    /// Index of its line format in the batch.
    pub(super) format: usize,
    /// Index of its first value, and the number of values.
    pub(super) first: usize,
    pub(super) count: usize,
}

impl Batch {
    /// Returns the whole lines.
    pub(super) fn text(&self) -> &[u8] {
        self.bytes.get(self.begin..self.end).unwrap_or_default()
    }

    /// Returns whether no line is an event or a loss notice.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.notes.is_empty()
    }
}
