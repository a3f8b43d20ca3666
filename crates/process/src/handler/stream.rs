//! Memory from the kernel's pipe.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use pagehaul_codec::is_zero;
use pagehaul_elfcore::FILE_HEADER;

use crate::arena::{Arena, Slice};
use crate::populated::Run;
use crate::tiler::{Content, TILE_SIZE, Tile};

/// A part of the stream: bytes that go to the core, and bytes behind them that do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) kept: u64,
    pub(super) skipped: u64,
}

/// Hands out the tiles of a core that comes through a pipe, in order.
pub(super) struct StreamTiler {
    input: File,
    head: Vec<u8>,
    parts: VecDeque<Part>,
    /// Bytes of the core. `None` if only the end of the stream shows.
    size: Option<u64>,
    /// Bytes of a whole core, at least.
    least: u64,
    at: u64,
    number: u64,
    arena: Arc<Arena>,
    /// The room of a tile of zeros, for the next one: given back, it would be free only when all older tiles are.
    spare: Option<Slice>,
    /// Whether the stream has ended.
    ended: bool,
}

impl StreamTiler {
    /// For a core that starts with `head`, behind which `input` has the parts. Without a size, it has all that comes.
    pub(super) fn new(
        input: File,
        head: Vec<u8>,
        parts: Vec<Part>,
        size: Option<u64>,
        arena: Arc<Arena>,
    ) -> Self {
        let least = size.unwrap_or(0);
        Self {
            input,
            head,
            parts: parts.into(),
            size,
            least,
            at: 0,
            number: 0,
            arena,
            spare: None,
            ended: false,
        }
    }

    /// A stream of unknown length that ends before this many bytes is not whole.
    pub(super) fn at_least(self, bytes: u64) -> Self {
        Self { least: bytes, ..self }
    }

    /// Bytes of the core so far.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Whether all of the core has come.
    pub(super) fn is_whole(&self) -> bool {
        self.at >= self.least
    }

    /// Returns the next tile; blocks until there is room for it, and until it has come. Returns `None` at the end of the
    /// core or of the stream, or once the arena is closed.
    pub(super) fn next(&mut self) -> io::Result<Option<Tile>> {
        let head = self.head.len() as u64;
        let start = self.at;
        let (end, content) = if start < head {
            // The file header comes alone: it is written again at the end.
            let end = if start == 0 { FILE_HEADER.min(head) } else { head.min(start + TILE_SIZE) };
            let bytes = self.head.get(start as usize..end as usize).unwrap_or_default().to_vec();
            (end, Content::Bytes(bytes))
        } else {
            let wanted = self.size.map_or(TILE_SIZE, |size| size.saturating_sub(start).min(TILE_SIZE));
            if wanted == 0 || self.ended {
                return Ok(None);
            }
            let spare = self.spare.take().filter(|spare| spare.len() as u64 == wanted);
            let Some(slice) = spare.or_else(|| self.arena.take(wanted as usize)) else { return Ok(None) };
            let Some(tile) = self.fill(slice)? else { return Ok(None) };
            tile
        };
        self.at = end;
        let number = self.number;
        self.number += 1;
        Ok(Some(Tile { number, range: start..end, content }))
    }

    /// Fills a tile. A stream that ends within it gives a shorter one.
    fn fill(&mut self, mut slice: Slice) -> io::Result<Option<(u64, Content)>> {
        let mut filled = 0;
        while filled < slice.len() && !self.ended {
            let rest = &mut slice[filled..];
            match self.parts.front_mut() {
                None if self.size.is_some() => break,
                None => filled += read(&mut self.input, rest, &mut self.ended)?,
                Some(part) if part.kept > 0 => {
                    let most = part.kept.min(rest.len() as u64) as usize;
                    let count = read(&mut self.input, &mut rest[..most], &mut self.ended)?;
                    part.kept -= count as u64;
                    filled += count;
                }
                Some(part) => {
                    let skipped = part.skipped;
                    self.parts.pop_front();
                    io::copy(&mut (&self.input).take(skipped), &mut io::sink())?;
                }
            }
        }
        if filled == 0 {
            return Ok(None);
        }
        let end = self.at + filled as u64;
        if is_zero(&slice[..filled]) {
            self.spare = Some(slice);
            return Ok(Some((end, Content::Hole)));
        }
        if filled < slice.len() {
            return Ok(Some((end, Content::Bytes(slice[..filled].to_vec()))));
        }
        Ok(Some((end, Content::Pages(vec![Run { range: self.at..end, address: 0 }], slice))))
    }
}

/// Reads as much as comes, up to the end of `buffer`; notes the end of the stream.
fn read(input: &mut File, buffer: &mut [u8], ended: &mut bool) -> io::Result<usize> {
    loop {
        match input.read(buffer) {
            Ok(0) => *ended = true,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
            Ok(count) => return Ok(count),
        }
        return Ok(0);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;
    use crate::reserved::HUGE;
    use proptest::prelude::*;

    /// All bytes of the tiles, in order.
    fn tiles(tiler: &mut StreamTiler) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some(tile) = tiler.next().unwrap() {
            assert_eq!(tile.range.start, out.len() as u64);
            match tile.content {
                Content::Bytes(bytes) => out.extend(bytes),
                Content::Pages(runs, slice) => {
                    assert_eq!(runs, [Run { range: tile.range.clone(), address: 0 }]);
                    out.extend(&*slice);
                }
                Content::Hole => out.resize(tile.range.end as usize, 0),
            }
            assert_eq!(tile.range.end, out.len() as u64);
        }
        out
    }

    fn input(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file.rewind().unwrap();
        file
    }

    proptest! {
        #[test]
        fn kept_parts_follow_the_head(
            parts in proptest::collection::vec((0u64..1_500_000, 0u64..70_000), 0..6),
            missing in prop::sample::select(vec![0usize, 1, 5000, 2_000_000]),
            zeros: bool,
        ) {
            let arena = Arena::new(2 * HUGE).unwrap();
            let head = vec![1; 200];
            let (mut stream, mut expected) = (Vec::new(), head.clone());
            for (index, (kept, skipped)) in parts.iter().enumerate() {
                let value = if zeros { 0 } else { index as u8 + 2 };
                stream.resize(stream.len() + *kept as usize, value);
                expected.resize(expected.len() + *kept as usize, value);
                stream.resize(stream.len() + *skipped as usize, 99);
            }
            let size = expected.len() as u64;
            let parts: Vec<Part> = parts.iter().map(|&(kept, skipped)| Part { kept, skipped }).collect();
            stream.truncate(stream.len().saturating_sub(missing));
            let mut tiler = StreamTiler::new(input(&stream), head, parts, Some(size), arena);
            let found = tiles(&mut tiler);
            prop_assert!(expected.starts_with(&found));
            prop_assert_eq!(tiler.is_whole(), found.len() as u64 == size);
            prop_assert!(missing > 0 || found == expected);
        }
    }

    #[test]
    fn a_stream_of_unknown_length_is_taken_to_its_end() {
        let arena = Arena::new(2 * HUGE).unwrap();
        let bytes = vec![3; 2_500_000];
        let mut tiler = StreamTiler::new(input(&bytes), vec![1; 10], Vec::new(), None, arena);
        assert_eq!(tiles(&mut tiler), [vec![1; 10], bytes].concat());
        assert!(tiler.is_whole());
    }
}
