//! How much memory there is for a copy.

use std::fs;

use pagehaul_run::memory;
use rustix::process::{Resource, getrlimit};

use crate::units::page_size;

/// Half of the memory that could be had without swapping, in bytes.
pub(crate) fn half_of_available() -> u64 {
    let machine = memory::available().unwrap_or(1 << 30);
    machine.min(cgroup().unwrap_or(u64::MAX)).min(address_space().unwrap_or(u64::MAX)) / 2
}

/// The address space that the limit of this process leaves (`ulimit -v`).
fn address_space() -> Option<u64> {
    let limit = getrlimit(Resource::As).current?;
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').next()?.parse().ok()?;
    Some(limit.saturating_sub(pages.saturating_mul(page_size())))
}

/// The memory that the limit of this program's control group (version 2) leaves. Limits of its parents are ignored.
fn cgroup() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let number = |name: &str| {
        fs::read_to_string(format!("/sys/fs/cgroup{path}/{name}")).ok()?.trim().parse::<u64>().ok()
    };
    Some(number("memory.max")?.saturating_sub(number("memory.current")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_in_bytes() {
        assert!(half_of_available() > 0);
    }
}
