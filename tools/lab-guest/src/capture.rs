//! In the capture kernel: run pagehaul on /proc/vmcore, save the raw vmcore, write the report.

use crate::system::{field, mount_disk, release, reset, unmount};
use crate::{Result, notify_host, pstore, run, save};
use lab_guest::plan::{Plan, disk, message};
use lab_guest::results::CaptureKernelReport;
use std::fs;
use std::path::Path;

const OUT: &str = "/out";
const REPORT: &str = "/out/report.json";

/// Whether a capture kernel of this machine has finished.
pub fn has_captured() -> Result<bool> {
    mount_disk(disk::OUT, OUT)?;
    let is_there = Path::new(REPORT).exists();
    unmount(OUT)?;
    Ok(is_there)
}

/// Runs the plan's part for the capture kernel.
pub fn capture(plan: &Plan) -> Result<()> {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    notify_host(message::CAPTURE, "");
    mount_disk(disk::OUT, OUT)?;
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let mut report = CaptureKernelReport {
        release: release(),
        uptime: uptime.split_whitespace().next().and_then(|s| s.parse().ok()).unwrap_or(0.0),
        cpus: std::thread::available_parallelism().map_or(0, |cpus| cpus.get() as u64),
        memory_kib: field(&memory, "MemTotal"),
        available_kib: field(&memory, "MemAvailable"),
        vmcore_bytes: fs::metadata("/proc/vmcore").map_err(|e| format!("/proc/vmcore: {e}"))?.len(),
        ..CaptureKernelReport::default()
    };
    // The runs come first: they find memory as the boot left it.
    for run in &plan.runs {
        notify_host(message::STEP, &format!("pagehaul run {}", run.name));
        report.runs.push(run::run(run, OUT)?);
    }
    if plan.save_vmcore {
        notify_host(message::STEP, &format!("saving {} KiB of /proc/vmcore", report.vmcore_bytes >> 10));
        report.vmcore = Some(save::save(report.vmcore_bytes)?);
    }
    let json = serde_json::to_vec_pretty(&report).map_err(|e| format!("writing the report: {e}"))?;
    fs::write(REPORT, json).map_err(|e| format!("{REPORT}: {e}"))?;
    pstore::keep(OUT)?;
    unmount(OUT)?;
    if plan.after.is_empty() {
        notify_host(message::DONE, "");
        return Ok(());
    }
    notify_host(message::RESET, "");
    Err(reset())
}
