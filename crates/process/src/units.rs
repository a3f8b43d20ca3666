//! Numbers of processes and sizes of pages.

/// ID of a process or thread, in this program's PID namespace.
pub type Pid = i32;

/// The unit in which holes of cores, and what checkpoints have in common, are found. Pages are a multiple of it on every machine.
pub(crate) const PAGE: u64 = 4096;

/// The sizes that pages have on machines of 64 bits.
#[cfg(test)]
pub(crate) const PAGE_SIZES: [u64; 3] = [PAGE, 4 * PAGE, 16 * PAGE];

/// Returns the bytes of a page of this machine.
pub(crate) fn page_size() -> u64 {
    rustix::param::page_size() as u64
}
