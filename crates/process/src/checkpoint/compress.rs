//! Compressing images, and writing them to the container.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

use crossbeam_channel::Receiver;
use pagehaul_codec::FrameCompressor;
use pagehaul_pool::{Lane, Ticket, Work};
use pagehaul_run::{Phase, Progress};

use super::container::{self, Block, HEADER};
use super::images::Piece;
use crate::arena::Arena;
use crate::error::ProcessError;

/// Blocks by their image and their number in it.
pub(crate) type Blocks = BTreeMap<(usize, usize), Block>;

/// The work of the compressing threads.
pub(crate) struct Compressing<'a> {
    pub(crate) level: i32,
    pub(crate) arena: &'a Arena,
    pub(crate) progress: &'a Progress,
    /// The number of the next piece, and where it comes from.
    pub(crate) pieces: Mutex<(u64, Receiver<Piece>)>,
}

/// A piece, before and after it is compressed.
#[derive(Default)]
pub(crate) struct Compressed {
    /// `None` once it is compressed.
    piece: Option<Piece>,
    place: (usize, usize),
    bytes: usize,
    frame: Vec<u8>,
    /// Room for a piece that is put together.
    room: Vec<u8>,
}

impl Work for Compressing<'_> {
    type Buffer = Compressed;
    type Worker = Option<FrameCompressor>;
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

    fn run(
        &self,
        compressor: &mut Option<FrameCompressor>,
        compressed: &mut Compressed,
    ) -> Result<(), ProcessError> {
        let Some(piece) = compressed.piece.take() else { return Ok(()) };
        let compressor = match compressor {
            Some(compressor) => compressor,
            None => compressor.insert(FrameCompressor::new(self.level)?),
        };
        let content = piece.content(&mut compressed.room);
        (compressed.place, compressed.bytes) = (piece.place(), content.len());
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
    /// Writes the compressed pieces. Returns the blocks, and where they end.
    pub(crate) fn write(
        &self,
        mut lane: Lane<Self>,
        file: &File,
        failed: impl FnOnce(std::io::Error) -> ProcessError,
    ) -> Result<(Blocks, u64), ProcessError> {
        let _closing = Closing(self.arena);
        let mut blocks = Blocks::new();
        let mut offset = HEADER;
        while let Some(compressed) = lane.recv() {
            let Compressed { place, bytes, frame, .. } = compressed?;
            if let Err(error) = file.write_all_at(frame, offset) {
                return Err(failed(error));
            }
            let (stored, checksum) = (frame.len() as u32, container::checksum(frame));
            blocks.insert(*place, Block { offset, stored, bytes: *bytes as u32, checksum });
            offset += u64::from(stored);
            self.progress.advance(Phase::Pack, *bytes as u64);
        }
        Ok((blocks, offset))
    }
}
