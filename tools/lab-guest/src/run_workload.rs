//! Runs a workload: scripts in a Debian tree, with a scratch disk and a disk for results.

use crate::system::{self, mount, mount_disk, release, unmount};
use crate::{Result, child, notify_host, run};
use lab_guest::plan::message;
use lab_guest::workload::{REPORT, Step, StepReport, Workload, WorkloadReport, disk};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Mount point of the tree. Scripts run in it with chroot.
const ROOT: &str = "/root";
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Interval of polling a script.
const POLL: Duration = Duration::from_millis(50);

/// Runs all steps and writes the report.
pub fn run_workload(workload: &Workload) -> Result<()> {
    let out = mount_tree()?;
    // A guest that has crashed has none.
    if system::disk(disk::SCRATCH).is_ok() {
        mount_disk(disk::SCRATCH, &inside("/scratch"))?;
    }
    let mut report = WorkloadReport { release: release(), steps: Vec::new() };
    for step in &workload.steps {
        report.steps.push(reported(step, &out)?.0);
    }
    let json = serde_json::to_vec_pretty(&report).map_err(|e| format!("writing the report: {e}"))?;
    fs::write(format!("{out}/{REPORT}"), json).map_err(|e| format!("{out}/{REPORT}: {e}"))?;
    unmount(&out)?;
    notify_host(message::DONE, "");
    Ok(())
}

/// Runs steps before a crash. What they mount stays.
pub fn prepare(steps: &[Step]) -> Result<()> {
    let out = mount_tree()?;
    for step in steps {
        let (done, end) = reported(step, &out)?;
        if done.exit_code != Some(0) {
            let said = fs::read_to_string(format!("{out}/{}.stderr", step.name)).unwrap_or_default();
            let last = said.lines().last().unwrap_or_default();
            return Err(format!("the script {} ended with {end}: {last}", step.name));
        }
    }
    // The capture kernel has its results there, too.
    unmount(&out)
}

/// Returns the path of a file of the tree.
pub fn inside(path: &str) -> String {
    format!("{ROOT}{path}")
}

/// Mounts the Debian tree, and returns where the disk for results is mounted.
fn mount_tree() -> Result<String> {
    mount_disk(disk::ROOT, ROOT)?;
    mount("proc", &inside("/proc"), "proc", "")?;
    mount("sysfs", &inside("/sys"), "sysfs", "")?;
    mount("devtmpfs", &inside("/dev"), "devtmpfs", "")?;
    mount("tmpfs", &inside("/dev/shm"), "tmpfs", "")?;
    mount("tmpfs", &inside("/tmp"), "tmpfs", "")?;
    // Kernels without tracing have no tracefs: scripts that need it fail.
    if let Err(why) = mount("tracefs", &inside("/sys/kernel/tracing"), "tracefs", "") {
        notify_host(message::STEP, &why);
    }
    // perf looks for kernel files there.
    let _ = mount("debugfs", &inside("/sys/kernel/debug"), "debugfs", "");
    let out = inside("/out");
    mount_disk(disk::OUT, &out)?;
    Ok(out)
}

/// Runs a step, and tells the host. Returns how it ended, also in words.
fn reported(step: &Step, out: &str) -> Result<(StepReport, String)> {
    notify_host(message::STEP, &step.name);
    let done = run_step(step, out)?;
    let end = match (done.exit_code, done.timed_out) {
        (_, true) => "killed: time limit".to_owned(),
        (Some(code), _) => format!("exit code {code}"),
        (None, _) => format!("signal {}", done.signal.unwrap_or(0)),
    };
    notify_host(message::STEP, &format!("{} ended after {:.1} s: {end}", step.name, done.seconds));
    Ok((done, end))
}

fn run_step(step: &Step, out: &str) -> Result<StepReport> {
    let path = |suffix: &str| format!("{out}/{}.{suffix}", step.name);
    let create = |path: String| File::create(&path).map_err(|e| format!("{path}: {e}"));
    let mut command = Command::new("/bin/bash");
    command
        .arg("-c")
        .arg(&step.script)
        .env_clear()
        .envs([("PATH", PATH), ("HOME", "/"), ("LC_ALL", "C"), ("STEP", &step.name)])
        .stdin(Stdio::null())
        .stdout(create(path("stdout"))?)
        .stderr(create(path("stderr"))?)
        .process_group(0);
    for (serial, variable) in disk::RAW {
        if let Ok(device) = system::disk(serial) {
            command.env(variable, device);
        }
    }
    // SAFETY: chroot and chdir are async-signal-safe, and nothing is allocated.
    unsafe {
        command.pre_exec(|| {
            if libc::chroot(c"/root".as_ptr()) == 0 && libc::chdir(c"/".as_ptr()) == 0 {
                Ok(())
            } else {
                Err(std::io::Error::last_os_error())
            }
        });
    }
    run::copy("/proc/vmstat", &path("vmstat-before"))?;
    let start = Instant::now();
    let process = command.spawn().map_err(|e| format!("starting {}: {e}", step.name))?;
    let pid = i32::try_from(process.id()).map_err(|e| format!("{}: {e}", step.name))?;
    let limit = Duration::from_secs(step.time_limit);
    let mut report = StepReport { name: step.name.clone(), ..StepReport::default() };
    let ended = loop {
        if let Some(ended) = child::reap(pid)? {
            break ended;
        }
        if !report.timed_out && start.elapsed() > limit {
            report.timed_out = true;
            kill_group(pid);
        }
        std::thread::sleep(POLL);
    };
    report.seconds = start.elapsed().as_secs_f64();
    // Processes that the script left would disturb the next one.
    kill_group(pid);
    run::copy("/proc/vmstat", &path("vmstat-after"))?;
    report.exit_code = ended.exit_code;
    report.signal = ended.signal;
    report.user_seconds = ended.user_seconds;
    report.system_seconds = ended.system_seconds;
    Ok(report)
}

/// Kills a script and all processes it started.
fn kill_group(leader: i32) {
    // SAFETY: no memory is passed. The group belongs to one of our children, and no longer exists if all its processes have ended.
    unsafe { libc::kill(-leader, libc::SIGKILL) };
}
