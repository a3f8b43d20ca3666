//! Processes and threads for task lists to show.

use crate::Result;
use std::ffi::CString;
use std::process::{Command, ExitCode, Stdio};

/// First argument of a process that waits.
pub const SLEEPER: &str = "sleeper";
/// First argument of the process that poisons its own pages.
pub const POISONER: &str = "poisoner";

const NAMES: [&str; 4] = ["lab-parent", "lab-worker", "lab-waiter", "lab-idler"];
const THREADS: usize = 3;

/// Starts named processes with threads. The first has a child.
pub fn populate() -> Result<()> {
    for name in NAMES {
        Command::new("/proc/self/exe")
            .args([SLEEPER, name])
            .stdin(Stdio::null())
            .spawn()
            .map_err(|e| format!("starting {name}: {e}"))?;
    }
    Ok(())
}

/// Runs such a process. Never returns.
pub fn sleeper() -> ExitCode {
    let name = std::env::args().nth(2).unwrap_or_default();
    set_name(&name);
    if name == NAMES[0] {
        // Task lists show a tree. The crash does not depend on it.
        let _ = Command::new("/proc/self/exe").args([SLEEPER, "lab-child"]).spawn();
    }
    if name == NAMES[2] {
        hold_signals();
    }
    for i in 0..THREADS {
        let thread = format!("{}/{i}", name.trim_start_matches("lab-"));
        std::thread::spawn(move || {
            set_name(&thread);
            wait();
        });
    }
    wait()
}

/// Has signals wait: SIGTERM for this process and SIGUSR1 for this thread.
fn hold_signals() {
    // SAFETY: the set is initialised by sigemptyset; the calls keep no pointer.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigaddset(&raw mut set, libc::SIGUSR1);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
        libc::kill(libc::getpid(), libc::SIGTERM);
        libc::raise(libc::SIGUSR1);
    }
}

/// Sets the name of the calling thread.
pub fn set_name(name: &str) {
    let Ok(name) = CString::new(name) else { return };
    // SAFETY: PR_SET_NAME copies at most 16 bytes of a NUL-terminated string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Waits forever.
pub fn wait() -> ! {
    loop {
        // SAFETY: pause passes no memory.
        unsafe { libc::pause() };
    }
}
