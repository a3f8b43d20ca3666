//! How much memory there is for a copy.

use std::fs;
use std::path::Path;

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

/// The files of a control group that have its limit and its use, and the line of `memory.stat` with what it gives up first.
struct Names {
    root: &'static str,
    limit: &'static str,
    usage: &'static str,
    inactive: &'static str,
}

const SECOND: Names = Names {
    root: "/sys/fs/cgroup",
    limit: "memory.max",
    usage: "memory.current",
    inactive: "inactive_file ",
};
const FIRST: Names = Names {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    inactive: "total_inactive_file ",
};

/// The memory that the limits of this program's control group (version 1 or 2) and of those above it leave.
fn cgroup() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let left = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(":/")?;
        let is_first = controllers.split(',').any(|controller| controller == "memory");
        let names = if is_first { &FIRST } else { Some(&SECOND).filter(|_| controllers.is_empty())? };
        let own = Path::new(names.root).join(path);
        own.ancestors()
            .take_while(|group| group.starts_with(names.root))
            .filter_map(|group| left(group, names))
            .min()
    });
    left.min()
}

/// The memory that the limit of one control group leaves.
fn left(group: &Path, names: &Names) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    let usage = number(names.usage)?;
    let statistics = read("memory.stat").unwrap_or_default();
    let inactive = statistics.lines().find_map(|line| line.strip_prefix(names.inactive)?.trim().parse().ok());
    Some(number(names.limit)?.saturating_sub(usage.saturating_sub(inactive.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_in_bytes() {
        assert!(half_of_available() > 0);
    }

    #[test]
    fn a_control_group_leaves_what_its_limit_does_beyond_what_it_needs() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
        assert_eq!(left(directory.path(), &SECOND), None);
        write("memory.current", "900\n");
        write("memory.max", "max\n");
        assert_eq!(left(directory.path(), &SECOND), None);
        write("memory.max", "1000\n");
        assert_eq!(left(directory.path(), &SECOND), Some(100));
        write("memory.stat", "anon 500\ninactive_file 300\n");
        assert_eq!(left(directory.path(), &SECOND), Some(400));
        write("memory.limit_in_bytes", "700\n");
        write("memory.usage_in_bytes", "900\n");
        assert_eq!(left(directory.path(), &FIRST), Some(0));
    }
}
