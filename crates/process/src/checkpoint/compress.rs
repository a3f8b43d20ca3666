//! Compressing images, and writing them to the container.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Mutex, OnceLock, PoisonError};

use crossbeam_channel::Receiver;
use pagehaul_codec::FrameCompressor;
use pagehaul_pool::{Lane, Ticket, Work};
use pagehaul_run::{Phase, Progress};

use super::base::{self, Base, Part, compare};
use super::chain::Reader;
use super::container::{self, Block, Origin, Run};
use super::images::Piece;
use super::writer::Writer;
use crate::arena::Arena;
use crate::error::ProcessError;

/// Pieces by their image and their number in it.
pub(crate) type Packed = BTreeMap<(usize, usize), PackedPiece>;

/// A piece in the container.
pub(crate) struct PackedPiece {
    /// None if all of it is in the base.
    pub(crate) block: Option<Block>,
    pub(crate) runs: Vec<Run>,
}

/// The work of the compressing threads.
pub(crate) struct Compressing<'a> {
    pub(crate) level: i32,
    pub(crate) arena: &'a Arena,
    pub(crate) progress: &'a Progress,
    /// The number of the next piece, and where it comes from.
    pub(crate) pieces: Mutex<(u64, Receiver<Piece>)>,
    pub(crate) base: Option<&'a Base>,
    /// By image: what may be in the base. Known once CRIU is done; what is compressed before is written whole.
    pub(crate) common: OnceLock<HashMap<usize, Vec<Part>>>,
}

/// What a compressing thread has.
#[derive(Default)]
pub(crate) struct Packer<'a> {
    compressor: Option<FrameCompressor>,
    reader: Option<Reader<'a>>,
    /// Room for bytes of the base, and those that it does not have.
    old: Vec<u8>,
    own: Vec<u8>,
}

/// A piece, before and after it is compressed.
#[derive(Default)]
pub(crate) struct Compressed {
    /// `None` once it is compressed.
    piece: Option<Piece>,
    place: (usize, usize),
    bytes: usize,
    runs: Vec<Run>,
    frame: Vec<u8>,
    /// Room for a piece that is put together.
    room: Vec<u8>,
}

impl<'a> Work for Compressing<'a> {
    type Buffer = Compressed;
    type Worker = Packer<'a>;
    type Error = ProcessError;

    fn next(&self, compressed: &mut Compressed) -> Option<Ticket> {
        // While processes are frozen, every CPU is better spent on reading their memory.
        self.arena.wait_until_needed();
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        compressed.piece = pieces.1.recv().ok().filter(|_| !self.progress.is_cancelled());
        let ticket = compressed.piece.as_ref().map(|_| Ticket::number(pieces.0));
        pieces.0 += 1;
        ticket
    }

    fn run(&self, packer: &mut Packer<'a>, compressed: &mut Compressed) -> Result<(), ProcessError> {
        let Some(piece) = compressed.piece.take() else { return Ok(()) };
        let Packer { compressor, reader, old, own } = packer;
        let content = piece.content(&mut compressed.room);
        compressed.place = piece.place();
        let in_base = piece.in_base();
        let content = match (self.base, self.common.get().and_then(|common| common.get(&piece.place().0))) {
            (Some(base), Some(parts)) => {
                let reader = match reader {
                    Some(reader) => reader,
                    None => reader.insert(base.reader()?),
                };
                compressed.runs =
                    compare(reader, parts, piece.start(), content, in_base.as_deref(), old, own)?;
                own.as_slice()
            }
            _ if in_base.is_some_and(|parts| !parts.is_empty()) => return Err(base::lacks_pages()),
            _ => {
                let spilled = piece.spilled();
                compressed.runs = without(&spilled, piece.start(), content, own);
                if spilled.is_empty() { content } else { own.as_slice() }
            }
        };
        compressed.bytes = content.len();
        if content.is_empty() {
            return Ok(());
        }
        let compressor = match compressor {
            Some(compressor) => compressor,
            None => compressor.insert(FrameCompressor::new(self.level)?),
        };
        Ok(compressor.compress(content, &mut compressed.frame)?)
    }

    fn abort(&self) {
        self.arena.close();
    }
}

/// Leaves those bytes of a block, which begins at `start`, in `own` that are not in the container yet, and returns the runs of which it
/// consists. Some parts were `spilled` before: in order, each with where it begins in what was spilled.
fn without(spilled: &[(Range<u64>, u64)], start: u64, content: &[u8], own: &mut Vec<u8>) -> Vec<Run> {
    own.clear();
    let (mut runs, mut at, end) = (Vec::new(), start, start + content.len() as u64);
    let mut keep = |range: Range<u64>, runs: &mut Vec<Run>| {
        let bytes = (range.start - start) as usize..(range.end - start) as usize;
        own.extend_from_slice(content.get(bytes).unwrap_or_default());
        base::push(runs, Run { bytes: range.end - range.start, from: Origin::Next });
    };
    for (part, held) in spilled {
        keep(at..part.start, &mut runs);
        base::push(&mut runs, Run { bytes: part.end - part.start, from: Origin::Held(*held) });
        at = part.end;
    }
    keep(at..end, &mut runs);
    runs
}

/// Ends all that wait for room in the arena when it is dropped: without the writer, nothing makes room.
struct Closing<'a>(&'a Arena);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Compressing<'_> {
    /// Writes the compressed pieces. Returns what became of them.
    pub(crate) fn write(
        &self,
        mut lane: Lane<Self>,
        writer: &mut Writer,
        failed: impl FnOnce(std::io::Error) -> ProcessError,
    ) -> Result<Packed, ProcessError> {
        let _closing = Closing(self.arena);
        let mut packed = Packed::new();
        while let Some(compressed) = lane.recv() {
            let Compressed { place, bytes, runs, frame, .. } = compressed?;
            let runs = std::mem::take(runs);
            let content = runs.iter().map(|run| run.bytes).sum();
            let mut block = None;
            if *bytes > 0 {
                let offset = match writer.append(frame) {
                    Ok(offset) => offset,
                    Err(error) => return Err(failed(error)),
                };
                let (stored, checksum) = (frame.len() as u32, container::checksum(frame));
                block = Some(Block { offset, stored, bytes: *bytes as u32, checksum });
            }
            packed.insert(*place, PackedPiece { block, runs });
            self.progress.advance(Phase::Pack, content);
        }
        Ok(packed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_spilled_is_left_out() {
        let (content, mut own) = ([1, 2, 3, 4, 5, 6], Vec::new());
        let run = |bytes, from| Run { bytes, from };
        let spilled = [(100..101, 7), (102..103, 50), (103..105, 51)];
        let runs = without(&spilled, 100, &content, &mut own);
        let (next, held) = (Origin::Next, Origin::Held);
        assert_eq!(runs, [run(1, held(7)), run(1, next), run(3, held(50)), run(1, next)]);
        assert_eq!(own, [2, 6]);
        assert_eq!(without(&[], 100, &content, &mut own), [run(6, next)]);
    }
}
