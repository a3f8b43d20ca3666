//! Bytes that follow each other in the file, written behind: a thread of its own gives them to the disk while the next are
//! gathered.

use std::collections::VecDeque;
use std::io;
use std::thread::{Builder, JoinHandle};

use crossbeam_channel::{Receiver, Sender, unbounded};
use pagehaul_run::Progress;

use crate::aligned::Aligned;
use crate::sink::{Sink, WriteError};

/// Chunks at a time: one that is gathered, one that is written, and others that wait, so that a disk that takes its time in
/// fits and starts finds something to do when it goes on.
const CHUNKS: usize = 5;

/// A stretch of the file that is written from its start to its end.
pub(crate) struct Behind<'a> {
    progress: &'a Progress,
    /// Writes end at multiples of this, but for the last before a [`flush`](Self::flush).
    chunk: usize,
    gathered: Chunk,
    free: Vec<Aligned>,
    /// Chunks that were given to the thread, oldest first: how long they are.
    on_the_way: VecDeque<usize>,
    /// File offset up to which all is written.
    flushed: u64,
    /// A write that failed, of which nobody was told yet.
    failure: Option<WriteError>,
    /// None once the thread is to end.
    work: Option<Sender<Chunk>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
}

struct Chunk {
    buffer: Aligned,
    used: usize,
    offset: u64,
}

struct Done {
    buffer: Aligned,
    result: Result<(), WriteError>,
}

impl<'a> Behind<'a> {
    /// Starts at `offset` of `sink`, and writes `chunk` bytes at a time.
    pub(crate) fn new(
        mut sink: impl Sink + Send + 'static,
        offset: u64,
        chunk: usize,
        progress: &'a Progress,
    ) -> io::Result<Self> {
        let (work, chunks) = unbounded::<Chunk>();
        let (finished, done) = unbounded();
        let write = move || {
            for Chunk { buffer, used, offset } in chunks {
                let result = sink.write(offset, &buffer.bytes()[..used]);
                let failed = result.is_err();
                // What comes behind a failed write is not written: nothing may be where bytes before it are missing, and
                // the room is needed for the tables.
                if finished.send(Done { buffer, result }).is_err() || failed {
                    return;
                }
            }
        };
        let thread = Builder::new().name("write".into()).spawn(write)?;
        Ok(Self {
            progress,
            chunk,
            gathered: Chunk { buffer: Aligned::new(chunk), used: 0, offset },
            free: (1..CHUNKS).map(|_| Aligned::new(chunk)).collect(),
            on_the_way: VecDeque::new(),
            flushed: offset,
            failure: None,
            work: Some(work),
            done,
            thread: Some(thread),
        })
    }

    /// File offset of the next byte.
    pub(crate) fn end(&self) -> u64 {
        self.gathered.offset + self.gathered.used as u64
    }

    /// File offset up to which bytes are in the file.
    pub(crate) fn flushed(&self) -> u64 {
        self.flushed
    }

    /// Whether the disk has something to do.
    pub(crate) fn is_busy(&mut self) -> bool {
        if let Err(error) = self.take_back() {
            self.failure = Some(error);
        }
        !self.on_the_way.is_empty()
    }

    /// Appends `bytes`. After an error, whatever is not written is forgotten, and nothing more can be.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Result<(), WriteError> {
        while !bytes.is_empty() {
            let Chunk { buffer, used, offset } = &mut self.gathered;
            let end = (*offset + 1).next_multiple_of(self.chunk as u64);
            let room = (end - *offset) as usize - *used;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            buffer.bytes_mut()[*used..*used + now.len()].copy_from_slice(now);
            *used += now.len();
            bytes = later;
            if now.len() == room {
                self.give()?;
            }
        }
        Ok(())
    }

    /// Waits until all that was pushed is written.
    pub(crate) fn flush(&mut self) -> Result<(), WriteError> {
        self.tell()?;
        if self.gathered.used > 0 {
            self.give()?;
        }
        while !self.on_the_way.is_empty() {
            self.wait()?;
        }
        Ok(())
    }

    /// Gives the thread what is gathered.
    fn give(&mut self) -> Result<(), WriteError> {
        self.tell()?;
        self.take_back()?;
        while self.free.is_empty() {
            self.wait()?;
        }
        let Some(buffer) = self.free.pop() else { return Ok(()) };
        let next = Chunk { buffer, used: 0, offset: self.end() };
        let full = std::mem::replace(&mut self.gathered, next);
        self.on_the_way.push_back(full.used);
        // Fails only when the thread is gone, which the answer that does not come will say.
        let _ = self.work.as_ref().map(|work| work.send(full));
        Ok(())
    }

    /// The failure that nobody was told of yet, if there is one.
    fn tell(&mut self) -> Result<(), WriteError> {
        match self.failure.take() {
            Some(error) => {
                // What was gathered meanwhile comes too late.
                self.forget();
                Err(error)
            }
            None => Ok(()),
        }
    }

    /// Takes back the chunks that are written by now.
    fn take_back(&mut self) -> Result<(), WriteError> {
        while let Ok(done) = self.done.try_recv() {
            self.settle(done)?;
        }
        Ok(())
    }

    /// Waits for the oldest chunk.
    fn wait(&mut self) -> Result<(), WriteError> {
        let Ok(done) = self.done.recv() else {
            self.forget();
            return Err(io::Error::other("an earlier write failed").into());
        };
        self.settle(done)
    }

    fn settle(&mut self, Done { buffer, result }: Done) -> Result<(), WriteError> {
        let used = self.on_the_way.pop_front().unwrap_or(0);
        let written = result.as_ref().map_or_else(|error| error.written, |()| used);
        self.flushed += written as u64;
        self.progress.wrote(written as u64);
        self.free.push(buffer);
        result.inspect_err(|_| self.forget())
    }

    /// Nothing that is not written will be.
    fn forget(&mut self) {
        self.on_the_way.clear();
        self.gathered.used = 0;
        self.gathered.offset = self.flushed;
    }
}

impl Drop for Behind<'_> {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::Disk;

    #[test]
    fn writes_end_on_chunk_boundaries_and_come_in_order() {
        let (disk, file) = Disk::new(u64::MAX);
        let progress = Progress::default();
        let mut behind = Behind::new(disk, 100, 64, &progress).unwrap();
        let sample: Vec<u8> = (0..=255).collect();
        for piece in sample.chunks(7) {
            behind.push(piece).unwrap();
        }
        behind.flush().unwrap();
        let file = file.lock().unwrap();
        assert_eq!(file.writes, [(100, 28), (128, 64), (192, 64), (256, 64), (320, 36)]);
        assert_eq!(&file.bytes[100..], sample);
        assert_eq!((behind.end(), behind.flushed(), progress.written()), (356, 356, 256));
    }

    #[test]
    fn bytes_are_gathered_while_the_disk_is_at_work() {
        let (disk, turn, file) = Disk::in_turns(u64::MAX);
        let progress = Progress::default();
        let mut behind = Behind::new(disk, 0, 64, &progress).unwrap();
        assert!(!behind.is_busy());
        behind.push(&[7; 64 * (CHUNKS - 1) + 63]).unwrap();
        assert!(behind.is_busy());
        assert_eq!((behind.flushed(), behind.end()), (0, 64 * CHUNKS as u64 - 1));
        drop(turn);
        behind.flush().unwrap();
        assert!(!behind.is_busy());
        assert_eq!(behind.flushed(), behind.end());
        assert_eq!(file.lock().unwrap().bytes, [7; 64 * CHUNKS - 1]);
    }

    #[test]
    fn a_failure_noticed_on_the_way_is_told_at_the_next_chance() {
        for push in [true, false] {
            let (disk, _) = Disk::new(80);
            let progress = Progress::default();
            let mut behind = Behind::new(disk, 0, 64, &progress).unwrap();
            behind.push(&[7; 140]).unwrap();
            while behind.is_busy() {
                std::thread::yield_now();
            }
            let told = if push { behind.push(&[7; 100]) } else { behind.flush() };
            assert!(told.unwrap_err().is_full());
            assert_eq!((behind.flushed(), behind.end()), (80, 80));
        }
    }

    #[test]
    fn nothing_is_written_behind_a_write_that_failed() {
        let (disk, file) = Disk::new(80);
        let progress = Progress::default();
        let mut behind = Behind::new(disk, 0, 64, &progress).unwrap();
        let error = behind.push(&[7; 300]).and_then(|()| behind.flush()).unwrap_err();
        assert!(error.is_full());
        assert_eq!((behind.flushed(), behind.end(), progress.written()), (80, 80, 80));
        assert!(!behind.is_busy());
        assert_eq!(file.lock().unwrap().writes, [(0, 64), (64, 16)]);
        // Whoever goes on is told so.
        behind.flush().unwrap();
        assert!(behind.push(&[7; 64]).and_then(|()| behind.flush()).is_err());
        assert_eq!(behind.flushed(), 80);
    }
}
