//! Copying a dying process, and packing the copy once it is gone.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use pagehaul_elfcore::FILE_HEADER;
use pagehaul_output::WriteError;
use pagehaul_pool::{Workers, spawn_up_to};
use pagehaul_run::{Outcome, Phase, Progress};

use super::source::{Plan, Source};
use super::stream::StreamTiler;
use crate::arena::Arena;
use crate::error::{ProcessError, no_thread};
use crate::output::{Output, Target};
use crate::pack::{Packed, Packer};
use crate::pipeline::{Pipeline, Totals};

/// How often the room on the disk is looked at.
const ROOM_INTERVAL: Duration = Duration::from_millis(100);
/// Niceness of the threads that compress and write: what else runs on the machine goes first.
const NICE: i32 = 10;

/// How a core was saved.
#[derive(Debug, Clone, PartialEq)]
pub struct Saved {
    pub outcome: Outcome,
    /// Bytes of the core, decompressed, holes included.
    pub core_bytes: u64,
    /// Bytes of memory that were copied.
    pub page_bytes: u64,
    /// Bytes of memory for the copy.
    pub buffer_bytes: u64,
    /// Whether that was too little, so that the process waited for the disk.
    pub buffer_was_short: bool,
    /// Whether memory was read from the process rather than from the pipe.
    pub from_process: bool,
    /// Whether the limit left memory out.
    pub limited: bool,
    pub unreadable_pages: u64,
    /// Seconds from the start of copying until the kernel could let the process go.
    pub held: f64,
}

/// What a core is written with.
pub(super) struct Means<'a> {
    pub(super) level: Option<i32>,
    pub(super) threads: usize,
    pub(super) arena: Arc<Arena>,
    pub(super) progress: &'a Progress,
    /// Returns why no more may be written, if the disk has no room.
    pub(super) room: &'a (dyn Fn() -> Option<String> + Sync),
}

/// Writes a core to `target`. The process is let go as soon as its memory is copied. An error means that there is no core.
pub(super) fn save(plan: Plan, target: &Target, means: &Means<'_>) -> Result<Saved, ProcessError> {
    let mut output = Output::open(target, means.level)?;
    let saved = write(plan, &mut output, means);
    if saved.is_err() {
        // It holds nothing of use.
        output.discard();
    }
    saved
}

fn write(mut plan: Plan, output: &mut Output, means: &Means<'_>) -> Result<Saved, ProcessError> {
    let header = plan.head().get(..FILE_HEADER as usize).unwrap_or_default().to_vec();
    // Until it is complete. The header of a stream cannot be written again.
    plan.mark(output.can_be_marked());
    let (limited, head) = (plan.limited, plan.head().len() as u64);
    let Copied { totals, outcome, size, from_process, unreadable_pages, held } = copy(plan, output, means)?;
    let mut outcome = outcome.unwrap_or(Outcome::Complete);
    if !outcome.is_success() && totals.placed <= head {
        return Err(match outcome {
            Outcome::Cancelled => ProcessError::NotWritten("stopped before anything was written".into()),
            other => ProcessError::NotWritten(other.why().unwrap_or_default().to_owned()),
        });
    }
    means.progress.enter(Phase::Finish);
    if outcome.is_success()
        && let Err(error) = output.finish(size, &header)
    {
        outcome = WriteError::from(error).outcome(&output.name());
    }
    if outcome.is_success() {
        output.commit()?
    } else {
        output.keep()?
    }
    Ok(Saved {
        outcome,
        core_bytes: size,
        page_bytes: totals.counts.pages,
        buffer_bytes: means.arena.capacity() as u64,
        buffer_was_short: means.arena.was_starved(),
        from_process,
        limited,
        unreadable_pages,
        held,
    })
}

struct Copied {
    totals: Totals,
    outcome: Option<Outcome>,
    size: u64,
    from_process: bool,
    unreadable_pages: u64,
    held: f64,
}

fn copy(plan: Plan, output: &mut Output, means: &Means<'_>) -> Result<Copied, ProcessError> {
    let began = Instant::now();
    let file = output.file();
    let layout = output.layout(&file);
    // Fails here rather than in the threads if a codec cannot be set up.
    Packer::new(layout)?;
    let (arena, threads) = (&means.arena, means.threads.max(1));
    let pipeline = Pipeline::new(Arc::clone(arena), means.progress, (output.name(), layout), true);
    means.progress.enter(Phase::Copy);
    let buffers = (0..4 * threads + 4).map(|_| Packed::default());
    let mut workers = Workers::new(&pipeline, "pack", buffers);
    let lane = workers.lane();
    let source = plan.open(Arc::clone(arena));
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        let closing = Closing { pipeline: &pipeline, is_done: &is_done };
        // Threads have the niceness of the thread that creates them. This one is as before for the copy, for which the
        // process waits; lowering it again takes CAP_SYS_NICE.
        let before = rustix::process::getpriority_process(None).unwrap_or(0);
        let _ = rustix::process::setpriority_process(None, before + NICE);
        let write = || pipeline.write(output, lane);
        let writer = Builder::new().name("write".into()).spawn_scoped(scope, write).map_err(no_thread)?;
        if workers.create(scope, threads) == 0 {
            return Err(no_thread(io::ErrorKind::WouldBlock.into()));
        }
        drop(workers);
        // Without this thread, the disk's own limit ends what has no room.
        let watch = || watch_room(&pipeline, means.room, &is_done);
        let watcher = Builder::new().name("room".into()).spawn_scoped(scope, watch).ok();
        let _ = rustix::process::setpriority_process(None, before);
        let (size, cut, from_process) = match source {
            Source::Process { input, memory, tiler, size } => {
                thread::scope(|copiers| {
                    spawn_up_to(copiers, "copy", threads - 1, || || pipeline.copy(&memory, &tiler));
                    pipeline.copy(&memory, &tiler);
                });
                drop(input);
                (size, None, true)
            }
            Source::Pipe(mut tiler) => {
                let cut = take(&pipeline, &mut tiler);
                (tiler.at(), cut, false)
            }
        };
        // The kernel lets the process go: its pipe is closed.
        let held = began.elapsed().as_secs_f64();
        means.progress.enter(Phase::Pack);
        pipeline.queue.complete();
        arena.drain();
        let totals = writer.join().unwrap_or_default();
        drop(closing);
        if let Some(watcher) = watcher {
            watcher.thread().unpark();
        }
        let (unreadable_pages, _) = pipeline.missing();
        Ok(Copied { totals, outcome: pipeline.outcome().or(cut), size, from_process, unreadable_pages, held })
    })
}

/// Takes all that comes through the pipe. Returns the outcome of a stream that is cut.
fn take(pipeline: &Pipeline<'_>, tiler: &mut StreamTiler) -> Option<Outcome> {
    while !pipeline.is_over() {
        let before = tiler.at();
        match tiler.next() {
            Ok(Some(tile)) => {
                pipeline.progress.advance(Phase::Copy, tiler.at() - before);
                pipeline.queue.push(tile);
            }
            Ok(None) if tiler.is_whole() || pipeline.is_over() => return None,
            Ok(None) => {
                return Some(Outcome::ReadFailed(format!(
                    "the kernel ended the core after {} bytes: the process was killed while it was dumped",
                    tiler.at()
                )));
            }
            Err(error) => {
                return Some(Outcome::ReadFailed(format!("cannot read the kernel's pipe: {error}")));
            }
        }
    }
    None
}

/// Ends the run once there is no room on the disk.
fn watch_room(pipeline: &Pipeline<'_>, room: &(dyn Fn() -> Option<String> + Sync), is_done: &AtomicBool) {
    while !is_done.load(Ordering::Acquire) {
        if let Some(why) = room() {
            pipeline.end(Outcome::DiskFull(why));
            return;
        }
        thread::park_timeout(ROOM_INTERVAL);
    }
}

/// Ends all threads when it is dropped, on an error or a panic too.
struct Closing<'a, 'b> {
    pipeline: &'a Pipeline<'b>,
    is_done: &'a AtomicBool,
}

impl Drop for Closing<'_, '_> {
    fn drop(&mut self) {
        self.is_done.store(true, Ordering::Release);
        self.pipeline.close();
    }
}
