//! Write-behind: a thread writes full chunks while the caller gathers the next ones.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};

use crate::aligned::AlignedBuffer;
use crate::error::WriteError;
use crate::output::Output;

/// Chunks per writer: one being gathered, one being written, and three in the queue, so that a disk that pauses finds
/// work when it resumes.
const CHUNKS: usize = 5;

/// Writes a range of the output from its start to its end, on a thread of its own.
pub struct WriteBehind {
    /// Writes end at multiples of this, except the last before a [`flush`](Self::flush).
    chunk: usize,
    gathered: Chunk,
    free: Vec<AlignedBuffer>,
    /// Lengths of the chunks that the thread has, oldest first.
    in_flight: VecDeque<usize>,
    /// File offset up to which everything is written.
    flushed: u64,
    /// Asks the thread to write no further chunk.
    is_late: Arc<AtomicBool>,
    /// A failed write that the caller does not know of yet.
    failure: Option<WriteError>,
    /// `None` once the thread is to end.
    work: Option<Sender<Chunk>>,
    done: Receiver<Done>,
    thread: Option<JoinHandle<()>>,
    /// The output, where the system allows no thread, until a write fails.
    alone: Option<Box<dyn Output + Send>>,
}

struct Chunk {
    buffer: AlignedBuffer,
    used: usize,
    offset: u64,
}

struct Done {
    buffer: AlignedBuffer,
    result: Result<(), WriteError>,
}

impl WriteBehind {
    /// Starts at `offset` of `output` and writes `chunk` bytes at a time. Writes on the calling thread if the system
    /// allows no other.
    pub fn new(output: impl Output + Send + 'static, offset: u64, chunk: usize) -> Self {
        let (work, chunks) = unbounded::<Chunk>();
        let (finished, done) = unbounded();
        // Shared until the thread takes it, so that it is not lost with a thread that cannot be created.
        let shared = Arc::new(Mutex::new(Some(output)));
        let taken = Arc::clone(&shared);
        let is_late = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_late);
        let write = move || {
            let Some(mut output) = taken.lock().unwrap_or_else(PoisonError::into_inner).take() else {
                return;
            };
            for Chunk { buffer, used, offset } in chunks {
                let result = if stop.load(Ordering::Relaxed) {
                    Err(io::Error::from(io::ErrorKind::TimedOut).into())
                } else {
                    output.write(offset, &buffer.bytes()[..used])
                };
                let failed = result.is_err();
                // Nothing is written behind a failed write: no bytes may follow a gap, and the tables need the room.
                if finished.send(Done { buffer, result }).is_err() || failed {
                    return;
                }
            }
        };
        let (thread, alone) = match Builder::new().name("write".into()).spawn(write) {
            Ok(thread) => (Some(thread), None),
            Err(_) => {
                let output = shared.lock().unwrap_or_else(PoisonError::into_inner).take();
                (None, output.map(|output| Box::new(output) as Box<dyn Output + Send>))
            }
        };
        Self {
            chunk,
            gathered: Chunk { buffer: AlignedBuffer::new(chunk), used: 0, offset },
            free: (1..CHUNKS).map(|_| AlignedBuffer::new(chunk)).collect(),
            in_flight: VecDeque::new(),
            flushed: offset,
            is_late,
            failure: None,
            work: Some(work),
            done,
            thread,
            alone,
        }
    }

    /// File offset of the next byte.
    pub fn end(&self) -> u64 {
        self.gathered.offset + self.gathered.used as u64
    }

    /// File offset up to which bytes are in the output.
    pub fn flushed(&self) -> u64 {
        self.flushed
    }

    /// Returns whether chunks are being written.
    pub fn is_busy(&mut self) -> bool {
        if let Err(error) = self.collect_finished() {
            self.failure = Some(error);
        }
        !self.in_flight.is_empty()
    }

    /// Appends `bytes`. After an error, bytes that are not written are dropped, and later writes fail.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), WriteError> {
        while !bytes.is_empty() {
            let Chunk { buffer, used, offset } = &mut self.gathered;
            let end = (*offset + 1).next_multiple_of(self.chunk as u64);
            let room = (end - *offset) as usize - *used;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            buffer.bytes_mut()[*used..*used + now.len()].copy_from_slice(now);
            *used += now.len();
            bytes = later;
            if now.len() == room {
                self.submit()?;
            }
        }
        Ok(())
    }

    /// Blocks until everything that was pushed is written.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.report_failure()?;
        if self.gathered.used > 0 {
            self.submit()?;
        }
        while !self.in_flight.is_empty() {
            self.wait()?;
        }
        Ok(())
    }

    /// Blocks until everything that was pushed is written, or until the write that is in progress at `until` has ended. What
    /// is not written then is dropped, and later writes fail. Returns whether everything is written.
    pub fn flush_until(&mut self, until: Instant) -> Result<bool, WriteError> {
        self.report_failure()?;
        while !self.in_flight.is_empty() {
            match self.done.recv_deadline(until) {
                Ok(done) => self.retire(done)?,
                Err(RecvTimeoutError::Disconnected) => self.wait()?,
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        if Instant::now() < until {
            return self.flush().map(|()| true);
        }
        let end = self.end();
        self.is_late.store(true, Ordering::Relaxed);
        // Its error says that the rest was dropped.
        while !self.in_flight.is_empty() && self.wait().is_ok() {}
        self.drop_unwritten();
        Ok(self.flushed == end)
    }

    /// Hands the gathered chunk to the thread.
    fn submit(&mut self) -> Result<(), WriteError> {
        self.report_failure()?;
        self.collect_finished()?;
        while self.free.is_empty() {
            self.wait()?;
        }
        let Some(buffer) = self.free.pop() else { return Ok(()) };
        let next = Chunk { buffer, used: 0, offset: self.end() };
        let full = std::mem::replace(&mut self.gathered, next);
        self.in_flight.push_back(full.used);
        if let Some(output) = &mut self.alone {
            let Chunk { buffer, used, offset } = full;
            let result = output.write(offset, &buffer.bytes()[..used]);
            return self.retire(Done { buffer, result }).inspect_err(|_| self.alone = None);
        }
        // Fails only when the thread has ended, which `wait` reports.
        let _ = self.work.as_ref().map(|work| work.send(full));
        Ok(())
    }

    /// Returns the failure that the caller does not know of yet.
    fn report_failure(&mut self) -> Result<(), WriteError> {
        match self.failure.take() {
            Some(error) => {
                self.drop_unwritten();
                Err(error)
            }
            None => Ok(()),
        }
    }

    /// Takes the finished chunks back without waiting.
    fn collect_finished(&mut self) -> Result<(), WriteError> {
        while let Ok(done) = self.done.try_recv() {
            self.retire(done)?;
        }
        Ok(())
    }

    /// Waits for the oldest chunk.
    fn wait(&mut self) -> Result<(), WriteError> {
        let Ok(done) = self.done.recv() else {
            self.drop_unwritten();
            return Err(io::Error::other("an earlier write failed").into());
        };
        self.retire(done)
    }

    fn retire(&mut self, Done { buffer, result }: Done) -> Result<(), WriteError> {
        let used = self.in_flight.pop_front().unwrap_or(0);
        self.flushed += result.as_ref().map_or_else(WriteError::written, |()| used) as u64;
        self.free.push(buffer);
        result.inspect_err(|_| self.drop_unwritten())
    }

    fn drop_unwritten(&mut self) {
        self.in_flight.clear();
        self.gathered.used = 0;
        self.gathered.offset = self.flushed;
    }
}

impl Drop for WriteBehind {
    fn drop(&mut self) {
        self.work = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed already.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_disk::TestDisk;

    #[test]
    fn writes_end_on_chunk_boundaries_and_keep_their_order() {
        let (disk, file) = TestDisk::new(u64::MAX);
        let mut writer = WriteBehind::new(disk, 100, 64);
        let sample: Vec<u8> = (0..=255).collect();
        for piece in sample.chunks(7) {
            writer.push(piece).unwrap();
        }
        writer.flush().unwrap();
        let file = file.lock().unwrap();
        assert_eq!(file.writes, [(100, 28), (128, 64), (192, 64), (256, 64), (320, 36)]);
        assert_eq!(&file.bytes[100..], sample);
        assert_eq!((writer.end(), writer.flushed()), (356, 356));
    }

    #[test]
    fn bytes_are_gathered_while_the_disk_is_busy() {
        let (disk, turn, file) = TestDisk::in_turns(u64::MAX);
        let mut writer = WriteBehind::new(disk, 0, 64);
        assert!(!writer.is_busy());
        writer.push(&[7; 64 * (CHUNKS - 1) + 63]).unwrap();
        assert!(writer.is_busy());
        assert_eq!((writer.flushed(), writer.end()), (0, 64 * CHUNKS as u64 - 1));
        drop(turn);
        writer.flush().unwrap();
        assert!(!writer.is_busy());
        assert_eq!(writer.flushed(), writer.end());
        assert_eq!(file.lock().unwrap().bytes, [7; 64 * CHUNKS - 1]);
    }

    #[test]
    fn the_next_call_reports_a_failure_that_is_busy_found() {
        for push in [true, false] {
            let (disk, _) = TestDisk::new(80);
            let mut writer = WriteBehind::new(disk, 0, 64);
            writer.push(&[7; 140]).unwrap();
            while writer.is_busy() {
                std::thread::yield_now();
            }
            let reported = if push { writer.push(&[7; 100]) } else { writer.flush() };
            assert!(reported.unwrap_err().is_full());
            assert_eq!((writer.flushed(), writer.end()), (80, 80));
        }
    }

    #[test]
    fn a_flush_ends_with_the_write_in_progress_once_it_is_late() {
        let (disk, turn, file) = TestDisk::in_turns(u64::MAX);
        let mut writer = WriteBehind::new(disk, 0, 64);
        writer.push(&[7; 64 * 3 + 10]).unwrap();
        // The disk takes one write; the writer is late at once.
        turn.send(()).unwrap();
        while writer.flushed() < 64 {
            writer.collect_finished().unwrap();
            std::thread::yield_now();
        }
        let is_late = Arc::clone(&writer.is_late);
        let late = Instant::now();
        let flush = std::thread::spawn(move || {
            assert!(!writer.flush_until(late).unwrap());
            writer
        });
        while !is_late.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        drop(turn);
        let mut writer = flush.join().unwrap();
        let flushed = writer.flushed();
        assert!(flushed <= 128 && flushed == writer.end(), "{flushed}");
        assert_eq!(file.lock().unwrap().bytes.len() as u64, flushed);
        assert!(writer.push(&[7; 64]).and_then(|()| writer.flush()).is_err());
    }

    #[test]
    fn a_flush_in_time_writes_everything() {
        let (disk, file) = TestDisk::new(u64::MAX);
        let mut writer = WriteBehind::new(disk, 0, 64);
        writer.push(&[7; 64 * 3 + 10]).unwrap();
        assert!(writer.flush_until(Instant::now() + std::time::Duration::from_secs(3600)).unwrap());
        assert_eq!(file.lock().unwrap().bytes, [7; 64 * 3 + 10]);
    }

    #[test]
    fn nothing_is_written_behind_a_failed_write() {
        let (disk, file) = TestDisk::new(80);
        let mut writer = WriteBehind::new(disk, 0, 64);
        let error = writer.push(&[7; 300]).and_then(|()| writer.flush()).unwrap_err();
        assert!(error.is_full());
        assert_eq!((writer.flushed(), writer.end()), (80, 80));
        assert!(!writer.is_busy());
        assert_eq!(file.lock().unwrap().writes, [(0, 64), (64, 16)]);
        // Later writes fail too.
        writer.flush().unwrap();
        assert!(writer.push(&[7; 64]).and_then(|()| writer.flush()).is_err());
        assert_eq!(writer.flushed(), 80);
    }
}
