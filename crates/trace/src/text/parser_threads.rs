//! Threads that take text apart ahead of the one that asks for events.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::batch::Batch;
use super::chunks::Chunks;
use super::parser::Parser;
use crate::TraceError;

/// Batches of each thread, of about 1 MiB each with all that is made of them.
const BATCHES: usize = 4;
/// Threads at most: one that asks for events has no work for more.
const MOST_THREADS: usize = 8;

/// Batches in the order of the text. The threads take turns, piece by piece, so that it is known whose batch is next.
pub(super) struct ParserThreads {
    threads: Vec<Thread>,
    /// Whose turn it is.
    turn: usize,
    /// Chunks to come.
    left: u64,
    /// Whose batch was given last.
    given: Option<usize>,
    path: PathBuf,
}

struct Thread {
    full: Receiver<Result<Batch, TraceError>>,
    empty: Sender<Batch>,
}

/// As many threads as this machine runs at once.
pub(super) fn all_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS)
}

impl ParserThreads {
    /// Begins at a piece.
    pub(super) fn start(chunks: &Chunks, first: u64, threads: usize) -> Result<Self, TraceError> {
        let left = chunks.count().saturating_sub(first);
        let count = left.min(threads.max(1) as u64);
        let path = chunks.input().path().to_owned();
        let start = |turn| Thread::start(chunks.clone(), first.saturating_add(turn), count);
        let threads = (0..count).map(start).collect::<Result<_, _>>();
        let threads = threads.map_err(TraceError::io(&path, "start a thread to read"))?;
        Ok(Self { threads, turn: 0, left, given: None, path })
    }

    /// The next batch, in exchange for the last one; none at the end.
    pub(super) fn next(&mut self, used: Batch) -> Result<Option<Batch>, TraceError> {
        if let Some(thread) = self.given.take().and_then(|given| self.threads.get(given)) {
            // Refused only by a thread that has ended.
            let _ = thread.empty.send(used);
        }
        let Some(thread) = self.threads.get(self.turn).filter(|_| self.left > 0) else { return Ok(None) };
        self.left -= 1;
        self.given = Some(self.turn);
        self.turn = (self.turn + 1) % self.threads.len();
        match thread.full.recv() {
            Ok(batch) => batch.map(Some),
            // It ended without a word.
            Err(_) => {
                let error = std::io::Error::other("a thread that takes lines apart failed");
                Err(TraceError::io(&self.path, "read")(error))
            }
        }
    }
}

impl Thread {
    /// Takes apart a piece of every `count`.
    fn start(chunks: Chunks, first: u64, count: u64) -> std::io::Result<Self> {
        let (full_sender, full) = channel();
        let (empty, empties) = channel::<Batch>();
        for _ in 0..BATCHES {
            // The receiver is here.
            let _ = empty.send(Batch::default());
        }
        std::thread::Builder::new().name("text".into()).spawn(move || {
            let mut parser = Parser::new(chunks.longest());
            let mut number = first;
            // Ends with the text, or with the reader.
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
