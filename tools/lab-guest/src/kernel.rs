//! Loads modules and the capture kernel.

use crate::system::check;
use crate::{Result, notify_host};
use lab_guest::plan::message;
use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;

/// `KEXEC_FILE_ON_CRASH` of linux/kexec.h: the kernel starts after a panic, not on reboot.
const KEXEC_FILE_ON_CRASH: libc::c_ulong = 2;

/// Loads all modules of a directory in the order of their names.
pub fn load_modules(directory: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(directory) else { return Ok(()) };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        load_module(&path, "")?;
    }
    Ok(())
}

/// Loads a module.
pub fn load_module(path: &Path, parameters: &str) -> Result<()> {
    let file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let parameters = CString::new(parameters).map_err(|e| format!("{parameters}: {e}"))?;
    // SAFETY: an open file and a NUL-terminated string; no other memory is passed.
    let result = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), 0) };
    if result != 0 {
        let why = std::io::Error::last_os_error();
        // The machine lacks the device (ENODEV), or the module is loaded already.
        if !matches!(why.raw_os_error(), Some(libc::ENODEV | libc::EEXIST)) {
            return Err(format!("loading {}: {why}", path.display()));
        }
        notify_host(message::STEP, &format!("{} not loaded: {why}", path.display()));
    }
    Ok(())
}

/// Loads the capture kernel into the memory that `crashkernel=` reserved.
pub fn load_capture_kernel(kernel: &str, initramfs: &str, command_line: &str) -> Result<()> {
    let kernel_file = File::open(kernel).map_err(|e| format!("{kernel}: {e}"))?;
    let initramfs_file = File::open(initramfs).map_err(|e| format!("{initramfs}: {e}"))?;
    let line = CString::new(command_line).map_err(|e| format!("{command_line}: {e}"))?;
    let length = line.as_bytes_with_nul().len();
    // SAFETY: two open files and a string with its length, NUL included.
    let result = unsafe {
        libc::syscall(
            libc::SYS_kexec_file_load,
            kernel_file.as_raw_fd(),
            initramfs_file.as_raw_fd(),
            length,
            line.as_ptr(),
            KEXEC_FILE_ON_CRASH,
        )
    };
    check(result, "kexec_file_load of the capture kernel (is crashkernel= large enough?)")?;
    let loaded = fs::read_to_string("/sys/kernel/kexec_crash_loaded").unwrap_or_default();
    if loaded.trim() == "1" { Ok(()) } else { Err("the kernel did not load the capture kernel".into()) }
}
