//! Holding a process, or a snapshot of it, while its memory is copied.

use std::path::PathBuf;
use std::time::Duration;

use crate::agent::Held;
use crate::error::ProcessError;
use crate::fork;
use crate::job::Job;
use crate::layout::{self, Layout, lay_out};
use crate::mapping::{self, Mapping};
use crate::options::Mode;
use crate::own_ids::OwnIds;
use crate::pagemap::Pagemap;
use crate::prepare::{Prepared, living};
use crate::procfs::{self, Status};
use crate::stop::Stopped;
use crate::threads::{self, ThreadState};
use crate::units::Pid;

/// What a core is made from, read while the process is stopped.
pub(crate) struct CoreSource {
    pub(crate) layout: Layout,
    pub(crate) mappings: Vec<Mapping>,
    pub(crate) pagemap: Pagemap,
    /// The page tables of the process itself, for a snapshot.
    pub(crate) original: Option<Pagemap>,
    /// A thread that has not ended, through which the memory is read.
    pub(crate) tid: Pid,
    pub(crate) threads: usize,
}

/// What is held while its memory is copied.
pub(crate) enum Hold {
    /// The process, stopped.
    Process(Stopped),
    Snapshot(Held),
    /// Nothing: the process runs again. It was stopped for this long.
    Nothing(Duration),
}

impl Hold {
    /// How long the process was stopped, if it runs again.
    pub(crate) fn pause(&self) -> Duration {
        match self {
            Self::Process(_) => Duration::ZERO,
            Self::Snapshot(held) => held.pause,
            Self::Nothing(pause) => *pause,
        }
    }

    /// Why a snapshot that was copied is not whole, if so. Where no huge page is free for a process that writes to a private one, the
    /// kernel takes that page from its children (`unmap_ref_private()`, mm/hugetlb.c; commit 04f2cbe35699, Linux 2.6.27): the snapshot
    /// reads as zeros there.
    pub(crate) fn lost(&self) -> Option<String> {
        let Self::Snapshot(held) = self else { return None };
        let left = Status::read(held.pid).map_or(0, |status| status.huge);
        (left < held.huge).then(|| {
            format!(
                "the process wrote to its private huge pages and none was free for the snapshot, so that {} KiB are lost; leave out \
                 --snapshot, or make more of them (/sys/kernel/mm/hugepages)",
                (held.huge - left) >> 10
            )
        })
    }

    /// Lets the process go. Returns how long it was stopped if it was until now.
    pub(crate) fn release(self) -> Option<Duration> {
        match self {
            Self::Process(stopped) => Some(stopped.resume()),
            Self::Snapshot(_) | Self::Nothing(_) => None,
        }
    }
}

impl Job<'_> {
    /// Stops the process, or has a snapshot made of it, and reads what the core is made from.
    pub(crate) fn hold(
        &self,
        prepared: &Prepared,
        helper: Option<Held>,
        incomplete: bool,
    ) -> Result<(CoreSource, Hold), ProcessError> {
        if let Some(mut helper) = helper {
            helper.take()?;
            let source = self.snapshot_source(&helper, incomplete)?;
            return Ok((source, Hold::Snapshot(helper)));
        }
        let mut stopped = Stopped::stop(self.pid)?;
        let source = self.process_source(&mut stopped, prepared, incomplete)?;
        let held = match self.options.mode {
            Mode::Live => Hold::Nothing(stopped.resume()),
            _ => Hold::Process(stopped),
        };
        Ok((source, held))
    }

    /// Reads registers, mappings and all else that a core says of a stopped process.
    fn process_source(
        &self,
        held: &mut Stopped,
        prepared: &Prepared,
        incomplete: bool,
    ) -> Result<CoreSource, ProcessError> {
        let pid = held.pid();
        let (own, mut states) = (OwnIds::of(pid)?, Vec::new());
        for &thread in held.threads() {
            states.extend(ThreadState::read(pid, &own, thread)?);
        }
        let tid = states.first().ok_or(ProcessError::Ended(pid))?.tid();
        let path = procfs::path(pid, &format!("task/{tid}/pagemap"));
        let mut pagemap = Pagemap::open(&path).map_err(|source| ProcessError::Proc { path, source })?;
        let mappings = mapping::read_again(pid, tid, &prepared.mappings, &mut pagemap)?;
        let notes = threads::encode(pid, &states, prepared.state, &mappings)?;
        let stored = layout::select(pid, &mappings, self.kinds);
        let layout = lay_out(&mappings, &stored, &notes, incomplete);
        Ok(CoreSource { layout, mappings, pagemap, original: None, tid, threads: states.len() })
    }

    /// Starts the helper that makes a snapshot. It does nothing yet.
    pub(crate) fn helper(&self, prepared: &Prepared) -> Result<Held, ProcessError> {
        fork::check(self.pid, &prepared.mappings)?;
        Held::start(self.pid, prepared.state)
    }

    /// The notes of the process, and the memory of its snapshot.
    fn snapshot_source(&self, held: &Held, incomplete: bool) -> Result<CoreSource, ProcessError> {
        let tid = held.pid;
        let open = |path: PathBuf| Pagemap::open(&path).map_err(|source| ProcessError::Proc { path, source });
        let pagemap = open(procfs::path(tid, "pagemap"))?;
        let original = open(procfs::path(self.pid, &format!("task/{}/pagemap", living(self.pid)?)))?;
        let mappings = mapping::read(tid, tid)?;
        let stored = layout::select(tid, &mappings, self.kinds);
        let layout = lay_out(&mappings, &stored, &held.notes, incomplete);
        Ok(CoreSource { layout, mappings, pagemap, original: Some(original), tid, threads: held.threads })
    }
}
