//! What is prepared before a process is stopped.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use crate::arena::Arena;
use crate::error::ProcessError;
use crate::job::Job;
use crate::mapping::{self, Mapping};
use crate::options::Mode;
use crate::procfs::{self, Status};
use crate::tiler::TILE_SIZE;
use crate::units::Pid;
use crate::{layout, limits};

/// Tiles of room that every thread has at least.
pub(crate) const TILES_PER_THREAD: u64 = 4;
/// How much a process may grow between the estimate and its stop: a fraction of it, and bytes.
pub(crate) const GROWTH: (u64, u64) = (16, 16 << 20);

/// What is prepared before a process is stopped.
pub(crate) struct Prepared {
    pub(crate) arena: Arc<Arena>,
    /// Its mappings before it was stopped.
    pub(crate) mappings: Vec<Mapping>,
    /// The letter of its state before it was stopped.
    pub(crate) state: u8,
}

impl Job<'_> {
    /// Allocates the memory for the copy: as much as it will need, if that is allowed.
    pub(crate) fn prepare(&self) -> Result<Prepared, ProcessError> {
        let least = (self.options.threads as u64 + 1) * TILES_PER_THREAD * TILE_SIZE;
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
        let arena = Arena::new(capacity as usize).map_err(resource("allocate the memory for the copy"))?;
        arena.populate(capacity.min(expected + least) as usize, self.options.threads);
        let state = Status::read(tid)?.state.bytes().next().unwrap_or(b'R');
        // As late as possible: allocating memory can take seconds.
        let mappings = mapping::read(self.pid, tid)?;
        Ok(Prepared { arena, mappings, state })
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

/// Returns a thread of the process that has not ended.
pub(crate) fn living(pid: Pid) -> Result<Pid, ProcessError> {
    let tids = procfs::threads(pid)?;
    let alive = |tid: &Pid| Status::read(*tid).is_ok_and(|status| !status.is_dead());
    tids.into_iter().find(alive).ok_or(ProcessError::Zombie(pid))
}
