//! Divides a core into tiles: the headers, pages, and the holes between them.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use pagehaul_elfcore::FILE_HEADER;

use crate::arena::{Arena, Slice};
use crate::populated::{Populated, Run};
use crate::seekable::MAX_ZEROS;
use crate::units::PAGE;

/// Bytes of a core that are packed together, and one frame of a compressed core. Tiles of pages start at multiples of it
/// behind the headers, so that the same memory gives the same file at any number of threads.
pub(crate) const TILE_SIZE: u64 = 1 << 20;

/// A part of the core, numbered in its order.
pub(crate) struct Tile {
    pub(crate) number: u64,
    pub(crate) range: Range<u64>,
    pub(crate) content: Content,
}

/// What is in a tile.
pub(crate) enum Content {
    /// These bytes.
    Bytes(Vec<u8>),
    /// Zeros.
    Hole,
    /// Pages of the process, one after the other in the slice; zeros between them.
    Pages(Vec<Run>, Slice),
}

/// Hands out the tiles of a core in order.
pub(crate) struct Tiler {
    populated: Populated,
    head: Vec<u8>,
    size: u64,
    /// Everything before it is handed out.
    at: u64,
    number: u64,
    arena: Arc<Arena>,
}

impl Tiler {
    /// For a core of `size` bytes that starts with `head`.
    pub(crate) fn new(populated: Populated, head: Vec<u8>, size: u64, arena: Arc<Arena>) -> Self {
        Self { populated, head, size, at: 0, number: 0, arena }
    }

    /// Returns the next tile, with room for its pages; blocks until there is room. Returns `None` at the end, or once the
    /// arena is closed.
    pub(crate) fn next(&mut self) -> io::Result<Option<Tile>> {
        if self.at >= self.size {
            return Ok(None);
        }
        let start = self.at;
        let head = self.head.len() as u64;
        let (end, content) = if start < head {
            // The file header comes alone: it is written again at the end.
            let end = if start == 0 { FILE_HEADER } else { head.min(start + TILE_SIZE) };
            let bytes = self.head.get(start as usize..end as usize).unwrap_or_default().to_vec();
            (end, Content::Bytes(bytes))
        } else {
            let limit = self.size;
            let next = self.populated.peek()?.map_or(limit, |run| run.range.start.min(limit));
            // Where the tile of the next page starts.
            let tile = if next < limit { head + (next - head) / TILE_SIZE * TILE_SIZE } else { limit };
            if tile > start {
                (tile.min(start + MAX_ZEROS), Content::Hole)
            } else {
                let end = limit.min(start + TILE_SIZE);
                let Some(content) = self.pages(end)? else { return Ok(None) };
                (end, content)
            }
        };
        self.at = end;
        let number = self.number;
        self.number += 1;
        Ok(Some(Tile { number, range: start..end, content }))
    }

    fn pages(&mut self, end: u64) -> io::Result<Option<Content>> {
        let mut runs: Vec<Run> = Vec::new();
        let mut bytes = 0;
        while let Some(next) = self.populated.peek()?.map(|run| run.range.start)
            && next < end
        {
            let Some(run) = self.populated.take(end - next)? else { break };
            bytes += run.range.end - run.range.start;
            runs.push(run);
        }
        debug_assert!(bytes.is_multiple_of(PAGE));
        Ok(self.arena.take(bytes as usize).map(|slice| Content::Pages(runs, slice)))
    }

    /// Returns whether there is shared memory whose existing pages only root can find.
    pub(crate) fn is_blind(&self) -> bool {
        self.populated.blind
    }
}
