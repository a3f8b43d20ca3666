use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// What a capture is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Finding the kernel in its memory.
    Prepare,
    /// Classifying struct pages.
    Scan,
    /// Compressing and writing pages.
    Pack,
    /// Waiting for the disk.
    Finish,
}

impl Phase {
    /// One word for progress lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prepare => "prepare",
            Self::Scan => "scan",
            Self::Pack => "pack",
            Self::Finish => "finish",
        }
    }
}

/// A capture seen from outside: how far it is, and a way to stop it. Counters are moved once per batch.
#[derive(Debug, Default)]
pub struct Watch {
    stop: AtomicBool,
    phase: AtomicU8,
    done: AtomicU64,
    total: AtomicU64,
    written: AtomicU64,
}

impl Watch {
    /// Asks the capture to end with what it has. May be called from a signal handler.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked to end.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The phase, and how many bytes of memory of how many it has dealt with.
    pub fn progress(&self) -> (Phase, u64, u64) {
        let phase = match self.phase.load(Ordering::Acquire) {
            0 => Phase::Prepare,
            1 => Phase::Scan,
            2 => Phase::Pack,
            _ => Phase::Finish,
        };
        (phase, self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    /// Bytes given to the output so far.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    pub(crate) fn enter(&self, phase: Phase, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
        self.phase.store(phase as u8, Ordering::Release);
    }

    pub(crate) fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn wrote(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }
}
