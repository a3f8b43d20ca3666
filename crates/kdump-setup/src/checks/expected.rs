//! What a set-up is to do.

/// What the administrator expects beyond a dump.
#[derive(Debug, Clone, Copy, Default)]
pub struct Expected {
    /// CPUs that the capture is to use.
    pub cpus: Option<u32>,
    /// Bytes per second that the target is to take.
    pub disk: Option<u64>,
}
