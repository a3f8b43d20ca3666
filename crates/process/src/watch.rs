use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// What is being done to a process, or with what was copied of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Looking at it and taking memory for the copy.
    Prepare,
    /// Copying; by default it is stopped.
    Copy,
    /// Compressing and writing.
    Pack,
    /// Waiting for the disk.
    Finish,
}

impl Phase {
    /// One word for progress lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Copy => "copy",
            Self::Pack => "pack",
            Self::Finish => "finish",
        }
    }
}

/// A run seen from outside: how far it is, and a way to stop it. Counters are moved once per tile.
#[derive(Debug, Default)]
pub struct Watch {
    stop: AtomicBool,
    phase: AtomicU8,
    total: AtomicU64,
    copied: AtomicU64,
    packed: AtomicU64,
}

impl Watch {
    /// Asks for an end. May be called from a signal handler.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked to end.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The phase, and how many bytes of how many it has dealt with; the total may be an estimate.
    pub fn progress(&self) -> (Phase, u64, u64) {
        let (phase, done) = match self.phase.load(Ordering::Acquire) {
            0 => (Phase::Prepare, 0),
            1 => (Phase::Copy, self.copied.load(Ordering::Relaxed)),
            2 => (Phase::Pack, self.packed.load(Ordering::Relaxed)),
            _ => (Phase::Finish, self.packed.load(Ordering::Relaxed)),
        };
        (phase, done, self.total.load(Ordering::Relaxed))
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    pub(crate) fn expect(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn copied(&self, bytes: u64) {
        self.copied.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn packed(&self, bytes: u64) {
        self.packed.fetch_add(bytes, Ordering::Relaxed);
    }
}
