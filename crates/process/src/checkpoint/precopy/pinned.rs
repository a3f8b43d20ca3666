//! What writes to a process's memory without its page tables: the kernel or a device, to pages that were handed over (pinned)
//! before they were protected. Such pages change without a mark.

use std::fs;

use crate::mapping::Mapping;
use crate::procfs;
use crate::units::Pid;

/// Why a process with a userfaultfd is not tracked: a mapping has one at most, and its marks would count as pagehaul's.
pub(super) const USERFAULTFD: &str = "it uses userfaultfd, or another checkpoint of it is being taken";

/// Files that write, by the beginnings of their links in /proc/PID/fd and of their mappings' names.
const FILES: [(&str, &str); 4] = [
    ("anon_inode:[io_uring]", "an io_uring"),
    ("/dev/infiniband/", "an RDMA device"),
    ("/dev/vfio/", "a VFIO device"),
    ("/dev/kvm", "a virtual machine"),
];
/// Mappings that show a writer whose descriptor does not: a ring can be used without one (IORING_REGISTER_RING_FDS, Linux
/// 5.18), contexts of io_setup have none, and only the rings of a socket tell AF_XDP from others.
const MAPPINGS: [(&str, &str); 3] = [
    ("anon_inode:[io_uring]", "an io_uring"),
    ("/[aio]", "a context for asynchronous I/O"),
    ("socket:[", "a mapped socket"),
];

/// Fails with the reason if a process has any of these.
pub(super) fn find(pid: Pid, mappings: &[Mapping]) -> Result<(), String> {
    let unmarked = |what: &str| Err(format!("it has {what}, which writes to memory without a mark"));
    for mapping in mappings {
        if let Some((_, what)) = MAPPINGS.iter().find(|(start, _)| mapping.name.starts_with(start.as_bytes()))
        {
            return unmarked(what);
        }
    }
    let entries = fs::read_dir(procfs::path(pid, "fd")).map_err(|error| error.to_string())?;
    for entry in entries.flatten() {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        if let Some((_, what)) = FILES.iter().find(|(start, _)| target.starts_with(start)) {
            return unmarked(what);
        }
        if target.starts_with("anon_inode:[userfaultfd]") {
            return Err(USERFAULTFD.into());
        }
        // Pipes have the flag too, with another meaning. Thousands of sockets are not worth a file each in the freeze.
        if target.starts_with('/') && is_direct(pid, &entry.file_name().to_string_lossy()) {
            return unmarked(&format!("{target} open for direct I/O"));
        }
    }
    Ok(())
}

fn is_direct(pid: Pid, number: &str) -> bool {
    let info = fs::read_to_string(procfs::path(pid, "fdinfo").join(number)).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok()).unwrap_or(0);
    flags & libc::O_DIRECT != 0
}
