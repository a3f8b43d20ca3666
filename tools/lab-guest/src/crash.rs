//! In the first kernel: fill memory, load the capture kernel, panic.

use crate::system::{disk, pin_to_cpu, set};
use crate::{Result, fill, kernel, notify_host, run_workload, scenario, tasks};
use lab_guest::plan::{self, Plan, message};
use lab_guest::results::Manifest;
use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// What a busy host may need to stop the machine. Its clock stops as well.
const IMAGES: Duration = Duration::from_secs(20);

/// Fills memory and crashes. Returns only on failure.
pub fn crash(plan: &Plan, percent: u32) -> Result<()> {
    tasks::populate()?;
    if !plan.whole_iomem {
        kernel::hide_reserved_memory()?;
    }
    kernel::load_capture_kernel(plan::CAPTURE_KERNEL, plan::CAPTURE_INITRAMFS, &plan.capture_command_line)?;
    for path in [plan::CAPTURE_KERNEL, plan::CAPTURE_INITRAMFS] {
        // They take 30 MB of memory that stamped pages can use.
        fs::remove_file(path).map_err(|e| format!("{path}: {e}"))?;
    }
    if !plan.prepare.is_empty() {
        run_workload::prepare(&plan.prepare)?;
    }
    let (mut manifest, mut held) = fill::fill(percent)?;
    fill::balloon::inflate(&mut manifest);
    if !plan.before.is_empty() {
        manifest.before = run_apart(&plan.before)?;
    }
    manifest.meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    manifest.modules = fs::read_to_string("/proc/modules").unwrap_or_default();
    manifest.tasks = processes();
    write_manifest(&manifest)?;
    notify_host(message::FILLED, "");
    if plan.images {
        thread::sleep(IMAGES);
    }
    // The capture kernel starts on the CPU that panics. Unless the boot CPU does, which resets the machine if another CPU
    // sends it INIT, kernels before 6.9 need disable_cpu_apicid.
    pin_to_cpu(plan.crash_cpu)?;
    set("/proc/sys/kernel/sysrq", "1")?;
    notify_host(message::PANIC, "");
    // Pages that change their class would not be in the estimate.
    if plan.before.is_empty() {
        held.free();
    }
    if let Some(name) = &plan.scenario {
        return scenario::run(name);
    }
    set("/proc/sysrq-trigger", "c")?;
    Err("the kernel survived sysrq-c".into())
}

/// Runs pagehaul on a CPU that goes offline afterwards. What exits leaves its pages in the CPU's lists, where no dump can tell
/// that they are free; a CPU that goes offline returns them.
fn run_apart(arguments: &[String]) -> Result<String> {
    pin_to_cpu(1)?;
    let output = run_pagehaul(arguments)?;
    pin_to_cpu(0)?;
    set("/sys/devices/system/cpu/cpu1/online", "0")?;
    Ok(output)
}

/// Runs pagehaul and returns what it prints. What it reports on standard error goes to the console.
fn run_pagehaul(arguments: &[String]) -> Result<String> {
    notify_host(message::STEP, &format!("pagehaul {}", arguments.join(" ")));
    let output = Command::new(plan::PAGEHAUL)
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("starting {}: {e}", plan::PAGEHAUL))?;
    if !output.status.success() {
        return Err(format!("pagehaul {}: {}", arguments.join(" "), output.status));
    }
    String::from_utf8(output.stdout).map_err(|e| format!("pagehaul's output: {e}"))
}

fn processes() -> Vec<(u32, String)> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let mut tasks: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            Some((pid, name.trim_end().to_owned()))
        })
        .collect();
    tasks.sort();
    tasks
}

/// Writes the manifest to its disk with O_SYNC: the crash prevents any later write-back.
fn write_manifest(manifest: &Manifest) -> Result<()> {
    let json = serde_json::to_vec(manifest).map_err(|e| format!("writing the manifest: {e}"))?;
    let device = disk(plan::disk::MANIFEST)?;
    let fail = |e: std::io::Error| format!("{}: {e}", device.display());
    let file = fs::OpenOptions::new().write(true).custom_flags(libc::O_SYNC).open(&device).map_err(fail)?;
    let mut header = plan::MANIFEST_MAGIC.to_vec();
    header.extend((json.len() as u64).to_le_bytes());
    file.write_all_at(&json, 4096).and_then(|()| file.write_all_at(&header, 0)).map_err(fail)
}
