//! From the pages of a process to the output: threads that copy, a worker pool that packs, a thread that writes.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pagehaul_output::WriteError;
use pagehaul_pool::{Lane, Ticket, Work};
use pagehaul_run::{Outcome, Phase, Progress};

use crate::arena::Arena;
use crate::copy::Memory;
use crate::error::ProcessError;
use crate::output::Output;
use crate::pack::{Counts, Layout, PackError, Packed, Packer};
use crate::queue::Queue;
use crate::tiler::{Content, Tile, Tiler};
use crate::units::Pid;

/// Sums over all tiles.
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
    /// The output's name in messages, and what it is made of.
    output: String,
    layout: Layout<'a>,
    /// Whether packing waits until everything is copied, or there is no room: while a process is stopped, every CPU is
    /// better spent on copying.
    pub(crate) copy_first: bool,
    outcome: Mutex<Option<Outcome>>,
    over: AtomicBool,
    missing: AtomicU64,
    first_missing: AtomicU64,
}

impl<'a> Pipeline<'a> {
    pub(crate) fn new(
        arena: Arc<Arena>,
        progress: &'a Progress,
        (output, layout): (String, Layout<'a>),
        copy_first: bool,
    ) -> Self {
        Self {
            arena,
            queue: Queue::default(),
            progress,
            output,
            layout,
            copy_first,
            outcome: Mutex::default(),
            over: AtomicBool::new(false),
            missing: AtomicU64::new(0),
            first_missing: AtomicU64::new(0),
        }
    }

    /// Ends the run early. The first outcome counts.
    pub(crate) fn end(&self, outcome: Outcome) {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(outcome);
        self.close();
    }

    /// Ends all threads, those that wait too.
    pub(crate) fn close(&self) {
        self.over.store(true, Ordering::Release);
        self.arena.close();
        self.queue.close();
    }

    /// Returns the outcome of a run that ended early.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Pages that could not be read, and the first one's address.
    pub(crate) fn missing(&self) -> (u64, u64) {
        (self.missing.load(Ordering::Relaxed), self.first_missing.load(Ordering::Relaxed))
    }

    /// Returns whether all threads are to end. Ends the run if the user has cancelled it.
    pub(crate) fn is_over(&self) -> bool {
        if self.progress.is_cancelled() {
            self.end(Outcome::Cancelled);
        }
        self.over.load(Ordering::Acquire)
    }

    /// One copying thread.
    pub(crate) fn copy(&self, memory: &Memory, tiler: &Mutex<Tiler>) {
        while !self.is_over() {
            let next = tiler.lock().unwrap_or_else(PoisonError::into_inner).next();
            let copied = match next {
                Ok(None) => return,
                Ok(Some(tile)) => self.fill(memory, tile),
                Err(error) => Err(error),
            };
            if let Err(error) = copied {
                self.end(Outcome::ReadFailed(lost(memory.pid(), &error)));
            }
        }
    }

    fn fill(&self, memory: &Memory, mut tile: Tile) -> io::Result<()> {
        if let Content::Pages(runs, slice) = &mut tile.content {
            let missing = memory.copy(runs, slice)?;
            if missing.pages > 0 && self.missing.fetch_add(missing.pages, Ordering::Relaxed) == 0 {
                self.first_missing.store(missing.first, Ordering::Relaxed);
            }
            self.progress.advance(Phase::Copy, slice.len() as u64);
        }
        self.queue.push(tile);
        Ok(())
    }

    /// The writer: appends the packed tiles to `output`, in order.
    pub(crate) fn write(&self, output: &mut Output, mut lane: Lane<Self>) -> Totals {
        let _closing = Closing(self);
        let mut totals = Totals::default();
        while let Some(packed) = lane.recv() {
            let appended = packed.and_then(|packed| {
                output.append(packed).map_err(|error| WriteError::from(error).outcome(&self.output))?;
                totals.placed += packed.length;
                totals.counts.pages += packed.counts.pages;
                totals.counts.zeros += packed.counts.zeros;
                Ok(())
            });
            if let Err(outcome) = appended {
                self.end(outcome);
                break;
            }
        }
        totals
    }
}

/// The packing threads.
impl<'a> Work for Pipeline<'a> {
    type Buffer = Packed;
    type Worker = Option<Packer<'a>>;
    type Error = Outcome;

    fn next(&self, packed: &mut Packed) -> Option<Ticket> {
        if self.copy_first {
            self.arena.wait_until_needed();
        }
        let tile = if self.is_over() { None } else { self.queue.pop() };
        let ticket = tile.as_ref().map(|tile| Ticket::number(tile.number));
        packed.tile = tile;
        ticket
    }

    fn run(&self, packer: &mut Option<Packer<'a>>, packed: &mut Packed) -> Result<(), Outcome> {
        let mut pack = || -> Result<(), PackError> {
            let packer = match packer {
                Some(packer) => packer,
                None => packer.insert(Packer::new(self.layout)?),
            };
            packer.pack(packed)
        };
        pack().map_err(|error| error.outcome(&self.output))?;
        self.progress.advance(Phase::Pack, packed.counts.pages);
        Ok(())
    }

    fn abort(&self) {
        self.close();
    }
}

/// Ends all threads when it is dropped: without the writer, copying threads would wait for room without end.
struct Closing<'a, 'b>(&'a Pipeline<'b>);

impl Drop for Closing<'_, '_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn lost(pid: Pid, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ESRCH) => ProcessError::Ended(pid).to_string(),
        _ => format!("cannot read the memory of process {pid} any more: {error}"),
    }
}
