//! Compressing images, and writing them to the container.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, OnceLock, PoisonError};

use crossbeam_channel::Receiver;
use pagehaul_codec::FrameCompressor;
use pagehaul_pool::{Lane, Ticket, Work};
use pagehaul_run::{Phase, Progress};

use super::base::{self, Base, NewBlock, Part};
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
    /// Empty if the image is put together from it later.
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
    /// Bytes that are nowhere yet.
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
        let Packer { compressor, reader, own } = packer;
        let content = piece.content(&mut compressed.room);
        compressed.place = piece.place();
        let (known, compares) = piece.known();
        let common = self.common.get().and_then(|common| common.get(&piece.place().0));
        let content = if piece.is_raw() {
            compressed.runs.clear();
            content
        } else if known.is_empty() && common.is_none() {
            compressed.runs = vec![Run { bytes: content.len() as u64, from: Origin::Next }];
            content
        } else {
            let block = NewBlock { start: piece.start(), content, known: &known, compares };
            let common = common.map_or(&[][..], Vec::as_slice);
            let mut read = |image: u32, offset, old: &mut [u8]| {
                let reader = match (&mut *reader, self.base) {
                    (Some(reader), _) => reader,
                    (None, Some(base)) => reader.insert(base.reader()?),
                    (None, None) => return Err(base::lacks_pages()),
                };
                reader.read(image as usize, offset, old)
            };
            compressed.runs = block.runs(common, &mut read, own)?;
            own.as_slice()
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
