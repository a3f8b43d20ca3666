//! A disk for tests, of a given size, that writes when it is told to.

use std::io;
use std::sync::{Arc, Mutex};

use crossbeam_channel::{Receiver, Sender, unbounded};

use crate::error::WriteError;
use crate::output::Output;

pub(crate) struct TestDisk {
    room: u64,
    /// One message per write, until the sender is dropped.
    turns: Receiver<()>,
    file: Arc<Mutex<Written>>,
}

/// The contents of a [`TestDisk`].
#[derive(Default)]
pub(crate) struct Written {
    pub(crate) bytes: Vec<u8>,
    /// Offset and length of every write.
    pub(crate) writes: Vec<(u64, usize)>,
}

impl TestDisk {
    /// Makes a disk of `room` bytes.
    pub(crate) fn new(room: u64) -> (Self, Arc<Mutex<Written>>) {
        let (disk, _, file) = Self::in_turns(room);
        (disk, file)
    }

    /// Makes a disk that waits for a message before each write, until the sender is dropped.
    pub(crate) fn in_turns(room: u64) -> (Self, Sender<()>, Arc<Mutex<Written>>) {
        let (turn, turns) = unbounded();
        let file = Arc::default();
        (Self { room, turns, file: Arc::clone(&file) }, turn, file)
    }
}

impl Output for TestDisk {
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
            return Err(WriteError::Write { written, source: io::ErrorKind::StorageFull.into() });
        }
        Ok(())
    }

    fn reserve(&mut self, _: u64, _: u64) -> Result<(), WriteError> {
        Ok(())
    }

    fn end(&self) -> u64 {
        self.file.lock().unwrap().bytes.len() as u64
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
}
