//! Processes, a cgroup and files whose pages have patterns.

use crate::system::{check, mount, set};
use crate::tasks::{set_name, wait};
use crate::{Result, notify_host};
use lab_guest::pattern::{PAGE, PAGES, Pattern};
use lab_guest::plan::message;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};

const BYTES: usize = PAGES as usize * PAGE;
const CGROUPS: &str = "/cgroup";
const TMPFS: &str = "/scene-tmpfs";
const RAMFS: &str = "/scene-ramfs";

/// Starts the processes and writes the files; returns when all pages are written.
pub fn fill() -> Result<()> {
    mount("none", CGROUPS, "cgroup2", "")?;
    mount("scene", TMPFS, "tmpfs", "")?;
    mount("scene", RAMFS, "ramfs", "")?;
    let (outer, inner) = (format!("{CGROUPS}/scene"), format!("{CGROUPS}/scene/inner"));
    fs::create_dir_all(&inner).map_err(|e| format!("{inner}: {e}"))?;
    set(&format!("{CGROUPS}/cgroup.subtree_control"), "+memory")?;
    set(&format!("{outer}/cgroup.subtree_control"), "+memory")?;
    file(RAMFS, Pattern::Ramfs)?;
    process("scene-kept", || {
        let at = map(Pattern::Kept, None)?;
        // SAFETY: the second half of a mapping that nothing uses.
        let result = unsafe { libc::mprotect(at.add(BYTES / 2).cast(), BYTES / 2, libc::PROT_NONE) };
        check(result.into(), "mprotect").map(drop)
    })?;
    process("scene-other", || map(Pattern::Other, None).map(drop))?;
    process("scene-grouped", || {
        set(&format!("{inner}/cgroup.procs"), &std::process::id().to_string())?;
        file(TMPFS, Pattern::GroupedFile)?;
        map(Pattern::Grouped, None).map(drop)
    })?;
    notify_host(message::STEP, "patterns are set");
    Ok(())
}

/// Writes a file through a mapping, so that nobody else has its pages, and unmaps it.
fn file(directory: &str, pattern: Pattern) -> Result<()> {
    let path = format!("{directory}/pattern");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let file = file.map_err(|e| format!("{path}: {e}"))?;
    file.set_len(BYTES as u64).map_err(|e| format!("{path}: {e}"))?;
    let at = map(pattern, Some(&file))?;
    // SAFETY: the mapping that was just made.
    check(unsafe { libc::munmap(at.cast(), BYTES) }.into(), "munmap").map(drop)
}

/// Maps anonymous memory or a file, and writes all pages of a pattern to it.
fn map(pattern: Pattern, file: Option<&File>) -> Result<*mut u8> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let (kind, descriptor) = match file {
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
    };
    // SAFETY: the kernel chooses the place of a new mapping.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, access, kind, descriptor, 0) };
    check(at as i64, "mmap")?;
    let words = at.cast::<u64>();
    for page in 0..PAGES {
        for index in 0..PAGE / 8 {
            // SAFETY: inside the mapping, which only this function has.
            unsafe { words.add(page as usize * PAGE / 8 + index).write_volatile(pattern.word(page, index)) };
        }
    }
    Ok(at.cast())
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
