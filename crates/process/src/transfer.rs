//! Copying the memory of a process, and packing and writing the copy.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, Builder, Thread};
use std::time::{Duration, Instant};

use pagehaul_elfcore::{FILE_HEADER, set_incomplete};
use pagehaul_pool::{Workers, spawn_up_to};
use pagehaul_run::{Outcome, Phase};
use rustix::io::Errno;

use crate::copy::{Memory, Shared};
use crate::error::ProcessError;
use crate::error::no_thread;
use crate::hold::CoreSource;
use crate::job::Job;
use crate::layout::{Layout, Segment};
use crate::mapping::Mapping;
use crate::options::Mode;
use crate::output::Output;
use crate::pack::{Packed, Packer};
use crate::pipeline::{Pipeline, Totals};
use crate::populated::Populated;
use crate::prepare::Prepared;
use crate::report::Seconds;
use crate::tiler::Tiler;
use crate::urgent::Urgent;

/// How often the thread that holds a process checks whether the user has cancelled the run.
const CANCEL_INTERVAL: Duration = Duration::from_millis(20);

/// What the copying threads wait for. `None` if there will be nothing to copy.
type Copying = OnceLock<Option<(Memory, Mutex<Tiler>)>>;

/// Threads that wait for a process to be held. Ends them when it is dropped, on an error or a panic.
struct Waiting<'a, 'b> {
    pipeline: &'a Pipeline<'b>,
    copying: &'a Copying,
}

impl Waiting<'_, '_> {
    /// Disarms the guard: the threads have the memory and the tiler that they wait for.
    fn finish(self) {
        std::mem::forget(self);
    }
}

impl Drop for Waiting<'_, '_> {
    fn drop(&mut self) {
        self.copying.get_or_init(|| None);
        self.pipeline.close();
    }
}

/// A copying thread at work. Wakes `waits` when it ends, for whatever reason.
struct Busy<'a> {
    count: &'a AtomicUsize,
    waits: &'a Thread,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Release);
        self.waits.unpark();
    }
}

/// What copying and packing resulted in.
pub(crate) struct Transferred {
    pub(crate) totals: Totals,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) missing: (u64, u64),
    pub(crate) blind: bool,
    /// Whether it holds shared memory.
    pub(crate) shared: bool,
    pub(crate) seconds: Seconds,
    /// The file header of a complete core.
    pub(crate) header: Vec<u8>,
    pub(crate) size: u64,
    pub(crate) mapped: u64,
    pub(crate) excluded: u64,
    pub(crate) threads: usize,
    /// Threads that copied.
    pub(crate) copiers: usize,
}

impl Job<'_> {
    /// Stops the process, reads what the core is made from, copies the memory, lets the process go, and packs.
    pub(crate) fn transfer(
        &self,
        output: &mut Output,
        prepared: &Prepared,
    ) -> Result<Transferred, ProcessError> {
        if self.progress.is_cancelled() {
            return Err(ProcessError::Cancelled(self.pid));
        }
        let mark = output.can_be_marked();
        let file = output.file();
        let layout = output.layout(&file);
        // Fails here rather than in the threads if a codec cannot be set up.
        Packer::new(layout)?;
        let (arena, threads) = (&prepared.arena, self.options.threads.max(1));
        let stopped = self.options.mode == Mode::Stopped;
        let pipeline = Pipeline::new(Arc::clone(arena), self.progress, (output.name(), layout), stopped);
        self.progress.enter(Phase::Copy);
        let began = Instant::now();
        let mut seconds = Seconds::default();
        // Before the threads, which may take every process that the system allows.
        let helper = (self.options.mode == Mode::Snapshot).then(|| self.helper(prepared)).transpose()?;
        // Enough for packing threads to go on while others have the CPU that the writer needs.
        let buffers = (0..4 * threads + 4).map(|_| Packed::default());
        let mut workers = Workers::new(&pipeline, "pack", buffers);
        let lane = workers.lane();
        let copying = OnceLock::new();
        let (busy, this) = (AtomicUsize::new(0), thread::current());
        thread::scope(|scope| {
            let waiting = Waiting { pipeline: &pipeline, copying: &copying };
            // Every thread is created before the process is held: a thread that cannot be created must not be noticed
            // while it is. One of each kind is needed, the others make it faster.
            let write = || pipeline.write(output, lane);
            let writer = Builder::new().name("write".into()).spawn_scoped(scope, write).map_err(no_thread)?;
            let copy = || {
                || {
                    let Some((memory, tiler)) = copying.wait() else { return };
                    let _busy = Busy { count: &busy, waits: &this };
                    let _urgent = stopped.then(Urgent::begin);
                    pipeline.copy(memory, tiler);
                }
            };
            if workers.create(scope, 1) == 0 || spawn_up_to(scope, "copy", 1, copy) == 0 {
                return Err(no_thread(Errno::AGAIN.into()));
            }
            // The process waits for those that copy.
            let copiers = 1 + spawn_up_to(scope, "copy", threads - 1, copy);
            workers.create(scope, threads - 1);
            drop(workers);

            let (source, held) = self.hold(prepared, helper, mark)?;
            seconds.pause = held.pause().as_secs_f64();
            let CoreSource { layout, mappings, pagemap, original, tid, threads } = source;
            let is_shared = |segment: &Segment| mappings.get(segment.mapping).is_some_and(Mapping::is_shared);
            let shared = layout.segments.iter().any(is_shared);
            let is_huge = |segment: &Segment| {
                mappings
                    .get(segment.mapping)
                    .is_some_and(|mapping| mapping.has(b"ht") && !mapping.is_shared())
            };
            let huge = layout.segments.iter().any(is_huge);
            let Layout { head, segments, size, mapped, excluded } = layout;
            let mut header = head.get(..FILE_HEADER as usize).unwrap_or_default().to_vec();
            set_incomplete(&mut header, false);
            let memory = Memory::open(tid, self.shared(&mappings))?;
            let populated = Populated::new(tid, pagemap, original, segments, mappings);
            let tiler = Mutex::new(Tiler::new(populated, head, size, Arc::clone(arena)));
            let copy_began = Instant::now();
            busy.store(copiers, Ordering::Release);
            let copying = copying.get_or_init(|| Some((memory, tiler)));
            // All of them may be waiting for an output that takes no more: a cancellation is noticed here then, so that
            // the process does not stay stopped.
            while busy.load(Ordering::Acquire) > 0 {
                pipeline.is_over();
                thread::park_timeout(CANCEL_INTERVAL);
            }
            seconds.copy = copy_began.elapsed().as_secs_f64();
            let lost = held.lost().filter(|_| huge);
            if let Some(pause) = held.release() {
                seconds.pause = pause.as_secs_f64();
            }
            self.progress.enter(Phase::Pack);
            pipeline.queue.complete();
            arena.drain();
            waiting.finish();
            let totals = writer.join().unwrap_or_default();
            seconds.pack = began.elapsed().as_secs_f64();
            let is_blind = |(_, tiler): &(_, Mutex<Tiler>)| tiler.lock().is_ok_and(|tiler| tiler.is_blind());
            let blind = copying.as_ref().is_some_and(is_blind);
            let outcome = pipeline.outcome().filter(|outcome| !outcome.is_success());
            let outcome = outcome.or(lost.map(Outcome::ReadFailed));
            let missing = pipeline.missing();
            Ok(Transferred {
                totals,
                outcome,
                missing,
                blind,
                shared,
                seconds,
                header,
                size,
                mapped,
                excluded,
                threads,
                copiers,
            })
        })
    }

    /// Which pages the process may share with a parent or child.
    fn shared(&self, mappings: &[Mapping]) -> Shared {
        if self.options.mode == Mode::Snapshot {
            return Shared::All;
        }
        Shared::of(mappings)
    }
}
