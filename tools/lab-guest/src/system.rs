//! Mounts, disks, sysctls and power.

use crate::{Result, notify_host};
use lab_guest::plan::message;
use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Turns the -1 of a failed libc call into an error.
pub fn check(value: i64, what: &str) -> Result<i64> {
    if value == -1 { Err(format!("{what}: {}", io::Error::last_os_error())) } else { Ok(value) }
}

/// Creates the directory and mounts a file system on it.
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

/// Makes one file appear in the place of another.
pub fn bind(source: &str, target: &str) -> Result<()> {
    let c = |s: &str| CString::new(s).map_err(|e| format!("{s}: {e}"));
    let (source_c, target_c) = (c(source)?, c(target)?);
    let none = std::ptr::null();
    // SAFETY: two NUL-terminated strings that outlive the call; MS_BIND ignores the null pointers.
    let result =
        unsafe { libc::mount(source_c.as_ptr(), target_c.as_ptr(), none, libc::MS_BIND, none.cast()) };
    check(result.into(), &format!("mounting {source} on {target}")).map(drop)
}

/// Unmounts a file system, which also writes back its dirty pages.
pub fn unmount(target: &str) -> Result<()> {
    let target_c = CString::new(target).map_err(|e| format!("{target}: {e}"))?;
    // SAFETY: a NUL-terminated string that outlives the call.
    check(unsafe { libc::umount(target_c.as_ptr()) }.into(), &format!("unmounting {target}")).map(drop)
}

/// Mounts /proc, /sys and /dev, and makes /tmp.
pub fn mount_basics() -> Result<()> {
    mount("proc", "/proc", "proc", "")?;
    mount("sysfs", "/sys", "sysfs", "")?;
    mount("devtmpfs", "/dev", "devtmpfs", "").or_else(|why| {
        // Some kernels mount it themselves.
        if Path::new("/dev/null").exists() { Ok(()) } else { Err(why) }
    })?;
    fs::create_dir_all("/tmp").map_err(|e| format!("/tmp: {e}"))
}

/// Returns the device node of the virtio disk with this serial number.
pub fn disk(serial: &str) -> Result<PathBuf> {
    let entries = fs::read_dir("/sys/block").map_err(|e| format!("/sys/block: {e}"))?;
    for entry in entries.flatten() {
        let found = fs::read_to_string(entry.path().join("serial")).unwrap_or_default();
        if found.trim() == serial {
            return Ok(Path::new("/dev").join(entry.file_name()));
        }
    }
    Err(format!("no disk has the serial number {serial}: are its drivers in the initramfs?"))
}

/// Mounts the ext4 disk with this serial number.
pub fn mount_disk(serial: &str, target: &str) -> Result<()> {
    let device = disk(serial)?;
    mount(&device.to_string_lossy(), target, "ext4", "")
}

/// Returns `uname -r`.
pub fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

/// Writes a value to a file in /proc or /sys.
pub fn set(path: &str, value: &str) -> Result<()> {
    fs::write(path, value).map_err(|e| format!("writing {value:?} to {path}: {e}"))
}

/// Returns the number in a `key number` or `key: number` line, 0 if there is none.
pub fn field(text: &str, key: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.strip_prefix(key))
        .find_map(|rest| rest.trim_start_matches(':').split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// Binds the calling thread, and threads and processes it starts, to one CPU.
pub fn pin_to_cpu(cpu: usize) -> Result<()> {
    // SAFETY: cpu_set_t is plain data; all zeros is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the macro bounds-checks `cpu` against the set's size.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: `set` is a valid set of the size given.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
    check(result.into(), "sched_setaffinity").map(drop)
}

/// Syncs all file systems and resets the machine. Returns the error if the kernel refuses.
pub fn reset() -> String {
    // SAFETY: no memory is passed; sync writes all dirty data first.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_AUTOBOOT);
    }
    "the kernel does not reset the machine".into()
}

/// Syncs all file systems and powers off. Returns only if the kernel refuses.
pub fn power_off() {
    // SAFETY: no memory is passed; sync writes all dirty data first.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
        // Without working ACPI the machine stays on; QEMU runs with -no-reboot.
        libc::reboot(libc::RB_AUTOBOOT);
    }
    notify_host(message::ERROR, "the kernel neither powers off nor reboots");
}
