//! Ways to crash other than SysRq c: `lab crash --scenario NAME`.

use crate::kernel::load_module;
use crate::system::{check, disk, field, set};
use crate::{Result, crowd, keys, notify_host, owned, patterns};
use lab_guest::plan::{self, SCENARIO_MODULE, message};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Watchdogs that panic, soon. Older kernels lack some.
const SETTINGS: [(&str, &str); 9] = [
    ("/proc/sys/kernel/panic_on_oops", "1"),
    ("/proc/sys/kernel/hung_task_timeout_secs", "5"),
    ("/proc/sys/kernel/hung_task_check_interval_secs", "1"),
    ("/proc/sys/kernel/hung_task_panic", "1"),
    ("/proc/sys/kernel/watchdog_thresh", "4"),
    ("/proc/sys/kernel/softlockup_panic", "1"),
    ("/proc/sys/kernel/soft_watchdog", "1"),
    // The command line has nowatchdog.
    ("/proc/sys/kernel/watchdog", "1"),
    ("/proc/sys/vm/panic_on_oom", "1"),
];
/// Time until the crash must have happened.
const PATIENCE: Duration = Duration::from_secs(180);

/// Crashes. Returns only on failure.
pub fn run(name: &str) -> Result<()> {
    // These do not wait for a watchdog, and make the machine wait for disks.
    match name {
        "keys" => return keys::crash(),
        "patterns" => return patterns::crash(),
        _ => {}
    }
    for (path, value) in SETTINGS {
        if Path::new(path).exists() {
            set(path, value)?;
        }
    }
    match name {
        "oom" => exhaust_memory(),
        "reclaim" => thrash()?,
        "suspended" => write_to_suspended_device()?,
        "owners" => owned::crash()?,
        "crowd" => crowd::crash()?,
        "oom-tmpfs" => owned::exhaust_with_tmpfs()?,
        "oom-deleted" => owned::exhaust_with_deleted_files()?,
        "oom-cgroup" => owned::exhaust_cgroup()?,
        "oom-slab" => owned::exhaust_with_messages()?,
        "oom-vmalloc" => owned::exhaust_with_maps()?,
        "oom-page-tables" => owned::exhaust_with_page_tables()?,
        _ => load_module(Path::new(SCENARIO_MODULE), &format!("scene={name}"))?,
    }
    thread::sleep(PATIENCE);
    Err(format!("the kernel survived the scenario {name}"))
}

/// Takes all memory.
fn exhaust_memory() {
    let mut held: Vec<Vec<u8>> = Vec::new();
    loop {
        // Written, so that each page is allocated.
        held.push(vec![1; 1 << 20]);
        std::hint::black_box(&held);
    }
}

/// Reads a disk through the page cache, from several threads, with hardly any memory left for it. Then crashes.
fn thrash() -> Result<()> {
    const LEFT_KB: u64 = 24 << 10;
    let mut held: Vec<Vec<u8>> = Vec::new();
    let available = || field(&fs::read_to_string("/proc/meminfo").unwrap_or_default(), "MemAvailable");
    set("/proc/sys/vm/panic_on_oom", "0")?;
    while available() > LEFT_KB {
        held.push(vec![1; 1 << 20]);
    }
    let device = disk(plan::disk::VMCORE)?;
    for number in 0..8_u64 {
        let file = File::open(&device).map_err(|e| format!("{}: {e}", device.display()))?;
        start(&format!("scene-reader/{number}"), move || {
            let mut buffer = vec![0; 1 << 20];
            let mut at = number << 26;
            // From the start again at the end of the disk.
            loop {
                at =
                    if file.read_at(&mut buffer, at).is_ok_and(|read| read > 0) { at + (1 << 20) } else { 0 };
            }
        })?;
    }
    thread::sleep(Duration::from_secs(15));
    notify_host(message::STEP, &format!("{} KiB available", available()));
    set("/proc/sysrq-trigger", "c")
}

/// Writes from several threads to a device-mapper device that is suspended, until the hung task detector panics.
fn write_to_suspended_device() -> Result<()> {
    let control = device_mapper_control()?;
    const SECTORS: u64 = 1 << 15;
    let mut table = Vec::new();
    // struct dm_target_spec: start, length, status, next, type. No request reaches the target.
    table.extend([0, SECTORS].iter().flat_map(|word: &u64| word.to_le_bytes()));
    table.extend([0; 8]);
    table.extend(b"error\0\0\0\0\0\0\0\0\0\0\0");
    table.extend([0; 8]);
    const SUSPEND: u32 = 1 << 1;
    device_mapper(&control, 3, 0, &[])?;
    device_mapper(&control, 9, 0, &table)?;
    device_mapper(&control, 6, 0, &[])?;
    device_mapper(&control, 6, SUSPEND, &[])?;
    for number in 0..6_u64 {
        let file = OpenOptions::new().write(true).open("/dev/dm-0").map_err(|e| format!("/dev/dm-0: {e}"))?;
        start(&format!("scene-writer/{number}"), move || {
            let _ = file.write_at(&[1; 4096], number << 20).and_then(|_| file.sync_all());
        })?;
    }
    Ok(())
}

/// Opens what device mapper is called through.
pub fn device_mapper_control() -> Result<File> {
    let control = "/dev/mapper/control";
    OpenOptions::new().read(true).write(true).open(control).map_err(|e| format!("{control}: {e}"))
}

/// Calls device mapper (include/uapi/linux/dm-ioctl.h): 3 creates a device, 9 loads its table, 6 suspends or resumes it.
/// Returns the number of the device: that of `/dev/dm-…`.
pub fn device_mapper(control: &File, command: u32, flags: u32, table: &[u8]) -> Result<u64> {
    const HEADER: usize = 312;
    let targets = u32::from(!table.is_empty());
    let mut call = Vec::new();
    for word in [4, 0, 0, (HEADER + table.len()) as u32, HEADER as u32, targets, 0, flags, 0, 0] {
        let _ = call.write_all(&word.to_le_bytes());
    }
    call.extend([0; 8]);
    call.extend(b"scene");
    call.resize(HEADER, 0);
    call.extend(table);
    // _IOWR(0xfd, command, struct dm_ioctl)
    let request = 0xc138_fd00 | libc::c_ulong::from(command);
    // SAFETY: the header names the length of the buffer, which the kernel reads and writes.
    let result = unsafe { libc::ioctl(control.as_raw_fd(), request as _, call.as_mut_ptr()) };
    check(result.into(), &format!("device mapper call {command}"))?;
    // `dev`, as huge_encode_dev() has it: the minor number is on both sides of the major one.
    let device = call.get(40..48).and_then(|dev| dev.first_chunk()).map_or(0, |dev| u64::from_le_bytes(*dev));
    Ok(device & 0xff | device >> 12 & 0xf_ff00)
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = thread::Builder::new().name(name.into()).spawn(work);
    thread.map(drop).map_err(|e| format!("starting {name}: {e}"))
}
