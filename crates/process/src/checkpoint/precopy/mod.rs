//! Copying memory while processes run, so that only what they write to meanwhile is copied while they are frozen.
//!
//! CRIU cannot be given memory, but it asks the kernel which pages there are (PAGEMAP_SCAN), and pagehaul answers in the
//! kernel's place: that there are none in the mappings whose pages it has copied. CRIU's images are complete without them but
//! for two files, which [`merge`] completes.

pub(super) mod merge;
mod page_set;
mod pinned;
mod registration;
pub(super) mod seccomp;
mod smaps;
mod spill;
mod store;
mod tracked;
mod userfault;
mod watch;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pagehaul_run::Progress;

use super::base::Base;
use super::kept::CriuImage;
use super::marks::{self, Marks};
use super::options::PreCopyReport;
use super::page_list;
use super::tree::Process;
use crate::procfs::{self, Status};
use crate::units::{Pid, page_size};
use merge::Merged;
use smaps::Smaps;
pub(super) use spill::Spill;
pub(super) use store::Spilled;
use store::{PageStore, Room};
use tracked::Tracked;
pub(super) use watch::Watch;

/// Rounds at most before CRIU is started, and again before it freezes the processes.
const ROUNDS: usize = 8;
/// While CRIU waits, no round begins after this time: it gives up after [`CRIU_TIMEOUT`](super::dump::CRIU_TIMEOUT).
const ROUNDS_TIME: Duration = Duration::from_secs(5);
/// A round that copies less ends the rounds: what is written meanwhile takes a millisecond in the freeze.
const ENOUGH: u64 = 1 << 20;
/// Processes with less private anonymous memory are left to CRIU, which saves it in a few milliseconds.
const LITTLE: u64 = 4 << 20;
/// How long the processes run before the first copies, so that pages they write to all the time are found.
const OBSERVED: Duration = Duration::from_millis(100);
/// Copies of less memory than this are kept in memory.
const FEW: u64 = 64 << 20;
/// About what a thread compresses while the processes are observed, in bytes: 400 MB/s.
const COMPRESSED: u64 = 40 << 20;

/// What connects a checkpoint with the one before and the next.
pub(super) struct Incremental<'a> {
    /// Marks of writes since an earlier checkpoint.
    pub(super) marks: Option<Marks>,
    pub(super) base: Option<&'a Base>,
    /// Whether marks are kept afterwards.
    pub(super) keeps_marks: bool,
}

/// The processes of a tree, whose memory is copied while they run.
pub(super) struct PreCopy {
    processes: Vec<Tracked>,
    room: Arc<Room>,
    rounds: usize,
    threads: usize,
    /// Whether the first copies are spilled.
    spills: bool,
    /// Bytes that had not to be copied so far, because the base may have them.
    trusted: u64,
    /// Answers what takes the kernel long in the freeze, if it is worth it and this system can.
    smaps: Option<Smaps>,
    /// Why it could not, for all processes or for one.
    walked: Vec<String>,
    /// The mappings of frozen processes with flags that CRIU may not restore, as lines of smaps.
    flagged: HashMap<Pid, Vec<u8>>,
}

impl PreCopy {
    /// Starts to track the writes of processes that have about `expected` bytes, and copies their memory, at most `most` bytes of it
    /// to memory, the rest to the container. An error is the reason why it cannot be done.
    ///
    /// Of processes whose `marks` were kept since the checkpoint `base`, only what was written to since is copied.
    pub(super) fn begin(
        tree: &[Process],
        Incremental { mut marks, base, keeps_marks }: Incremental<'_>,
        expected: u64,
        most: u64,
        spill: &mut Spill<'_>,
        progress: &Progress,
    ) -> Result<Self, String> {
        no_seccomp(tree)?;
        // It reads smaps of this program: before the copies, which the kernel would look at page by page.
        let (smaps, walked) = match Smaps::new(tree, expected) {
            Ok(smaps) => (smaps, Vec::new()),
            Err(reason) => (None, vec![reason]),
        };
        // Only what is written to is taken of it. Processes grow meanwhile.
        let needed = expected.saturating_mul(2) + (64 << 20);
        let room = Room::new(needed.min(most.max(16 << 20)), page_size())
            .map_err(|error| format!("the memory for its copy cannot be reserved: {error}"))?;
        let named = |process: &Process, reason: String| match tree.len() {
            1 => reason,
            _ => format!("process {}: {reason}", process.pid),
        };
        let is_large =
            |process: &&Process| Status::read(process.pid).is_ok_and(|status| status.anonymous >= LITTLE);
        let large: Vec<&Process> = tree.iter().filter(is_large).collect();
        if large.is_empty() {
            return Err("there is little of it".into());
        }
        let mut processes = Vec::new();
        for process in large {
            let is_this = |marks: &mut Marks| {
                let place = marks
                    .processes
                    .iter()
                    .position(|marked| (marked.pid, marked.start) == process.identity());
                place.map(|place| marks.processes.swap_remove(place))
            };
            let kept = marks.as_mut().and_then(is_this);
            let base = base.filter(|base| marks.as_ref().is_some_and(|marks| marks.checkpoint == base.id()));
            let pages = |image| base.map_or_else(Vec::new, |base| base.addresses(&page_list::name(image)));
            match Tracked::new(process, &room, kept, pages, keeps_marks) {
                Ok(tracked) => processes.push(tracked),
                // Many programs make short-lived children, which CRIU will not find either.
                Err(_) if process.is_dead() => {}
                Err(reason) if reason == pinned::USERFAULTFD => {
                    let holder = tree.first().and_then(|root| marks::holder(root.pid));
                    let reason = holder.map_or(reason, |holder| {
                        format!(
                            "its writes are marked for an earlier checkpoint (--keep-marks), and process {holder}, which holds \
                             the marks, did not hand them over; end it with `kill -9 {holder}`"
                        )
                    });
                    return Err(named(process, reason));
                }
                Err(reason) => return Err(named(process, reason)),
            }
        }
        let trusted = processes
            .iter()
            .filter(|process| process.is_marked)
            .map(|process| Status::read(process.pid).map_or(0, |status| status.anonymous));
        let trusted = trusted.sum();
        let mut this = Self {
            processes,
            room,
            rounds: 0,
            threads: spill.threads,
            spills: false,
            trusted,
            smaps,
            walked,
            flagged: HashMap::new(),
        };
        let written = this.observe(expected, progress)?;
        this.spills = expected > most || expected > FEW && is_little(written, spill.threads);
        this.rounds(Some(spill), progress)?;
        // The rounds take most of the time until CRIU starts.
        no_seccomp(tree)?;
        Ok(this)
    }

    /// Lets the processes run, and returns how many bytes they write to. Pages that they write to all the time would be spilled in vain.
    fn observe(&mut self, expected: u64, progress: &Progress) -> Result<u64, String> {
        let mut observed = self.processes.iter_mut().filter(|process| !process.is_marked).peekable();
        if expected <= FEW || observed.peek().is_none() {
            return Ok(0);
        }
        for process in observed {
            if let Err(reason) = process.protect()
                && !process.is_dead()
            {
                return Err(reason);
            }
        }
        let begun = Instant::now();
        while begun.elapsed() < OBSERVED && !progress.is_cancelled() {
            std::thread::sleep(OBSERVED / 10);
        }
        Ok(self.processes.iter().map(Tracked::written_bytes).sum())
    }

    /// Copies what was written to, until that is little or stops shrinking. CRIU waits for rounds that cannot spill.
    fn rounds(&mut self, spill: Option<&mut Spill<'_>>, progress: &Progress) -> Result<(), String> {
        let is_last = spill.is_none();
        let made = self.make_rounds(spill, progress);
        if is_last {
            self.processes.iter_mut().for_each(Tracked::note_held);
        }
        made
    }

    fn make_rounds(&mut self, mut spill: Option<&mut Spill<'_>>, progress: &Progress) -> Result<(), String> {
        let mut last = u64::MAX;
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            let is_first = self.rounds == 0;
            if !is_first && spill.is_some() && self.would_spill_most(last) {
                break;
            }
            let mut bytes = 0;
            let mut failed = None;
            let spills_all = is_first && self.spills;
            self.processes.retain_mut(|process| {
                match process.round(spill.as_deref_mut(), spills_all, is_first, progress) {
                    Ok(copied) => {
                        bytes += copied;
                        true
                    }
                    Err(_) if process.is_dead() => false,
                    Err(reason) => {
                        failed.get_or_insert(reason);
                        true
                    }
                }
            });
            if let Some(reason) = failed {
                return Err(reason);
            }
            self.rounds += 1;
            let is_late = spill.is_none() && begun.elapsed() > ROUNDS_TIME;
            if bytes < ENOUGH || bytes > last / 4 * 3 || is_late || progress.is_cancelled() {
                break;
            }
            last = bytes;
        }
        Ok(())
    }

    /// Whether the next round would spill more than half of what the last one copied: it is better copied once, in the freeze.
    fn would_spill_most(&self, last: u64) -> bool {
        let written: u64 = self.processes.iter().map(Tracked::written_bytes).sum();
        written > self.room.left() && written > last / 2
    }

    /// Lets copies take no more than these bytes of memory, those that they have included.
    pub(super) fn limit(&self, bytes: u64) {
        self.room.limit(bytes);
    }

    /// Bytes of memory in use.
    pub(super) fn bytes(&self) -> u64 {
        self.room.taken()
    }

    /// Bytes of memory that CRIU is not expected to save: those that are copied, or are in the base.
    pub(super) fn covered(&self) -> u64 {
        let elsewhere: u64 = self.processes.iter().map(|process| process.store.bytes_elsewhere()).sum();
        (self.bytes() + elsewhere).max(self.trusted)
    }

    /// Whether unchanged pages are found by marks since the base, at least in one process.
    pub(super) fn is_marked(&self) -> bool {
        self.processes.iter().any(|process| process.is_marked)
    }

    /// Whether CRIU is asked which files it opens.
    pub(super) fn watches_files(&self) -> bool {
        self.smaps.is_some()
    }

    /// The mappings of a frozen process with flags that CRIU may not restore, as lines of smaps. None if they were not read.
    pub(super) fn flagged(&self, pid: Pid) -> Option<&[u8]> {
        self.flagged.get(&pid).map(Vec::as_slice)
    }

    /// Ends this without ending the tracking: the marks since the checkpoint with this ID.
    pub(super) fn take_marks(&mut self, checkpoint: &str) -> Marks {
        let processes = std::mem::take(&mut self.processes).into_iter().filter_map(Tracked::into_marks);
        Marks { checkpoint: checkpoint.to_owned(), processes: processes.collect() }
    }

    pub(super) fn report(&self) -> PreCopyReport {
        let sum = |of: fn(&Tracked) -> u64| self.processes.iter().map(of).sum::<u64>();
        let copied = sum(|process| tracked::length(&process.present));
        let unchanged = sum(|process| tracked::length(&process.unchanged));
        let stopped: Duration = self.processes.iter().map(|process| process.stopped).sum();
        PreCopyReport {
            rounds: self.rounds,
            running_bytes: copied
                .saturating_sub(sum(|process| process.frozen_bytes))
                .saturating_sub(unchanged),
            frozen_bytes: sum(|process| process.frozen_bytes + process.left_bytes),
            spilled_bytes: sum(|process| process.spilled_bytes),
            unused_bytes: 0,
            stopped_seconds: stopped.as_secs_f64(),
            walked: self.walked.clone(),
            copied_again: self
                .processes
                .iter()
                .filter_map(|process| {
                    let reason = process.unmarked.as_ref()?;
                    Some(format!("process {}: {reason}", process.pid))
                })
                .collect(),
        }
    }

    /// Ends the tracking of processes that go on.
    pub(super) fn release(&mut self) {
        self.processes.iter().for_each(Tracked::release);
    }

    /// The names of the images with the lists of the processes' pages.
    pub(super) fn lists(&self) -> Vec<String> {
        self.processes.iter().map(|process| page_list::name(process.image)).collect()
    }

    /// Completes CRIU's images of a process, whose pages are listed in the image `name`. None if the list is not as expected.
    pub(super) fn merge(&mut self, name: &str, list: &[u8], pages: CriuImage) -> Option<(Vec<u8>, Merged)> {
        let process = self.processes.iter_mut().find(|process| page_list::name(process.image) == name)?;
        let store = std::mem::replace(&mut process.store, PageStore::new(Arc::clone(&self.room)));
        let (present, unchanged) = (process.present.clone(), process.unchanged.clone());
        merge::merge(
            list,
            pages,
            present,
            store,
            (process.is_marked && process.unmarked.is_none()).then_some(unchanged),
        )
    }
}

/// Whether processes that write to so many bytes while they are observed may be spilled: if that is at most an eighth of what is
/// compressed in the same time, about a sixteenth of the pages in the file are stale in the end.
fn is_little(written: u64, threads: usize) -> bool {
    written <= COMPRESSED / 8 * threads.max(1) as u64
}

/// Fails if a process has seccomp filters, small ones too: CRIU suspends them (`PTRACE_O_SUSPEND_SECCOMP`), which the kernel
/// refuses to a tracer that has a filter as well.
fn no_seccomp(tree: &[Process]) -> Result<(), String> {
    // Threads can have filters of which the first thread has none.
    let has_filter = |process: &&Process| {
        let threads = procfs::threads(process.pid).unwrap_or_default();
        threads.into_iter().any(|thread| Status::read(thread).is_ok_and(|status| status.seccomp != 0))
    };
    match tree.iter().find(has_filter) {
        Some(process) => Err(format!(
            "process {} has seccomp filters, which CRIU may not suspend while it is watched",
            process.pid
        )),
        None => Ok(()),
    }
}
