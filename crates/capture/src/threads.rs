//! How many threads a capture can have.

use pagehaul_run::memory;

/// Most memory of a capture: a fixed part and a part per thread (docs/architecture.md).
const BASE: u64 = 32 << 20;
const PER_THREAD: u64 = 8 << 20;

/// Returns how many of `wanted` threads fit into memory, of which `other` bytes are for something else: a capture kernel has little,
/// and a script may pass the number of CPUs of another kernel.
pub fn threads_that_fit(wanted: usize, other: u64) -> usize {
    fit(wanted, memory::available().unwrap_or(u64::MAX).saturating_sub(other))
}

fn fit(wanted: usize, available: u64) -> usize {
    // A quarter is left to the kernel's disk and network drivers.
    let threads = (available / 4).saturating_mul(3).saturating_sub(BASE) / PER_THREAD;
    wanted.min(usize::try_from(threads).unwrap_or(usize::MAX)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_leave_memory_to_the_kernel() {
        for (wanted, available, fits) in
            [(32, 0, 1), (32, 50, 1), (32, 100, 5), (4, 100, 4), (32, 384, 32), (1, 0, 1), (0, 100, 1)]
        {
            assert_eq!(fit(wanted, available << 20), fits, "{wanted} threads, {available} MiB");
        }
        assert_eq!(fit(1024, u64::MAX), 1024);
    }
}
