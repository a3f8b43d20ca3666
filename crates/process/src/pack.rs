//! Packing: from a tile to what stands for it in the file.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use pagehaul_codec::{CodecError, FrameCompressor, is_zero};
use pagehaul_output::WriteError;
use pagehaul_run::Outcome;

use crate::populated::Run;
use crate::tiler::{Content, TILE_SIZE, Tile};
use crate::units::PAGE;

/// What the output is made of.
#[derive(Clone, Copy)]
pub(crate) enum Layout<'a> {
    /// Plain ELF in a file: packing threads write tiles at their offsets, and pages of zeros are holes.
    Sparse(&'a File),
    /// Plain ELF in a stream, from its first byte to its last.
    Plain,
    /// zstd frames of this level.
    Frames(i32),
}

/// A tile, before and after it is packed.
#[derive(Default)]
pub(crate) struct Packed {
    /// `None` once it is packed.
    pub(crate) tile: Option<Tile>,
    /// Bytes of the core.
    pub(crate) length: u64,
    /// Whether it is zeros, and `buffer` is empty.
    pub(crate) is_hole: bool,
    /// What to append to the file.
    pub(crate) buffer: Vec<u8>,
    pub(crate) counts: Counts,
}

/// Why a tile cannot be packed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PackError {
    /// Its part of a sparse file cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
    #[error(transparent)]
    Codec(#[from] CodecError),
}

impl PackError {
    /// Returns the outcome of a core that this failure ends. Messages call the output `name`.
    pub(crate) fn outcome(self, name: &str) -> Outcome {
        match self {
            Self::Write(error) => WriteError::from(error).outcome(name),
            Self::Codec(error) => Outcome::WriteFailed(error.to_string()),
        }
    }
}

/// Bytes of tiles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Pages that exist in the process.
    pub(crate) pages: u64,
    /// Of these, pages of zeros; counted in sparse files only.
    pub(crate) zeros: u64,
    /// Bytes already in the file.
    pub(crate) written: u64,
}

/// Packs tiles. Belongs to one thread.
pub(crate) struct Packer<'a> {
    layout: Layout<'a>,
    /// For frames.
    compressor: Option<FrameCompressor>,
    /// A tile with its holes filled in.
    scratch: Vec<u8>,
}

impl<'a> Packer<'a> {
    pub(crate) fn new(layout: Layout<'a>) -> Result<Self, CodecError> {
        let compressor = match layout {
            Layout::Frames(level) => Some(FrameCompressor::new(level)?),
            _ => None,
        };
        Ok(Self { layout, compressor, scratch: Vec::with_capacity(TILE_SIZE as usize) })
    }

    /// Packs the tile in `packed`.
    pub(crate) fn pack(&mut self, packed: &mut Packed) -> Result<(), PackError> {
        let Some(Tile { range, content, .. }) = packed.tile.take() else { return Ok(()) };
        packed.length = range.end - range.start;
        packed.is_hole = matches!(content, Content::Hole);
        packed.counts = Counts::default();
        let out = &mut packed.buffer;
        out.clear();
        match (self.layout, content) {
            (_, Content::Hole) => {}
            (Layout::Sparse(file), Content::Bytes(bytes)) => {
                file.write_all_at(&bytes, range.start)?;
                packed.counts.written = bytes.len() as u64;
            }
            (Layout::Sparse(file), Content::Pages(runs, slice)) => {
                packed.counts = write_pages(file, &runs, &slice)?;
            }
            (Layout::Plain, Content::Bytes(bytes)) => out.extend(bytes),
            (Layout::Plain, Content::Pages(runs, slice)) => {
                packed.counts.pages = slice.len() as u64;
                spread(&range, &runs, &slice, out);
            }
            (Layout::Frames(_), Content::Bytes(bytes)) if range.start == 0 => {
                out.extend(crate::seekable::raw_frame(&bytes));
            }
            (Layout::Frames(_), Content::Bytes(bytes)) => compress(&mut self.compressor, &bytes, out)?,
            (Layout::Frames(_), Content::Pages(runs, slice)) => {
                packed.counts.pages = slice.len() as u64;
                if slice.len() as u64 == packed.length {
                    compress(&mut self.compressor, &slice, out)?;
                } else {
                    self.scratch.clear();
                    spread(&range, &runs, &slice, &mut self.scratch);
                    compress(&mut self.compressor, &self.scratch, out)?;
                }
            }
        }
        Ok(())
    }
}

fn compress(
    compressor: &mut Option<FrameCompressor>,
    content: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), CodecError> {
    compressor.as_mut().map_or(Ok(()), |compressor| compressor.compress(content, out))
}

/// Appends a tile to `out`: pages at their offsets, zeros between them.
fn spread(range: &Range<u64>, runs: &[Run], mut pages: &[u8], out: &mut Vec<u8>) {
    let base = out.len();
    for run in runs {
        out.resize(base + (run.range.start - range.start) as usize, 0);
        let length = ((run.range.end - run.range.start) as usize).min(pages.len());
        let (these, rest) = pages.split_at(length);
        out.extend_from_slice(these);
        pages = rest;
    }
    out.resize(base + (range.end - range.start) as usize, 0);
}

/// Writes the pages that are not zeros at their offsets, adjacent ones together.
fn write_pages(file: &File, runs: &[Run], pages: &[u8]) -> io::Result<Counts> {
    let mut counts = Counts { pages: pages.len() as u64, ..Counts::default() };
    let mut rest = pages;
    for run in runs {
        let length = ((run.range.end - run.range.start) as usize).min(rest.len());
        let (run_pages, after) = rest.split_at(length);
        rest = after;
        let mut pending = 0..0;
        for (index, page) in run_pages.chunks(PAGE as usize).enumerate() {
            let at = index * PAGE as usize;
            if !is_zero(page) {
                if pending.is_empty() {
                    pending.start = at;
                }
                pending.end = at + page.len();
                continue;
            }
            counts.zeros += PAGE;
            flush(file, run, run_pages, &mut pending, &mut counts)?;
        }
        flush(file, run, run_pages, &mut pending, &mut counts)?;
    }
    Ok(counts)
}

fn flush(
    file: &File,
    run: &Run,
    pages: &[u8],
    pending: &mut Range<usize>,
    counts: &mut Counts,
) -> io::Result<()> {
    if let Some(bytes) = pages.get(pending.clone()).filter(|bytes| !bytes.is_empty()) {
        file.write_all_at(bytes, run.range.start + pending.start as u64)?;
        counts.written += bytes.len() as u64;
    }
    *pending = 0..0;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_files_read_as_the_tile_and_have_holes_for_zeros() {
        let file = tempfile::tempfile().unwrap();
        let mut pages = vec![0u8; 5 * PAGE as usize];
        for index in [0, 1, 4] {
            pages[index * PAGE as usize + 17] = 7;
        }
        let runs =
            [Run { range: 2 * PAGE..5 * PAGE, address: 0 }, Run { range: 6 * PAGE..8 * PAGE, address: 0 }];
        let counts = write_pages(&file, &runs, &pages).unwrap();
        assert_eq!(counts, Counts { pages: 5 * PAGE, zeros: 2 * PAGE, written: 3 * PAGE });
        let mut whole = Vec::new();
        spread(&(0..8 * PAGE), &runs, &pages, &mut whole);
        let mut read = vec![0; whole.len()];
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read == whole);
    }
}
