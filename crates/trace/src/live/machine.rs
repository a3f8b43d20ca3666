//! The machine's description and counters in a recording.

use std::collections::BTreeMap;
use std::fs;

use super::{Instance, monotonic};
use crate::error::TraceError;
use crate::info::{KernelCounters, MachineInfo};
use crate::kernel_files::selected_clock;

/// Counter files.
const FILES: [&str; 7] = [
    "/proc/vmstat",
    "/proc/meminfo",
    "/proc/zoneinfo",
    "/proc/stat",
    "/proc/pressure/memory",
    "/proc/pressure/io",
    "/proc/pressure/cpu",
];

/// Settings that affect reclaim.
const SETTINGS: [&str; 12] = [
    "/sys/kernel/mm/lru_gen/enabled",
    "/sys/kernel/mm/lru_gen/min_ttl_ms",
    "/sys/kernel/mm/numa/demotion_enabled",
    "/sys/kernel/mm/transparent_hugepage/enabled",
    "/sys/kernel/mm/transparent_hugepage/defrag",
    "/proc/sys/vm/swappiness",
    "/proc/sys/vm/min_free_kbytes",
    "/proc/sys/vm/watermark_scale_factor",
    "/proc/sys/vm/zone_reclaim_mode",
    "/proc/sys/vm/dirty_ratio",
    "/proc/sys/vm/dirty_background_ratio",
    "/proc/sys/vm/vfs_cache_pressure",
];

/// Reads the kernel's counters. First folds the per-CPU counters into the node counters: each CPU holds back
/// up to some dozens, since 7.x of pages scanned and reclaimed too.
pub fn read_counters() -> KernelCounters {
    // For root only; otherwise the counters are slightly stale.
    let _ = fs::read("/proc/sys/vm/stat_refresh");
    let files = FILES.iter().filter_map(|&file| Some((file.to_owned(), fs::read_to_string(file).ok()?)));
    let realtime = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    KernelCounters {
        monotonic_ns: monotonic(),
        realtime_ns: (realtime.tv_sec as u64)
            .wrapping_mul(1_000_000_000)
            .wrapping_add(realtime.tv_nsec as u64),
        files: files.collect(),
    }
}

/// Returns the description of the machine.
///
/// # Errors
/// [`TraceError`] if the instance cannot be read.
pub(super) fn machine_info(instance: &Instance, command: &[String]) -> Result<MachineInfo, TraceError> {
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| Some(part.to_string_lossy().into_owned());
    let clock = instance.read("trace_clock")?;
    let settings = SETTINGS.iter().filter_map(|&file| {
        let value = fs::read_to_string(file).ok()?;
        Some((file.to_owned(), value.trim().to_owned()))
    });
    Ok(MachineInfo {
        release: text(uname.release()),
        hostname: text(uname.nodename()),
        machine: text(uname.machine()),
        clock: selected_clock(&clock).map(str::to_owned),
        big_endian: crate::abi::Abi::host().big_endian,
        page_size: u32::try_from(rustix::param::page_size()).ok(),
        cpus: Some(instance.cpus()?.len() as u32),
        command: command.to_vec(),
        settings: settings.collect(),
    })
}

/// Returns the cgroup of a task: that of the memory controller if it has one (v1), else the unified one.
pub(super) fn cgroup_of(pid: i32) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let mut unified = None;
    for line in text.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        match (parts.next()?, parts.next()?) {
            ("", path) => unified = Some(path),
            (controllers, path) if controllers.split(',').any(|name| name == "memory") => {
                return Some(path.to_owned());
            }
            _ => {}
        }
    }
    unified.map(str::to_owned)
}

/// Returns the paths of cgroups by id: the inode of their directory (`cgroup_id`).
pub(super) fn cgroup_ids(wanted: &dyn Fn(u64) -> bool) -> BTreeMap<u64, String> {
    use std::os::unix::fs::MetadataExt;
    let mut found = BTreeMap::new();
    for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/memory"] {
        let mut directories = vec![std::path::PathBuf::from(root)];
        while let Some(directory) = directories.pop() {
            let Ok(metadata) = fs::symlink_metadata(&directory) else { continue };
            if wanted(metadata.ino()) {
                let path = directory.strip_prefix(root).unwrap_or(&directory);
                found.entry(metadata.ino()).or_insert_with(|| format!("/{}", path.display()));
            }
            let Ok(entries) = directory.read_dir() else { continue };
            let inner = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            directories.extend(inner.map(|entry| entry.path()));
        }
    }
    found
}
