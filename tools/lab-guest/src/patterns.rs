//! Processes, a cgroup and files whose pages have patterns.

mod placed;

use crate::run_workload::inside;
use crate::system::{check, mount, set};
use crate::tasks::{set_name, wait};
use crate::{Result, notify_host};
use lab_guest::pattern::{PAGE, PAGES, Pattern};
use lab_guest::plan::message;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::Path;

const BYTES: usize = PAGES as usize * PAGE;
const CGROUPS: &str = "/cgroup";
const TMPFS: &str = "/scene-tmpfs";
const RAMFS: &str = "/scene-ramfs";
/// Where a script of the guest mounts XFS.
const XFS: &str = "/mnt/xfs";
/// A word of the command line: the memory controller is that of cgroup v1.
const OLD_CGROUPS: &str = "lab.cgroups=v1";

/// The scenario `patterns`.
pub fn crash() -> Result<()> {
    fill()?;
    set("/proc/sysrq-trigger", "c")
}

/// Starts the processes and writes the files; returns when all pages are written. What takes disks or nodes that the guest lacks is left
/// out.
pub fn fill() -> Result<()> {
    let command_line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let is_old = command_line.split_whitespace().any(|word| word == OLD_CGROUPS);
    if is_old {
        mount("none", CGROUPS, "cgroup", "memory")?;
    } else {
        // Since 6.7 (8cba9576df60) pages of hugetlb are charged on request.
        mount("none", CGROUPS, "cgroup2", "memory_hugetlb_accounting")
            .or_else(|_| mount("none", CGROUPS, "cgroup2", ""))?;
    }
    mount("scene", TMPFS, "tmpfs", "")?;
    mount("scene", RAMFS, "ramfs", "")?;
    let outer = format!("{CGROUPS}/scene");
    let [inner, swapped] = ["inner", "swapped"].map(|name| format!("{outer}/{name}"));
    for group in [&inner, &swapped] {
        fs::create_dir_all(group).map_err(|e| format!("{group}: {e}"))?;
    }
    if !is_old {
        set(&format!("{CGROUPS}/cgroup.subtree_control"), "+memory")?;
        set(&format!("{outer}/cgroup.subtree_control"), "+memory")?;
    }
    file(RAMFS, Pattern::Ramfs)?;
    let xfs = inside(XFS);
    if Path::new(&xfs).exists() {
        file(&xfs, Pattern::Xfs)?;
    }
    process("scene-kept", || {
        let at = map(Pattern::Kept, None, 0)?;
        // SAFETY: the second half of a mapping that nothing uses.
        let result = unsafe { libc::mprotect(at.add(BYTES / 2).cast(), BYTES / 2, libc::PROT_NONE) };
        check(result.into(), "mprotect").map(drop)
    })?;
    process("scene-other", || map(Pattern::Other, None, 0).map(drop))?;
    process("scene-grouped", || {
        join(&inner)?;
        file(TMPFS, Pattern::GroupedFile)?;
        map(Pattern::Grouped, None, 0)?;
        // The pool has free ones: those of the class of stamped pages are half of it.
        map(Pattern::GroupedHuge, None, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB).map(drop)
    })?;
    if fs::read_to_string("/proc/swaps").unwrap_or_default().lines().count() > 1 {
        process("scene-swapped", || {
            join(&swapped)?;
            placed::swap(&swapped)
        })?;
    }
    if Path::new("/sys/devices/system/node/node1").exists() {
        process("scene-numa", placed::balance)?;
    }
    notify_host(message::STEP, "patterns are set");
    Ok(())
}

/// Moves this process to a cgroup.
fn join(group: &str) -> Result<()> {
    set(&format!("{group}/cgroup.procs"), &std::process::id().to_string())
}

/// Writes a file through a mapping, so that nobody else has its pages, and unmaps it.
fn file(directory: &str, pattern: Pattern) -> Result<()> {
    let path = format!("{directory}/pattern");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let file = file.map_err(|e| format!("{path}: {e}"))?;
    file.set_len(BYTES as u64).map_err(|e| format!("{path}: {e}"))?;
    let at = map(pattern, Some(&file), 0)?;
    // SAFETY: the mapping that was just made.
    check(unsafe { libc::munmap(at.cast(), BYTES) }.into(), "munmap").map(drop)
}

/// Maps anonymous memory or a file, and writes all pages of a pattern to it.
fn map(pattern: Pattern, file: Option<&File>, flags: i32) -> Result<*mut u8> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let (kind, descriptor) = match file {
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
    };
    // SAFETY: the kernel chooses the place of a new mapping.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, access, kind | flags, descriptor, 0) };
    check(at as i64, "mmap")?;
    write(at.cast(), pattern, 0..PAGES);
    Ok(at.cast())
}

/// Writes pages of a pattern to a mapping of all of them.
fn write(at: *mut u8, pattern: Pattern, pages: Range<u64>) {
    let words = at.cast::<u64>();
    for page in pages {
        for index in 0..PAGE / 8 {
            // SAFETY: inside the mapping, which this process alone writes to.
            unsafe { words.add(page as usize * PAGE / 8 + index).write_volatile(pattern.word(page, index)) };
        }
    }
}

/// Forks a process that does `work` and waits forever. Returns when the work is done.
fn process(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut ends = [0; 2];
    // SAFETY: an array of two descriptors.
    check(unsafe { libc::pipe(ends.as_mut_ptr()) }.into(), "pipe")?;
    // SAFETY: both descriptors are new and nothing else owns them.
    let [mut read, mut write] = ends.map(|end| unsafe { File::from_raw_fd(end) });
    // SAFETY: init has no other thread that holds a lock.
    match check(unsafe { libc::fork() }.into(), "fork")? {
        0 => {
            set_name(name);
            let said = match work() {
                Ok(()) => String::from("done"),
                Err(why) => why,
            };
            let _ = write.write_all(said.as_bytes());
            drop(write);
            wait()
        }
        _ => {
            drop(write);
            let mut said = String::new();
            read.read_to_string(&mut said).map_err(|e| format!("{name}: {e}"))?;
            if said == "done" { Ok(()) } else { Err(format!("{name}: {said}")) }
        }
    }
}
