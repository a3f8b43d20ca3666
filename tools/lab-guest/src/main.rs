//! Init of the lab's guests. The same program runs before the crash and in the capture kernel, which has a
//! `/proc/vmcore`. If the initramfs holds a workload, it runs that and powers off.

#![allow(unsafe_code)]

mod capture;
mod child;
mod crash;
mod crowd;
mod fill;
mod guest;
mod kernel;
mod keys;
mod owned;
mod pages;
mod patterns;
mod pstore;
mod run;
mod run_workload;
mod save;
mod scenario;
mod system;
mod tasks;
mod unmarked;

use lab_guest::plan::{self, Fill, Plan, message};
use lab_guest::workload::{self, Workload};
use std::path::Path;
use std::process::ExitCode;

/// The error is one sentence for the host.
type Result<T> = std::result::Result<T, String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some(tasks::SLEEPER) => return tasks::sleeper(),
        Some(tasks::POISONER) => return fill::poison::child(arguments.get(2).map(String::as_str)),
        _ => {}
    }
    if std::process::id() != 1 {
        eprintln!("lab-guest is the init of the lab's guests: it does not run elsewhere");
        return ExitCode::FAILURE;
    }
    if let Err(why) = init() {
        notify_host(message::ERROR, &why);
    }
    system::power_off();
    ExitCode::FAILURE
}

fn init() -> Result<()> {
    system::mount_basics()?;
    kernel::load_modules(Path::new(plan::MODULES))?;
    if Path::new(workload::PATH).exists() {
        return run_workload::run_workload(&read::<Workload>(workload::PATH)?);
    }
    let plan: Plan = read(plan::PATH)?;
    if Path::new("/proc/vmcore").exists() {
        return capture::capture(&plan);
    }
    if !plan.after.is_empty() && capture::has_captured()? {
        return run_workload::run_workload(&Workload { steps: plan.after });
    }
    match plan.fill {
        Fill::Stamps(percent) => crash::crash(&plan, percent),
        Fill::Files { cache_mib, anon_mib } => fill::files::wait_for_dump(cache_mib, anon_mib),
    }
}

/// Reads a JSON file that the host put into the initramfs.
fn read<T: serde::de::DeserializeOwned>(path: &str) -> Result<T> {
    let text = std::fs::read(path).map_err(|e| format!("{path}: {e}"))?;
    serde_json::from_slice(&text).map_err(|e| format!("{path}: {e}"))
}

/// Sends a message to the host, on the console.
fn notify_host(what: &str, detail: &str) {
    use std::io::Write;
    // The kernel may have left a line unfinished.
    let line = format!("\n{}{what} {detail}\n", message::PREFIX);
    let mut out = std::io::stdout().lock();
    // Without a console no one listens.
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    // Wait until it has been sent: a panic discards what the serial driver has buffered.
    // SAFETY: no memory is passed.
    unsafe { libc::tcdrain(libc::STDOUT_FILENO) };
}
