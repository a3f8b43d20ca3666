//! Processes and threads that give task lists something to show.

use crate::Result;
use std::ffi::CString;
use std::process::{Command, ExitCode, Stdio};

/// First argument of a process that only waits.
pub const SLEEPER: &str = "sleeper";
/// First argument of the process that poisons its own pages.
pub const POISONER: &str = "poisoner";

const NAMES: [&str; 4] = ["lab-parent", "lab-worker", "lab-waiter", "lab-idler"];
const THREADS: usize = 3;

/// Starts a few named processes, each with threads, and the first with a child of its own.
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

/// Body of such a process: never returns.
pub fn sleeper() -> ExitCode {
    let name = std::env::args().nth(2).unwrap_or_default();
    set_name(&name);
    if name == NAMES[0] {
        // A grandchild: task lists have a tree to show. Whether it starts is of no matter to the crash.
        let _ = Command::new("/proc/self/exe").args([SLEEPER, "lab-child"]).spawn();
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

/// Names the calling thread, as task lists show it.
pub fn set_name(name: &str) {
    let Ok(name) = CString::new(name) else { return };
    // SAFETY: PR_SET_NAME copies at most 16 bytes of a NUL-terminated string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Waits for ever.
pub fn wait() -> ! {
    loop {
        // SAFETY: pause passes no memory.
        unsafe { libc::pause() };
    }
}
