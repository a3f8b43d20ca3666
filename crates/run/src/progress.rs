use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::cancel::CancelToken;

/// What a run is doing. A run passes through some of these, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Examining the source; allocating what the run needs.
    Prepare,
    /// Classifying struct pages.
    Scan,
    /// Copying a process's memory while it is stopped.
    Copy,
    /// Compressing and writing, or decompressing and checking.
    Pack,
    /// Waiting for the disk.
    Finish,
}

impl Phase {
    const ALL: [Self; 5] = [Self::Prepare, Self::Scan, Self::Copy, Self::Pack, Self::Finish];

    /// One word for progress lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Scan => "scan",
            Self::Copy => "copy",
            Self::Pack => "pack",
            Self::Finish => "finish",
        }
    }
}

/// How far a run is, as seen by other threads, and whether it was asked to end. Counters move once per batch, so that
/// they cost nothing per page.
#[derive(Debug, Default)]
pub struct Progress {
    cancel: CancelToken,
    phase: AtomicU8,
    total: AtomicU64,
    /// Per phase, since packing begins while a process is still being copied.
    done: [AtomicU64; Phase::ALL.len()],
    written: BytesWritten,
}

impl Progress {
    /// A token that cancels this run.
    pub fn cancel_token(&self) -> CancelToken {
        self.cancel.clone()
    }

    /// Whether the run was asked to end.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// The current phase, the bytes done in it, and the bytes expected in all (0: unknown; may be an estimate).
    pub fn current(&self) -> (Phase, u64, u64) {
        let phase = self.phase.load(Ordering::Acquire);
        let phase = Phase::ALL.get(usize::from(phase)).copied().unwrap_or(Phase::Finish);
        let done = self.done[phase as usize].load(Ordering::Relaxed);
        (phase, done, self.total.load(Ordering::Relaxed))
    }

    /// Bytes handed to the output so far.
    pub fn written(&self) -> u64 {
        self.written.get()
    }

    /// Enters a phase with `total` bytes to do.
    pub fn begin(&self, phase: Phase, total: u64) {
        self.expect(total);
        self.enter(phase);
    }

    /// Enters a phase; the expected total stays.
    pub fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// Corrects the expected total.
    pub fn expect(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }

    /// Counts bytes done in a phase, which need not be the current one.
    pub fn advance(&self, phase: Phase, bytes: u64) {
        self.done[phase as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the counter of [`written`](Self::written), for outputs that count their own writes.
    pub fn bytes_written(&self) -> BytesWritten {
        self.written.clone()
    }

    /// Counts bytes handed to the output.
    pub fn wrote(&self, bytes: u64) {
        self.written.add(bytes);
    }
}

/// Counts the bytes that reached an output. Clones share the count.
#[derive(Debug, Clone, Default)]
pub struct BytesWritten(Arc<AtomicU64>);

impl BytesWritten {
    /// Returns the number of bytes.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Adds the bytes of one write.
    pub fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_count_apart_and_tokens_share_one_flag() {
        let progress = Progress::default();
        progress.begin(Phase::Copy, 100);
        progress.advance(Phase::Pack, 7);
        progress.advance(Phase::Copy, 30);
        assert_eq!(progress.current(), (Phase::Copy, 30, 100));
        progress.enter(Phase::Pack);
        assert_eq!(progress.current(), (Phase::Pack, 7, 100));
        assert!(!progress.is_cancelled());
        progress.cancel_token().cancel();
        assert!(progress.is_cancelled() && progress.cancel_token().is_cancelled());
    }
}
