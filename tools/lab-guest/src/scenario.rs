//! Ways to crash other than SysRq c: `lab crash --scenario NAME`.

use crate::Result;
use crate::kernel::load_module;
use crate::system::set;
use lab_guest::plan::SCENARIO_MODULE;
use std::path::Path;
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
    for (path, value) in SETTINGS {
        if Path::new(path).exists() {
            set(path, value)?;
        }
    }
    if name == "oom" {
        exhaust_memory();
    }
    load_module(Path::new(SCENARIO_MODULE), &format!("scene={name}"))?;
    std::thread::sleep(PATIENCE);
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
