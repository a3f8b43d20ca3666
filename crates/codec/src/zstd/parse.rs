//! What a search for repeated bytes makes of a page.

use super::codes::Codes;
use crate::output::zeroed;

/// The only length of page.
pub(crate) const PAGE: usize = 4096;
/// The shortest match that the format has.
pub(crate) const MIN_MATCH: usize = 3;

/// More than any page has, as each match covers at least [`MIN_MATCH`] bytes.
pub(crate) const MAX_SEQUENCES: usize = 2048;
/// Literals are written in steps of this many bytes.
const STEP: usize = 32;

/// A page as sequences (some literals, then a copy of earlier bytes) and the literals of all of them; literals without
/// a sequence end the page.
///
/// Sequences are coded as they are added: a search waits for wrong guesses much of the time, which this fills.
pub(crate) struct Parse {
    pub(crate) codes: Codes,
    literals: Box<[u8; PAGE + STEP]>,
    literal_count: usize,
}

impl Parse {
    pub(crate) fn new() -> Self {
        Self { codes: Codes::new(), literals: zeroed(), literal_count: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.codes.clear();
        self.literal_count = 0;
    }

    pub(crate) fn literals(&self) -> &[u8] {
        &self.literals[..self.literal_count]
    }

    /// Adds `count` literals that are at `from` of the page.
    #[inline(always)]
    pub(crate) fn add_literals(&mut self, page: &[u8; PAGE], from: usize, count: usize) {
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
