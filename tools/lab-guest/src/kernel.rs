//! Loads modules and the capture kernel.

use crate::system::{bind, check};
use crate::{Result, notify_host};
use lab_guest::plan::{KEXEC, message};
use std::ffi::CString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};

/// The system call's number; libc lacks it for arm64 with musl.
const KEXEC_FILE_LOAD: libc::c_long = if cfg!(target_arch = "x86_64") { 320 } else { 294 };
/// `KEXEC_FILE_ON_CRASH` of linux/kexec.h: the kernel starts after a panic, not on reboot.
const KEXEC_FILE_ON_CRASH: libc::c_ulong = 2;

/// Loads all modules of a directory in the order of their names, with the parameters that the command line has for them.
pub fn load_modules(directory: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(directory) else { return Ok(()) };
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let line = fs::read_to_string("/proc/cmdline").map_err(|e| format!("/proc/cmdline: {e}"))?;
    for path in paths {
        let file = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        // 07-ramoops.ko
        let name = file.split_once('-').map_or("", |(_, name)| name);
        load_module(&path, &parameters(&line, name))?;
    }
    Ok(())
}

/// Returns the parameters of a module in the kernel's command line, as modprobe passes them on.
fn parameters<'a>(command_line: &'a str, module: &str) -> String {
    let of_module = |word: &'a str| word.strip_prefix(module)?.strip_prefix('.');
    command_line.split_whitespace().filter_map(of_module).collect::<Vec<_>>().join(" ")
}

/// Loads a module.
pub fn load_module(path: &Path, parameters: &str) -> Result<()> {
    let file = File::open(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let parameters = CString::new(parameters).map_err(|e| format!("{parameters}: {e}"))?;
    // SAFETY: an open file and a NUL-terminated string; no other memory is passed.
    let result = unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), 0) };
    if result != 0 {
        let why = std::io::Error::last_os_error();
        // The machine lacks the device (ENODEV) or its CPU the feature (EOPNOTSUPP), or the module is loaded already.
        if !matches!(why.raw_os_error(), Some(libc::ENODEV | libc::EOPNOTSUPP | libc::EEXIST)) {
            return Err(format!("loading {}: {why}", path.display()));
        }
        notify_host(message::STEP, &format!("{} not loaded: {why}", path.display()));
    }
    Ok(())
}

/// Loads the capture kernel into the memory that `crashkernel=` reserved.
pub fn load_capture_kernel(kernel: &str, initramfs: &str, command_line: &str) -> Result<()> {
    if Path::new(KEXEC).exists() {
        load_by_program(kernel, initramfs, command_line)?;
    } else {
        load_by_system_call(kernel, initramfs, command_line)?;
    }
    let loaded = fs::read_to_string("/sys/kernel/kexec_crash_loaded").unwrap_or_default();
    if loaded.trim() == "1" { Ok(()) } else { Err("the kernel did not load the capture kernel".into()) }
}

fn load_by_system_call(kernel: &str, initramfs: &str, command_line: &str) -> Result<()> {
    let kernel_file = File::open(kernel).map_err(|e| format!("{kernel}: {e}"))?;
    let initramfs_file = File::open(initramfs).map_err(|e| format!("{initramfs}: {e}"))?;
    let line = CString::new(command_line).map_err(|e| format!("{command_line}: {e}"))?;
    let length = line.as_bytes_with_nul().len();
    // SAFETY: two open files and a string with its length, NUL included.
    let result = unsafe {
        libc::syscall(
            KEXEC_FILE_LOAD,
            kernel_file.as_raw_fd(),
            initramfs_file.as_raw_fd(),
            length,
            line.as_ptr(),
            KEXEC_FILE_ON_CRASH,
        )
    };
    check(result, "kexec_file_load of the capture kernel (is crashkernel= large enough?)").map(drop)
}

/// Loads it with kexec(8), for kernels without kexec_file_load.
fn load_by_program(kernel: &str, initramfs: &str, command_line: &str) -> Result<()> {
    provide_text_symbol()?;
    let output = Command::new(KEXEC)
        .args(["--kexec-syscall", "--load-panic", kernel])
        .arg(format!("--initrd={initramfs}"))
        .arg(format!("--command-line={command_line}"))
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("starting {KEXEC}: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{KEXEC}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()))
}

/// Adds `_text` to /proc/kallsyms where it is missing, as in kernels without CONFIG_KALLSYMS_ALL: kexec(8) takes it for 0
/// then, and reading the resulting /proc/vmcore ends the capture kernel.
fn provide_text_symbol() -> Result<()> {
    const KALLSYMS: &str = "/proc/kallsyms";
    const COPY: &str = "/tmp/kallsyms";
    /// `_stext` follows the image's header, in the next segment (SEGMENT_ALIGN).
    const HEADER: u64 = 64 << 10;
    let symbols = fs::read_to_string(KALLSYMS).map_err(|e| format!("{KALLSYMS}: {e}"))?;
    let address = |name: &str| {
        let of = |line: &str| {
            let mut words = line.split(' ');
            let (address, _, found) = (words.next()?, words.next()?, words.next()?);
            (found == name).then(|| u64::from_str_radix(address, 16).ok())?
        };
        symbols.lines().find_map(of)
    };
    if address("_text").is_some() {
        return Ok(());
    }
    let stext = address("_stext").ok_or_else(|| format!("{KALLSYMS} has no _stext"))?;
    let text = format!("{:016x} T _text\n{symbols}", stext.saturating_sub(HEADER));
    fs::write(COPY, text).map_err(|e| format!("{COPY}: {e}"))?;
    bind(COPY, KALLSYMS)
}

/// Hides memory called "Reserved" inside System RAM from kexec(8), which leaves it out of the vmcore of a riscv64 machine
/// (`to_be_excluded` in kexec-riscv.c, kexec-tools 2.0.32). There the kernel allocated it before it had an allocator: its struct
/// pages, the table of sections, per-CPU memory.
pub fn hide_reserved_memory() -> Result<()> {
    const IOMEM: &str = "/proc/iomem";
    const COPY: &str = "/tmp/iomem";
    if cfg!(not(target_arch = "riscv64")) {
        return Ok(());
    }
    let resources = fs::read_to_string(IOMEM).map_err(|e| format!("{IOMEM}: {e}"))?;
    let is_hidden = |line: &&str| line.starts_with(' ') && line.ends_with(": Reserved");
    let kept: Vec<&str> = resources.lines().filter(|line| !is_hidden(line)).collect();
    fs::write(COPY, kept.join("\n") + "\n").map_err(|e| format!("{COPY}: {e}"))?;
    bind(COPY, IOMEM)
}
