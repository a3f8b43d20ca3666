//! Packing: a part of the core in, what stands in the file for it out.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use pagehaul_codec::{FrameCompressor, is_zero};

use crate::cutter::{Content, Run, TILE};
use crate::{PAGE, ProcessError};

/// What the file is made of.
#[derive(Clone, Copy)]
pub(crate) enum Layout<'a> {
    /// The core itself, each part written where it belongs, by whoever has it; pages of zeros are holes.
    Sparse(&'a File),
    /// The core itself, from its first byte to its last.
    Plain,
    /// zstd frames of this level.
    Frames(i32),
}

/// A part of the core, ready for the file.
pub(crate) struct Packed {
    pub(crate) number: u64,
    /// Bytes of the core it stands for.
    pub(crate) length: u64,
    /// What to append to the file: `buffer`, or zeros.
    pub(crate) is_hole: bool,
    /// Travels to the writer and back.
    pub(crate) buffer: Vec<u8>,
    pub(crate) counts: Counts,
}

/// What became of pages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Bytes of pages that exist in the process.
    pub(crate) pages: u64,
    /// Of these, pages of zeros, where they were looked for.
    pub(crate) zeros: u64,
    /// Bytes written, where that was done already.
    pub(crate) written: u64,
}

/// One packing thread.
pub(crate) struct Packer<'a> {
    layout: Layout<'a>,
    compressor: Option<FrameCompressor>,
    /// A tile with its holes filled in.
    scratch: Vec<u8>,
}

impl<'a> Packer<'a> {
    pub(crate) fn new(layout: Layout<'a>) -> Result<Self, ProcessError> {
        let compressor = match layout {
            Layout::Frames(level) => Some(FrameCompressor::new(level).map_err(|error| {
                ProcessError::Resource { action: "set up compression", source: io::Error::other(error) }
            })?),
            _ => None,
        };
        Ok(Self { layout, compressor, scratch: Vec::with_capacity(TILE as usize) })
    }

    /// Packs one part. Fails only where parts are written here.
    pub(crate) fn pack(
        &mut self,
        range: Range<u64>,
        content: Content,
        mut buffer: Vec<u8>,
    ) -> io::Result<Packed> {
        buffer.clear();
        let mut packed = Packed {
            number: 0,
            length: range.end - range.start,
            is_hole: matches!(content, Content::Hole),
            buffer,
            counts: Counts::default(),
        };
        let out = &mut packed.buffer;
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
        Ok(packed)
    }
}

fn compress(compressor: &mut Option<FrameCompressor>, content: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
    match compressor {
        Some(compressor) => compressor.compress(content, out).map_err(io::Error::other),
        None => Ok(()),
    }
}

/// Appends a tile to `out`: pages where they belong, zeros between.
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

/// Writes the pages that are not zeros to where they belong, neighbours together.
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
