//! The scenario `crowd`: many small owners of memory, whose number decides how long reports of owners take. For a guest of 10 GiB.

use crate::system::{check, mount, set};
use crate::tasks::{set_name, wait};
use crate::{Result, notify_host};
use lab_guest::plan::message;
use std::fs;
use std::thread;

const TMPFS: &str = "/crowd";
const CGROUPS: &str = "/cgroup";
/// Directories of files, and files of one page in each.
const DIRECTORIES: usize = 100;
const FILES: usize = 1000;
/// Cgroups at the root, and in each.
const GROUPS: usize = 100;
const INNER_GROUPS: usize = 99;
/// Processes, each in a cgroup of its own, and their threads.
const PROCESSES: usize = 2000;
const THREADS: usize = 49;
const STACK: usize = 64 << 10;

/// Makes the crowd and crashes.
pub fn crash() -> Result<()> {
    set("/proc/sys/kernel/threads-max", "200000")?;
    set("/proc/sys/kernel/pid_max", "200000")?;
    set("/proc/sys/vm/panic_on_oom", "1")?;
    files()?;
    notify_host(message::STEP, "files made");
    cgroups()?;
    notify_host(message::STEP, "cgroups made");
    processes()?;
    notify_host(message::STEP, "processes made");
    set("/proc/sysrq-trigger", "c")
}

fn files() -> Result<()> {
    mount("crowd", TMPFS, "tmpfs", "size=90%,nr_inodes=0")?;
    let page = [0x5c_u8; 4096];
    for directory in 0..DIRECTORIES {
        let directory = format!("{TMPFS}/{directory}");
        fs::create_dir(&directory).map_err(|e| format!("{directory}: {e}"))?;
        for file in 0..FILES {
            let file = format!("{directory}/{file}");
            fs::write(&file, page).map_err(|e| format!("{file}: {e}"))?;
        }
    }
    Ok(())
}

fn cgroups() -> Result<()> {
    mount("none", CGROUPS, "cgroup2", "")?;
    set(&format!("{CGROUPS}/cgroup.subtree_control"), "+memory")?;
    for outer in 0..GROUPS {
        let outer = format!("{CGROUPS}/{outer}");
        fs::create_dir(&outer).map_err(|e| format!("{outer}: {e}"))?;
        set(&format!("{outer}/cgroup.subtree_control"), "+memory")?;
        for inner in 0..INNER_GROUPS {
            let inner = format!("{outer}/{inner}");
            fs::create_dir(&inner).map_err(|e| format!("{inner}: {e}"))?;
        }
    }
    Ok(())
}

fn processes() -> Result<()> {
    for number in 0..PROCESSES {
        let group = format!("{CGROUPS}/{}/{}", number % GROUPS, number / GROUPS);
        // SAFETY: this process has one thread, so that its child may do all that it may.
        if check(unsafe { libc::fork() }.into(), "fork")? == 0 {
            set_name("crowd");
            // What follows is charged to the cgroup.
            if set(&format!("{group}/cgroup.procs"), "0").is_ok() {
                for _ in 0..THREADS {
                    let thread = thread::Builder::new().stack_size(STACK);
                    let _ = thread.spawn(|| wait());
                }
            }
            wait()
        }
    }
    // Those that were forked last have still to start their threads: wait until all are there.
    let wanted = PROCESSES * (1 + THREADS);
    loop {
        let loads = fs::read_to_string("/proc/loadavg").map_err(|e| format!("/proc/loadavg: {e}"))?;
        let tasks = loads.split(['/', ' ']).nth(4).and_then(|tasks| tasks.parse::<usize>().ok());
        if tasks.is_none_or(|tasks| tasks > wanted) {
            return Ok(());
        }
        thread::sleep(std::time::Duration::from_millis(100));
    }
}
