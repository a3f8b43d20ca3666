//! What is planned, and for which machine.

use pagehaul_bench::stages::Measured;
use pagehaul_codec::Method;
use pagehaul_kdump_setup::{Config, Facts, Root, Stack};
use pagehaul_kernel::DumpLevel;

/// The machine that is planned for.
#[derive(Debug, Clone, Copy)]
pub struct Machine<'m> {
    /// Its files.
    pub root: &'m Root,
    /// What they and the kernel say.
    pub facts: &'m Facts,
    /// The distribution's kdump.
    pub stack: Stack,
    /// How that is configured.
    pub config: &'m Config,
    /// Whether it is the one that this runs on.
    pub is_here: bool,
    /// Whether only its size was described.
    pub is_described: bool,
}

impl Machine<'_> {
    /// Whether pagehaul writes the dumps. Of a machine without files, nothing is installed yet.
    pub fn has_pagehaul(&self) -> bool {
        (self.is_described && self.is_here)
            || self.facts.collector.as_ref().is_some_and(|collector| collector.is_pagehaul)
    }
}

/// What is planned.
#[derive(Debug, Clone)]
pub struct Goal {
    /// Pages to exclude.
    pub level: DumpLevel,
    /// Codec and level.
    pub method: Method,
    /// CPUs of the capture kernel [default: as many as pay off].
    pub capture_cpus: Option<u32>,
    /// Bytes per second of the target [default: measured, if it is a local one].
    pub disk: Option<u64>,
    /// Codec and level that the next crash writes when the plan is applied.
    pub written: Method,
    /// Rates of a capture [default: of a sample of this machine's memory].
    pub rates: Option<Measured>,
}
