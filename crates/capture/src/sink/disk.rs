//! A disk for tests: so large, and no faster than it is told to be.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::{Sink, WriteError};

pub(crate) struct Disk {
    room: u64,
    /// One for each write, until their sender is gone.
    turns: Receiver<()>,
    file: Arc<Mutex<Written>>,
}

/// What is on it.
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) bytes: Vec<u8>,
    /// Offset and length of every write.
    pub(crate) writes: Vec<(u64, usize)>,
}

impl Disk {
    /// A disk of `room` bytes, and what is on it.
    pub(crate) fn new(room: u64) -> (Self, Arc<Mutex<Written>>) {
        let (disk, _, file) = Self::in_turns(room);
        (disk, file)
    }

    /// The same, with a write only when it is told to; all may go ahead once the sender is dropped.
    pub(crate) fn in_turns(room: u64) -> (Self, Sender<()>, Arc<Mutex<Written>>) {
        let (turn, turns) = unbounded();
        let file = Arc::default();
        (Self { room, turns, file: Arc::clone(&file) }, turn, file)
    }
}

impl Sink for Disk {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), WriteError> {
        let _ = self.turns.recv();
        let written = (self.room.saturating_sub(offset) as usize).min(bytes.len());
        let mut file = self.file.lock().unwrap();
        let end = offset as usize + written;
        let size = file.bytes.len().max(end);
        file.bytes.resize(size, 0);
        file.bytes[offset as usize..end].copy_from_slice(&bytes[..written]);
        file.writes.push((offset, written));
        if written < bytes.len() {
            return Err(WriteError { written, error: io::ErrorKind::StorageFull.into() });
        }
        Ok(())
    }

    fn reserve(&mut self, _: u64, _: u64) -> Result<(), WriteError> {
        Ok(())
    }

    fn sync(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    fn is_sparse(&self) -> bool {
        false
    }

    fn can_rewrite(&self) -> bool {
        true
    }

    fn path(&self) -> &Path {
        Path::new("disk")
    }
}
