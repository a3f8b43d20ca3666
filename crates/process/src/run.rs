//! A core from its beginning to its end.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, Builder, Thread};
use std::time::{Duration, Instant};

use pagehaul_output::WriteError;
use pagehaul_pool::spawn_up_to;
use pagehaul_run::{Outcome, Phase, Progress};

use crate::agent::Held;
use crate::arena::Arena;
use crate::copy::{Memory, Shared};
use crate::cutter::{Cutter, TILE};
use crate::elf;
use crate::filter::Kinds;
use crate::fork;
use crate::layout::{self, Layout, Segment, lay_out};
use crate::mapping::{self, Mapping};
use crate::output::{Output, Target};
use crate::pack::Packer;
use crate::pagemap::Pagemap;
use crate::pipeline::{Channels, Pipeline, Totals};
use crate::populated::Populated;
use crate::procfs::{self, Pid, Status};
use crate::report::{Report, Seconds};
use crate::stop::Stopped;
use crate::threads::{self, ThreadState};
use crate::{Mode, Options, ProcessError, limits};

/// Between two looks at whether the user asks for an end.
const HEED: Duration = Duration::from_millis(20);
/// Tiles of room that every thread has at least.
const TILES_PER_THREAD: u64 = 4;
/// What a process may grow between the look at it and its stop: a part of it, and bytes.
const GROWTH: (u64, u64) = (16, 16 << 20);

/// First argument of this program when it is to be the helper that holds a snapshot: it has to call
/// [`hold_snapshot`](crate::hold_snapshot) with the two numbers that follow.
pub const SNAPSHOT_HELPER: &str = "hold-snapshot";

/// Writes a core of a process. A core that could not be made whole, but of which something was written, is marked
/// incomplete and gives a report that says so; an error means that there is no core.
pub fn core(
    pid: Pid,
    target: &Target,
    options: &Options,
    progress: &Progress,
) -> Result<Report, ProcessError> {
    let begun = Instant::now();
    procfs::examine(pid)?;
    let name = procfs::read_text(pid, "comm")?.trim_end().to_owned();
    let kinds = Kinds::of_process(pid).with(options.include).without(options.exclude);
    let mut output = Output::open(target, options.level)?;
    let job = Job { pid, kinds, options, progress };
    let report = job.run(&mut output, begun);
    if report.is_err() {
        // Nothing is in it that could be of use.
        output.discard();
    }
    Ok(Report { name, ..report? })
}

struct Job<'a> {
    pid: Pid,
    kinds: Kinds,
    options: &'a Options,
    progress: &'a Progress,
}

/// What is made ready before a process is stopped.
struct Prepared {
    arena: Arc<Arena>,
    /// Its mappings a moment ago.
    mappings: Vec<Mapping>,
    /// The letter of its state before it was stopped.
    state: u8,
}

/// What is taken down while a process is stopped.
struct Moment {
    layout: Layout,
    mappings: Vec<Mapping>,
    pagemap: Pagemap,
    /// Of a snapshot, the page tables of the process itself.
    original: Option<Pagemap>,
    /// A living thread, through which the memory is seen.
    tid: Pid,
    threads: usize,
}

/// What is held while it is copied.
enum Hold {
    /// The process, stopped.
    Process(Stopped),
    /// A snapshot of it.
    Snapshot(Held),
    /// Nothing: it was stopped for so long, and runs.
    Nothing(Duration),
}

impl Hold {
    /// How long the process was stopped, if it runs again.
    fn pause(&self) -> Duration {
        match self {
            Self::Process(_) => Duration::ZERO,
            Self::Snapshot(held) => held.pause,
            Self::Nothing(pause) => *pause,
        }
    }

    /// Lets go, and says how long the process was stopped if it was until now.
    fn release(self) -> Option<Duration> {
        match self {
            Self::Process(stopped) => Some(stopped.resume()),
            Self::Snapshot(_) | Self::Nothing(_) => None,
        }
    }
}

/// What the copying threads wait for: the memory, and how it is cut. None if there will be none.
type CopySource = OnceLock<Option<(Memory, Mutex<Cutter>)>>;

/// Threads that wait for a process to be held. Dropped on the way out of an error or panic, it ends them.
struct Waiting<'a, 'b> {
    pipeline: &'a Pipeline<'b>,
    source: &'a CopySource,
}

impl Waiting<'_, '_> {
    /// They have all they wait for.
    fn finish(self) {
        std::mem::forget(self);
    }
}

impl Drop for Waiting<'_, '_> {
    fn drop(&mut self) {
        self.source.get_or_init(|| None);
        self.pipeline.close();
    }
}

/// A copying thread at work; `waits` hears of its end, whatever the reason.
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

/// What came of copying and packing.
struct Transferred {
    totals: Totals,
    outcome: Option<Outcome>,
    missing: (u64, u64),
    blind: bool,
    /// Whether there is shared memory in it.
    shared: bool,
    seconds: Seconds,
    /// The first bytes of the file as they are once it is whole.
    header: Vec<u8>,
    size: u64,
    mapped: u64,
    left_out: u64,
    threads: usize,
    /// Threads that copied.
    copiers: usize,
}

impl Job<'_> {
    fn run(&self, output: &mut Output, begun: Instant) -> Result<Report, ProcessError> {
        let prepared = self.prepare()?;
        let arena = &prepared.arena;
        let prepare = begun.elapsed().as_secs_f64();
        let transferred = self.transfer(output, &prepared)?;
        let Transferred { totals, missing, mut seconds, .. } = transferred;
        seconds.prepare = prepare;
        let mut outcome = transferred.outcome.unwrap_or(Outcome::Complete);
        if !outcome.is_success() && totals.placed <= transferred.header.len() as u64 {
            return Err(self.nothing(outcome));
        }
        let mut output_bytes = output.appended();
        self.progress.enter(Phase::Finish);
        let finishing = Instant::now();
        if outcome.is_success() {
            match output.finish(transferred.size, &transferred.header) {
                Ok(bytes) => output_bytes = bytes,
                Err(error) => outcome = WriteError::from(error).outcome(&output.name()),
            }
        }
        // In a file that cannot get its name there is nothing for anybody.
        if outcome.is_success() {
            output.commit()?
        } else {
            output.keep()?
        }
        seconds.finish = finishing.elapsed().as_secs_f64();
        Ok(Report {
            outcome,
            pid: self.pid,
            name: String::new(),
            mode: self.options.mode.name(),
            threads_saved: transferred.threads,
            output: output.name(),
            codec: self.options.level.map_or("none".into(), |level| format!("zstd:{level}")),
            threads: transferred.copiers,
            kinds: self.kinds.to_string(),
            mapped_bytes: transferred.mapped,
            left_out_bytes: transferred.left_out,
            core_bytes: transferred.size,
            page_bytes: totals.counts.pages,
            zero_bytes: totals.counts.zeros,
            output_bytes,
            unreadable_pages: missing.0,
            buffer_bytes: arena.capacity() as u64,
            buffer_was_short: self.options.mode == Mode::Stopped && arena.was_starved(),
            seconds,
            warnings: self.warnings(missing, transferred.blind, transferred.shared),
        })
    }

    /// Why there is no core.
    fn nothing(&self, outcome: Outcome) -> ProcessError {
        match outcome {
            Outcome::Cancelled => ProcessError::Cancelled(self.pid),
            Outcome::DiskFull(why) | Outcome::WriteFailed(why) => ProcessError::NotWritten(why),
            Outcome::ReadFailed(why) if procfs::path(self.pid, "stat").exists() => ProcessError::Refused(why),
            _ => ProcessError::Ended(self.pid),
        }
    }

    /// Takes the memory for the copy before the process is stopped: as much as it will need, if that is allowed.
    fn prepare(&self) -> Result<Prepared, ProcessError> {
        let least = (self.options.threads as u64 + 1) * TILES_PER_THREAD * TILE;
        let stopped = self.options.mode == Mode::Stopped;
        let most = self.options.max_memory.unwrap_or_else(limits::half_of_available);
        let mut wanted = least;
        let tid = living(self.pid)?;
        let mappings = mapping::read(self.pid, tid)?;
        let stored = layout::select(self.pid, &mappings, self.kinds);
        let expected = estimate(self.pid, &mappings, &stored);
        self.progress.expect(expected);
        if stopped {
            wanted = (expected + expected / GROWTH.0 + GROWTH.1).max(least);
        }
        let capacity = wanted.min(most.max(least));
        let resource = |action| move |source| ProcessError::Resource { action, source };
        let arena = Arena::new(capacity as usize).map_err(resource("take memory for the copy"))?;
        arena.populate(capacity.min(expected + least) as usize, self.options.threads);
        let state = Status::read(tid)?.state.bytes().next().unwrap_or(b'R');
        // The nearer to the stop the better: taking memory can take seconds.
        let mappings = mapping::read(self.pid, tid)?;
        Ok(Prepared { arena, mappings, state })
    }

    /// Stops the process, takes down what it is, copies, lets it go, and packs.
    fn transfer(&self, output: &mut Output, prepared: &Prepared) -> Result<Transferred, ProcessError> {
        if self.progress.is_cancelled() {
            return Err(ProcessError::Cancelled(self.pid));
        }
        let mark = output.can_be_marked();
        let file = output.file();
        let pack_layout = output.layout(&file);
        let packers: Vec<Packer<'_>> =
            (0..self.options.threads).map(|_| Packer::new(pack_layout)).collect::<Result<_, _>>()?;
        let arena = &prepared.arena;
        let stopped = self.options.mode == Mode::Stopped;
        let pipeline = Pipeline::new(Arc::clone(arena), self.progress, output.name(), stopped);
        self.progress.enter(Phase::Copy);
        let began = Instant::now();
        let mut seconds = Seconds::default();
        // Before the threads, which may take every process that the system allows.
        let helper = (self.options.mode == Mode::Snapshot).then(|| self.helper(prepared)).transpose()?;
        let channels = Channels::new(packers.len());
        let source = OnceLock::new();
        let (busy, this) = (AtomicUsize::new(0), thread::current());
        let no_thread = |source| ProcessError::Resource { action: "start a thread", source };
        thread::scope(|scope| {
            let waiting = Waiting { pipeline: &pipeline, source: &source };
            // Every thread is started before the process is held: one that cannot be started must not be found out
            // about while it is. One of each kind is needed, the others make it faster.
            let Channels { free: (give, take), done: (send, receive) } = channels;
            let write = || pipeline.write(output, receive, give);
            let writer = Builder::new().name("write".into()).spawn_scoped(scope, write).map_err(no_thread)?;
            let mut packers = packers.into_iter();
            let mut packer = || {
                let (pipeline, take, send) = (&pipeline, take.clone(), send.clone());
                let packer = packers.next();
                move || packer.into_iter().for_each(|packer| pipeline.pack(packer, &take, &send))
            };
            let copier = || {
                || {
                    let Some((memory, cutter)) = source.wait() else { return };
                    let _busy = Busy { count: &busy, waits: &this };
                    pipeline.copy(memory, cutter);
                }
            };
            let others = self.options.threads.saturating_sub(1);
            Builder::new().name("pack".into()).spawn_scoped(scope, packer()).map_err(no_thread)?;
            Builder::new().name("copy".into()).spawn_scoped(scope, copier()).map_err(no_thread)?;
            // The process waits for those that copy.
            let copiers = 1 + spawn_up_to(scope, "copy", others, copier);
            spawn_up_to(scope, "pack", others, &mut packer);
            drop((take, send));

            let (moment, held) = self.hold(prepared, helper, mark)?;
            seconds.pause = held.pause().as_secs_f64();
            let Moment { layout, mappings, pagemap, original, tid, threads } = moment;
            let is_shared = |segment: &Segment| mappings.get(segment.mapping).is_some_and(Mapping::is_shared);
            let shared = layout.segments.iter().any(is_shared);
            let Layout { head, segments, size, mapped, left_out } = layout;
            let mut header = head.get(..elf::FILE_HEADER).unwrap_or_default().to_vec();
            elf::mark(&mut header, false);
            let memory = Memory::open(tid, self.shared(&mappings))?;
            let populated = Populated::new(tid, pagemap, original, segments, mappings);
            let cutter = Mutex::new(Cutter::new(populated, head, size, Arc::clone(arena)));
            let copying = Instant::now();
            busy.store(copiers, Ordering::Release);
            let source = source.get_or_init(|| Some((memory, cutter)));
            // All of them may be waiting for an output that takes no more: who asks for an end then is heard here, so
            // that the process does not stay stopped.
            while busy.load(Ordering::Acquire) > 0 {
                pipeline.is_over();
                thread::park_timeout(HEED);
            }
            seconds.copy = copying.elapsed().as_secs_f64();
            if let Some(pause) = held.release() {
                seconds.pause = pause.as_secs_f64();
            }
            self.progress.enter(Phase::Pack);
            pipeline.queue.complete();
            arena.drain();
            waiting.finish();
            let totals = writer.join().unwrap_or_default();
            seconds.pack = began.elapsed().as_secs_f64();
            let is_blind =
                |(_, cutter): &(_, Mutex<Cutter>)| cutter.lock().is_ok_and(|cutter| cutter.is_blind());
            let blind = source.as_ref().is_some_and(is_blind);
            let (outcome, missing) = (pipeline.outcome(), pipeline.missing());
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
                left_out,
                threads,
                copiers,
            })
        })
    }

    /// Stops the process, or has a snapshot taken of it, and takes down what it is.
    fn hold(
        &self,
        prepared: &Prepared,
        helper: Option<Held>,
        incomplete: bool,
    ) -> Result<(Moment, Hold), ProcessError> {
        if let Some(mut helper) = helper {
            helper.take()?;
            let moment = self.moment_of(&helper, incomplete)?;
            return Ok((moment, Hold::Snapshot(helper)));
        }
        let mut stopped = Stopped::stop(self.pid)?;
        let moment = self.take_down(&mut stopped, prepared, incomplete)?;
        let held = match self.options.mode {
            Mode::Live => Hold::Nothing(stopped.resume()),
            _ => Hold::Process(stopped),
        };
        Ok((moment, held))
    }

    /// Registers, mappings and all else that a core says of a stopped process.
    fn take_down(
        &self,
        held: &mut Stopped,
        prepared: &Prepared,
        incomplete: bool,
    ) -> Result<Moment, ProcessError> {
        let pid = held.pid();
        let mut states = Vec::new();
        for &thread in held.threads() {
            states.extend(ThreadState::read(pid, thread)?);
        }
        let tid = states.first().ok_or(ProcessError::Ended(pid))?.tid();
        let path = procfs::path(pid, &format!("task/{tid}/pagemap"));
        let mut pagemap = Pagemap::open(&path).map_err(|source| ProcessError::Proc { path, source })?;
        let mappings = mapping::read_again(pid, tid, &prepared.mappings, &mut pagemap)?;
        let notes = threads::notes(pid, &states, prepared.state, &mappings)?;
        let stored = layout::select(pid, &mappings, self.kinds);
        let layout = lay_out(&mappings, &stored, &notes, incomplete);
        Ok(Moment { layout, mappings, pagemap, original: None, tid, threads: states.len() })
    }

    /// Starts the helper that takes a snapshot.
    fn helper(&self, prepared: &Prepared) -> Result<Held, ProcessError> {
        let failed = |source| ProcessError::Resource { action: "find this program", source };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg(SNAPSHOT_HELPER);
        fork::check(self.pid, &prepared.mappings)?;
        Held::start(self.pid, prepared.state, &mut command)
    }

    /// What a snapshot says: the process's notes, and the snapshot's memory.
    fn moment_of(&self, held: &Held, incomplete: bool) -> Result<Moment, ProcessError> {
        let tid = held.pid;
        let open = |path: PathBuf| Pagemap::open(&path).map_err(|source| ProcessError::Proc { path, source });
        let pagemap = open(procfs::path(tid, "pagemap"))?;
        let original = open(procfs::path(self.pid, &format!("task/{}/pagemap", living(self.pid)?)))?;
        let mappings = mapping::read(tid, tid)?;
        let stored = layout::select(tid, &mappings, self.kinds);
        let layout = lay_out(&mappings, &stored, &held.notes, incomplete);
        Ok(Moment { layout, mappings, pagemap, original: Some(original), tid, threads: held.threads })
    }

    /// What of its memory a process may have in common with a parent or child.
    fn shared(&self, mappings: &[Mapping]) -> Shared {
        if self.options.mode == Mode::Snapshot {
            return Shared::All;
        }
        let forked = mappings.iter().filter(|mapping| mapping.has_forked());
        Shared::In(forked.map(|mapping| mapping.range.clone()).collect())
    }

    fn warnings(&self, missing: (u64, u64), blind: bool, shared: bool) -> Vec<String> {
        let mut warnings = Vec::new();
        if missing.0 > 0 {
            warnings.push(format!(
                "{} pages could not be read and read as zeros, the first at {:#x}: beyond the end of a mapped file, \
                 guard pages, or taken away meanwhile",
                missing.0, missing.1
            ));
        }
        if blind {
            warnings.push(
                "shared memory that this process has not touched is left out: only root may look for it (map_files)"
                    .into(),
            );
        }
        if shared && self.options.mode == Mode::Snapshot {
            warnings.push(
                "shared memory was copied while the process ran: a fork does not keep it as it was".into(),
            );
        }
        if self.options.mode == Mode::Live {
            warnings.push("the process ran while its memory was copied: it is not of one moment".into());
        }
        warnings
    }
}

/// Bytes of pages that probably exist in what is stored.
fn estimate(pid: Pid, mappings: &[Mapping], stored: &[u64]) -> u64 {
    let existing = |mapping: &Mapping| {
        let is_of_file = mapping.has_file() && !mapping.has(b"ht");
        if !is_of_file {
            return Some(mapping.resident + mapping.swapped);
        }
        // Blocks are counted where they are allocated only; those of tmpfs and memfd include what is swapped out.
        let allocated = fs::metadata(mapping.link(pid)).ok()?.blocks().saturating_mul(512);
        Some(allocated.saturating_add(mapping.anonymous + mapping.swapped))
    };
    let each = mappings.iter().zip(stored);
    each.map(|(mapping, &stored)| existing(mapping).map_or(stored, |bytes| bytes.min(stored))).sum()
}

/// A thread of the process that has not ended.
fn living(pid: Pid) -> Result<Pid, ProcessError> {
    let tids = procfs::threads(pid)?;
    let alive = |tid: &Pid| Status::read(*tid).is_ok_and(|status| !status.is_dead());
    tids.into_iter().find(alive).ok_or(ProcessError::Zombie(pid))
}
