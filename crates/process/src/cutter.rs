//! A core cut into jobs: the head, tiles with pages in them, and what is between.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::PAGE;
use crate::arena::{Arena, Slice};
use crate::populated::Populated;
use crate::seekable::MOST_ZEROS;

/// Bytes of a core that are packed together, and one frame of a compressed core. Tiles start at fixed places, so that
/// the same memory gives the same file at any number of threads.
pub(crate) const TILE: u64 = 1 << 20;

/// Existing pages of a tile, one after the other in the tile's slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    /// Where they belong in the core.
    pub(crate) range: Range<u64>,
    /// Where they are in the process.
    pub(crate) address: u64,
}

/// A part of the core, numbered in its order.
pub(crate) struct Job {
    pub(crate) number: u64,
    pub(crate) range: Range<u64>,
    pub(crate) content: Content,
}

/// What is in a part of the core.
pub(crate) enum Content {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Zeros.
    Hole,
    /// Pages of the process, zeros between them.
    Pages(Vec<Run>, Slice),
}

/// Cuts.
pub(crate) struct Cutter {
    populated: Populated,
    head: Vec<u8>,
    size: u64,
    /// Everything before it was given out.
    at: u64,
    number: u64,
    arena: Arc<Arena>,
}

impl Cutter {
    /// For a core with this head, `size` bytes in all.
    pub(crate) fn new(populated: Populated, head: Vec<u8>, size: u64, arena: Arc<Arena>) -> Self {
        Self { populated, head, size, at: 0, number: 0, arena }
    }

    /// The next job, with room for its pages; waits for room where there is none. None at the end, or when the arena
    /// was closed.
    pub(crate) fn next(&mut self) -> io::Result<Option<Job>> {
        if self.at >= self.size {
            return Ok(None);
        }
        let start = self.at;
        let head = self.head.len() as u64;
        let (end, content) = if start < head {
            // The file header comes alone: it is written again at the end.
            let end = if start == 0 { crate::elf::FILE_HEADER as u64 } else { head.min(start + TILE) };
            let bytes = self.head.get(start as usize..end as usize).unwrap_or_default().to_vec();
            (end, Content::Bytes(bytes))
        } else {
            let limit = self.size;
            let next = self.populated.peek()?.map_or(limit, |stretch| stretch.range.start.min(limit));
            // The tile in which the next page is.
            let tile = if next < limit { head + (next - head) / TILE * TILE } else { limit };
            if tile > start {
                (tile.min(start + MOST_ZEROS), Content::Hole)
            } else {
                let end = limit.min(start + TILE);
                let Some(content) = self.pages(end)? else { return Ok(None) };
                (end, content)
            }
        };
        self.at = end;
        let number = self.number;
        self.number += 1;
        Ok(Some(Job { number, range: start..end, content }))
    }

    fn pages(&mut self, end: u64) -> io::Result<Option<Content>> {
        let mut runs: Vec<Run> = Vec::new();
        let mut bytes = 0;
        while let Some(next) = self.populated.peek()?.map(|stretch| stretch.range.start)
            && next < end
        {
            let Some(stretch) = self.populated.take(end - next)? else { break };
            bytes += stretch.range.end - stretch.range.start;
            runs.push(Run { range: stretch.range, address: stretch.address });
        }
        debug_assert!(bytes.is_multiple_of(PAGE));
        Ok(self.arena.take(bytes as usize).map(|slice| Content::Pages(runs, slice)))
    }

    /// Whether shared memory was seen that cannot be looked into.
    pub(crate) fn is_blind(&self) -> bool {
        self.populated.blind
    }
}
