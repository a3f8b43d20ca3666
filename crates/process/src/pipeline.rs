//! From a process's pages to the file: threads that copy, threads that pack, one that writes.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use pagehaul_output::WriteError;
use pagehaul_run::{Outcome, Phase, Progress};

use crate::ProcessError;
use crate::arena::Arena;
use crate::copy::Memory;
use crate::cutter::{Content, Cutter, Job};
use crate::output::Output;
use crate::pack::{Counts, Packed, Packer};
use crate::procfs::Pid;
use crate::queue::Queue;

/// Sum of what became of pages.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) counts: Counts,
    /// Bytes of the core that the output holds.
    pub(crate) placed: u64,
}

/// What copying threads, packing threads and the writer share.
pub(crate) struct Pipeline<'a> {
    pub(crate) arena: Arc<Arena>,
    pub(crate) queue: Queue,
    pub(crate) progress: &'a Progress,
    /// The output's name in messages.
    output: String,
    /// Whether packing waits until everything is copied, or there is no room: while a process is stopped, every CPU is
    /// better spent on copying.
    pub(crate) copy_first: bool,
    outcome: Mutex<Option<Outcome>>,
    over: AtomicBool,
    missing: AtomicU64,
    first_missing: AtomicU64,
}

impl<'a> Pipeline<'a> {
    pub(crate) fn new(arena: Arc<Arena>, progress: &'a Progress, output: String, copy_first: bool) -> Self {
        Self {
            arena,
            queue: Queue::default(),
            progress,
            output,
            copy_first,
            outcome: Mutex::default(),
            over: AtomicBool::new(false),
            missing: AtomicU64::new(0),
            first_missing: AtomicU64::new(0),
        }
    }

    /// Ends everything; the first reason counts.
    pub(crate) fn end(&self, why: Outcome) {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        self.close();
    }

    /// Ends all threads, and all waiting.
    pub(crate) fn close(&self) {
        self.over.store(true, Ordering::Release);
        self.arena.close();
        self.queue.close();
    }

    /// Why it ended early, if it did.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Pages that could not be read, and the first one's address.
    pub(crate) fn missing(&self) -> (u64, u64) {
        (self.missing.load(Ordering::Relaxed), self.first_missing.load(Ordering::Relaxed))
    }

    /// Whether everything is to end; notices that the user wants it to.
    pub(crate) fn is_over(&self) -> bool {
        if self.progress.is_cancelled() {
            self.end(Outcome::Cancelled);
        }
        self.over.load(Ordering::Acquire)
    }

    /// One copying thread.
    pub(crate) fn copy(&self, memory: &Memory, cutter: &Mutex<Cutter>) {
        while !self.is_over() {
            let next = cutter.lock().unwrap_or_else(PoisonError::into_inner).next();
            let copied = match next {
                Ok(None) => return,
                Ok(Some(job)) => self.fill(memory, job),
                Err(error) => Err(error),
            };
            if let Err(error) = copied {
                self.end(Outcome::ReadFailed(lost(memory.pid(), &error)));
            }
        }
    }

    fn fill(&self, memory: &Memory, mut job: Job) -> io::Result<()> {
        if let Content::Pages(runs, slice) = &mut job.content {
            let missing = memory.copy(runs, slice)?;
            if missing.pages > 0 && self.missing.fetch_add(missing.pages, Ordering::Relaxed) == 0 {
                self.first_missing.store(missing.first, Ordering::Relaxed);
            }
            self.progress.advance(Phase::Copy, slice.len() as u64);
        }
        self.queue.push(job);
        Ok(())
    }

    /// One packing thread.
    pub(crate) fn pack(&self, mut packer: Packer<'_>, free: &Receiver<Vec<u8>>, done: &Sender<Packed>) {
        if self.copy_first {
            self.arena.wait_until_needed();
        }
        // A buffer first, the job after it: so the lowest number outstanding always has its buffer.
        while !self.is_over()
            && let Ok(buffer) = free.recv()
            && let Some(Job { number, range, content }) = self.queue.pop()
        {
            match packer.pack(range, content, buffer) {
                Ok(packed) => {
                    self.progress.advance(Phase::Pack, packed.counts.pages);
                    if done.send(Packed { number, ..packed }).is_err() {
                        return;
                    }
                }
                Err(error) => self.end(WriteError::from(error).outcome(&self.output)),
            }
        }
    }

    /// The writer: appends parts in order. It owns its ends of the channels, so that packers notice when it ends.
    pub(crate) fn write(&self, output: &mut Output, done: Receiver<Packed>, free: Sender<Vec<u8>>) -> Totals {
        let mut totals = Totals::default();
        let mut early: BTreeMap<u64, Packed> = BTreeMap::new();
        let mut next = 0;
        for packed in done {
            early.insert(packed.number, packed);
            while let Some(packed) = early.remove(&next) {
                next += 1;
                if let Err(error) = output.append(&packed) {
                    self.end(WriteError::from(error).outcome(&self.output));
                    return totals;
                }
                totals.placed += packed.length;
                totals.counts.pages += packed.counts.pages;
                totals.counts.zeros += packed.counts.zeros;
                // Nobody takes buffers any more once all packers have ended.
                let _ = free.send(packed.buffer);
            }
        }
        totals
    }
}

/// Buffers and their ways between packers and the writer.
pub(crate) struct Channels {
    pub(crate) free: (Sender<Vec<u8>>, Receiver<Vec<u8>>),
    pub(crate) done: (Sender<Packed>, Receiver<Packed>),
}

impl Channels {
    /// Enough for packers to go on while others have the CPU that the writer needs.
    pub(crate) fn new(packers: usize) -> Self {
        let buffers = 4 * packers + 4;
        let (give, take) = unbounded();
        for _ in 0..buffers {
            let _ = give.send(Vec::new());
        }
        Self { free: (give, take), done: bounded(buffers) }
    }
}

fn lost(pid: Pid, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ESRCH) => ProcessError::Ended(pid).to_string(),
        _ => format!("cannot read the memory of process {pid} any more: {error}"),
    }
}
