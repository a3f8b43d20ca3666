//! Threads that parse chunks ahead of the reader.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::batch::Batch;
use super::chunks::Chunks;
use super::parser::Parser;
use crate::error::TraceError;

/// Batches per thread, about 1 MiB each with the parsed lines.
const BATCHES: usize = 4;
/// Upper bound of threads; a single reader cannot consume the output of more.
const MAX_THREADS: usize = 8;

/// Delivers batches in text order. The threads take chunks round-robin, so that the source of the next batch
/// is known.
pub(super) struct ParserThreads {
    threads: Vec<Thread>,
    /// Index of the thread with the next batch.
    turn: usize,
    /// Chunks left.
    left: u64,
    /// Index of the thread that delivered the last batch.
    given: Option<usize>,
    path: PathBuf,
}

struct Thread {
    full: Receiver<Result<Batch, TraceError>>,
    empty: Sender<Batch>,
}

/// Returns the number of CPUs this process may use, up to the limit.
pub(super) fn all_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS)
}

impl ParserThreads {
    /// Starts at chunk `first`.
    pub(super) fn start(chunks: &Chunks, first: u64, threads: usize) -> Result<Self, TraceError> {
        let left = chunks.count().saturating_sub(first);
        let count = left.min(threads.max(1) as u64);
        let path = chunks.input().path().to_owned();
        let start = |turn| Thread::start(chunks.clone(), first.saturating_add(turn), count);
        let threads = (0..count).map(start).collect::<Result<_, _>>();
        let threads = threads.map_err(TraceError::io(&path, "start a thread that reads"))?;
        Ok(Self { threads, turn: 0, left, given: None, path })
    }

    /// Returns the next batch in exchange for the last one; `None` at the end.
    pub(super) fn next(&mut self, used: Batch) -> Result<Option<Batch>, TraceError> {
        if let Some(thread) = self.given.take().and_then(|given| self.threads.get(given)) {
            // Fails only if the thread has ended.
            let _ = thread.empty.send(used);
        }
        let Some(thread) = self.threads.get(self.turn).filter(|_| self.left > 0) else { return Ok(None) };
        self.left -= 1;
        self.given = Some(self.turn);
        self.turn = (self.turn + 1) % self.threads.len();
        match thread.full.recv() {
            Ok(batch) => batch.map(Some),
            // The thread panicked.
            Err(_) => Err(TraceError::thread_panicked(&self.path)),
        }
    }
}

impl Thread {
    /// Parses every `count`th chunk.
    fn start(chunks: Chunks, first: u64, count: u64) -> std::io::Result<Self> {
        let (full_sender, full) = channel();
        let (empty, empties) = channel::<Batch>();
        for _ in 0..BATCHES {
            // The receiver is alive here.
            let _ = empty.send(Batch::default());
        }
        std::thread::Builder::new().name("text".into()).spawn(move || {
            let mut parser = Parser::new(chunks.longest());
            let mut number = first;
            // Ends with the text or with the reader.
            while number < chunks.count()
                && let Ok(mut batch) = empties.recv()
            {
                let filled = chunks.fill(number, &mut batch);
                let failed = filled.is_err();
                parser.parse(&mut batch);
                if full_sender.send(filled.map(|()| batch)).is_err() || failed {
                    return;
                }
                number = number.saturating_add(count);
            }
        })?;
        Ok(Self { full, empty })
    }
}
