//! The kernel's log buffer of any era, partly overwritten: the first byte is the era, then come offsets and bytes.

use crate::{LOG_PFN, Simulation};
use pagehaul_kernel::KernelLog;
use pagehaul_synth::{Era, LOG_PAGES};

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((era, patches)) = data.split_first() else { return };
    let mut simulation = Simulation::new(Era::ALL[usize::from(*era) % Era::ALL.len()]);
    for patch in patches.chunks(10) {
        let [low, high, bytes @ ..] = patch else { break };
        let at = u64::from(u16::from_le_bytes([*low, *high])) % ((LOG_PAGES << 12) - 8);
        simulation = simulation.with_bytes((LOG_PFN << 12) + at, bytes);
    }
    if let Ok(log) = KernelLog::read(&simulation) {
        // 16 KiB hold no more than that.
        let bytes: usize = log.records.iter().map(|record| record.text.len()).sum();
        assert!(bytes <= 1 << 20, "{bytes} bytes of text");
    }
}
