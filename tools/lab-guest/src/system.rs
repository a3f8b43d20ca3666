//! Mounts, disks, power.

use crate::{Result, notify_host};
use lab_guest::plan::message;
use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The result of a libc call that returns -1 on failure.
pub fn check(value: i64, what: &str) -> Result<i64> {
    if value == -1 { Err(format!("{what}: {}", io::Error::last_os_error())) } else { Ok(value) }
}

/// Mounts a file system, making the directory first.
pub fn mount(source: &str, target: &str, kind: &str, options: &str) -> Result<()> {
    fs::create_dir_all(target).map_err(|e| format!("{target}: {e}"))?;
    let c = |s: &str| CString::new(s).map_err(|e| format!("{s}: {e}"));
    let (source_c, target_c, kind_c, options_c) = (c(source)?, c(target)?, c(kind)?, c(options)?);
    // SAFETY: four NUL-terminated strings that outlive the call.
    let result = unsafe {
        libc::mount(source_c.as_ptr(), target_c.as_ptr(), kind_c.as_ptr(), 0, options_c.as_ptr().cast())
    };
    check(result.into(), &format!("mounting {kind} of {source} on {target}")).map(drop)
}

/// Unmounts a file system, which also writes it back.
pub fn unmount(target: &str) -> Result<()> {
    let target_c = CString::new(target).map_err(|e| format!("{target}: {e}"))?;
    // SAFETY: a NUL-terminated string that outlives the call.
    check(unsafe { libc::umount(target_c.as_ptr()) }.into(), &format!("unmounting {target}")).map(drop)
}

/// Mounts what every program expects.
pub fn mount_basics() -> Result<()> {
    mount("proc", "/proc", "proc", "")?;
    mount("sysfs", "/sys", "sysfs", "")?;
    mount("devtmpfs", "/dev", "devtmpfs", "").or_else(|why| {
        // Already there where the kernel mounts it by itself.
        if Path::new("/dev/null").exists() { Ok(()) } else { Err(why) }
    })?;
    fs::create_dir_all("/tmp").map_err(|e| format!("/tmp: {e}"))
}

/// The device node of the virtio disk with this serial number.
pub fn disk(serial: &str) -> Result<PathBuf> {
    let entries = fs::read_dir("/sys/block").map_err(|e| format!("/sys/block: {e}"))?;
    for entry in entries.flatten() {
        let found = fs::read_to_string(entry.path().join("serial")).unwrap_or_default();
        if found.trim() == serial {
            return Ok(Path::new("/dev").join(entry.file_name()));
        }
    }
    Err(format!("there is no disk with the serial number {serial}: are its drivers in the initramfs?"))
}

/// Mounts the ext4 disk with this serial number.
pub fn mount_disk(serial: &str, target: &str) -> Result<()> {
    let device = disk(serial)?;
    mount(&device.to_string_lossy(), target, "ext4", "")
}

/// `uname -r`.
pub fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// Writes to a file of /proc or /sys.
pub fn set(path: &str, value: &str) -> Result<()> {
    fs::write(path, value).map_err(|e| format!("writing {value:?} to {path}: {e}"))
}

/// A number from a file that holds `key number` or `key: number` lines.
pub fn field(text: &str, key: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.strip_prefix(key))
        .find_map(|rest| rest.trim_start_matches(':').split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// Keeps the calling thread, and what it starts, on one CPU.
pub fn pin_to_cpu(cpu: usize) -> Result<()> {
    // SAFETY: cpu_set_t is plain data, all zeroes is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the macro bounds-checks `cpu` against the set's size.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: `set` is a valid set of the size given.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
    check(result.into(), "sched_setaffinity").map(drop)
}

/// Writes everything back and turns the machine off. Returns only if the kernel refuses.
pub fn power_off() {
    // SAFETY: no memory is passed; what is not written yet is written by sync first.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
        // Where ACPI doesn't work the machine stays on; QEMU runs with -no-reboot.
        libc::reboot(libc::RB_AUTOBOOT);
    }
    notify_host(message::ERROR, "the kernel neither powers off nor reboots");
}
