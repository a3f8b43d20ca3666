//! Runs a program and samples its memory.

use crate::system::{self, field};
use crate::{Result, child};
use lab_guest::plan::{PAGEHAUL, Run, disk};
use lab_guest::results::RunReport;
use std::fs::{self, File};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Interval between samples. Shorter peaks show in VmHWM only.
const SAMPLE: Duration = Duration::from_millis(10);

/// Runs pagehaul or another program, and samples its memory until it ends.
pub fn run(run: &Run, out: &str) -> Result<RunReport> {
    let path = |suffix: &str| format!("{out}/{}.{suffix}", run.name);
    let dump = path("dump");
    let mut arguments: Vec<String> = run.arguments.iter().map(|a| a.replace("{out}", &dump)).collect();
    if arguments.iter().any(|a| a == "{disk}") {
        let device = system::disk(disk::DUMP)?.display().to_string();
        arguments.iter_mut().filter(|a| *a == "{disk}").for_each(|a| a.clone_from(&device));
    }
    let (program, first) = match run.program.split_first() {
        Some((program, first)) => (program.as_str(), first),
        None => (PAGEHAUL, [].as_slice()),
    };
    let create = |path: String| File::create(&path).map_err(|e| format!("{path}: {e}"));
    let stdout = create(path("stdout"))?;
    let stderr = create(path("stderr"))?;
    copy("/proc/vmstat", &path("vmstat-before"))?;
    let start = Instant::now();
    let child = Command::new(program)
        .args(first)
        .args(&arguments)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .map_err(|e| format!("starting {program}: {e}"))?;
    let mut report = RunReport { name: run.name.clone(), arguments, ..RunReport::default() };
    let pid = i32::try_from(child.id()).map_err(|e| format!("{program}: {e}"))?;
    let limit = Duration::from_secs(run.time_limit);
    let status_path = format!("/proc/{pid}/status");
    loop {
        if let Ok(status) = fs::read_to_string(&status_path) {
            report.peak_rss_kib = report.peak_rss_kib.max(field(&status, "VmHWM"));
            report.peak_anonymous_kib = report.peak_anonymous_kib.max(field(&status, "RssAnon"));
            report.peak_threads = report.peak_threads.max(field(&status, "Threads"));
            report.samples += 1;
        }
        if let Some(ended) = child::reap(pid)? {
            report.exit_code = ended.exit_code;
            report.signal = ended.signal;
            report.user_seconds = ended.user_seconds;
            report.system_seconds = ended.system_seconds;
            report.peak_rss_kib = report.peak_rss_kib.max(ended.peak_rss_kib);
            break;
        }
        if !report.timed_out && start.elapsed() > limit {
            report.timed_out = true;
            // SAFETY: no memory is passed; the child has not been reaped, so the PID is still its own.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        std::thread::sleep(SAMPLE);
    }
    report.seconds = start.elapsed().as_secs_f64();
    copy("/proc/vmstat", &path("vmstat-after"))?;
    report.dump_bytes = fs::metadata(&dump).map_or(0, |m| m.len());
    if run.discard && report.dump_bytes > 0 {
        fs::remove_file(&dump).map_err(|e| format!("{dump}: {e}"))?;
    }
    Ok(report)
}

/// Copies a file from /proc.
pub fn copy(from: &str, to: &str) -> Result<()> {
    let text = fs::read(from).map_err(|e| format!("{from}: {e}"))?;
    fs::write(to, text).map_err(|e| format!("{to}: {e}"))
}
