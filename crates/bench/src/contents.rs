//! What pages hold: how well they compress, and how fast.

use std::time::Duration;

use pagehaul_codec::{Compressor, is_zero};
use pagehaul_machine::PageSize;
use rustix::time::{ClockId, clock_gettime};

/// Returns the time that a processor worked for this thread. Other programs run next to a measurement, but not in the capture
/// kernel that it is for.
pub fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

/// The result of packing a sample of pages.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Contents {
    /// Readable pages.
    pub pages: u64,
    /// Zero pages among them.
    pub zero: u64,
    /// Bytes stored for them.
    pub stored: u64,
    /// Seconds that one CPU took to test and compress them.
    pub seconds: f64,
}

impl Contents {
    /// Packs whole pages and discards them.
    pub fn pack(&mut self, compressor: &mut Compressor, page_size: PageSize, pages: &[u8]) {
        let mut out = vec![0; page_size.bytes()];
        let start = cpu_time();
        for page in pages.chunks_exact(page_size.bytes()) {
            if is_zero(page) {
                self.zero += 1;
            } else {
                self.stored += compressor.compress(page, &mut out).unwrap_or(page.len()) as u64;
            }
            self.pages += 1;
        }
        self.seconds += (cpu_time() - start).as_secs_f64();
    }
}
