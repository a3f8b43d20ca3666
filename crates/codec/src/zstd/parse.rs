//! The parse of a page: what a match finder makes of it.

use super::codes::CodedSequences;
use super::limits::PAGE;
use crate::common::zeroed;

/// Literals are copied in steps of this many bytes.
const STEP: usize = 32;

/// A page as sequences (some literals, then a match) and the literals of all of them. Literals may follow the
/// last sequence.
///
/// Sequences are coded as they are added: that work fills the time in which the match finder waits for
/// mispredicted branches.
pub(super) struct Parse {
    pub(super) sequences: CodedSequences,
    literals: Box<[u8; PAGE + STEP]>,
    literal_count: usize,
}

impl Parse {
    pub(super) fn new() -> Self {
        Self { sequences: CodedSequences::new(), literals: zeroed(), literal_count: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.sequences.clear();
        self.literal_count = 0;
    }

    pub(super) fn literals(&self) -> &[u8] {
        &self.literals[..self.literal_count]
    }

    /// Adds `count` literals from index `from` of the page.
    #[inline(always)]
    pub(super) fn add_literals(&mut self, page: &[u8; PAGE], from: usize, count: usize) {
        let at = self.literal_count;
        self.literal_count += count;
        let mut done = 0;
        loop {
            let at = (at + done) % PAGE;
            if let Some(step) = page.get(from + done..from + done + STEP) {
                self.literals[at..at + STEP].copy_from_slice(step);
            } else {
                let rest = page.get(from + done..).unwrap_or(&[]);
                self.literals[at..at + rest.len()].copy_from_slice(rest);
            }
            done += STEP;
            if done >= count {
                break;
            }
        }
    }
}
