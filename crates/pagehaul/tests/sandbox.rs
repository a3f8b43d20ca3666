//! Commands that parse files from elsewhere confine themselves. What the sandbox refuses is tested in its crate.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pagehaul_synth::{Era, Machine, Message};

const BINARY: &str = env!("CARGO_BIN_EXE_pagehaul");
/// In the environment of each command.
const SECRET: &str = "planted-secret-0123456789";
/// Far more than any command takes to start: reached only by one that does not confine itself.
const PATIENCE: Duration = Duration::from_secs(120);

/// A pipe that takes no byte more, so that a command that prints to it never ends.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(writer.as_fd(), true).unwrap();
    while writer.write(&[0; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(writer.as_fd(), false).unwrap();
    (reader, writer)
}

/// Returns what `/proc/PID/status` says once the command is under a seccomp filter (mode 2), unless it ends before.
fn confined(child: &mut Child) -> Option<String> {
    let status = format!("/proc/{}/status", child.id());
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE && child.try_wait().unwrap().is_none() {
        if let Ok(status) = std::fs::read_to_string(&status)
            && status.contains("\nSeccomp:\t2\n")
        {
            return Some(status);
        }
        std::thread::yield_now();
    }
    None
}

#[test]
fn readers_confine_themselves() {
    let directory = tempfile::tempdir().unwrap();
    let mut machine = Machine::new(Era::V6_12);
    machine.sampler(0x4000);
    machine.log(0x6000, &[Message { nanoseconds: 0, level: 0, caller: 7, text: "panic" }]);
    machine.build().elf().write(&directory.path().join("vmcore")).unwrap();
    for (data, name) in [
        ("reclaim/tests/data/guest-6.12.pht", "reclaim.pht"),
        ("latency/tests/data/functions-6.12.pht", "functions.pht"),
        ("vmalloc/tests/data/vmalloc-6.12.pht", "vmalloc.pht"),
    ] {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(data);
        std::fs::copy(data, directory.path().join(name)).unwrap();
    }
    for arguments in [
        "info vmcore",
        "dmesg vmcore",
        "facts vmcore",
        "read vmcore --phys 0x4000000",
        "pages vmcore",
        "verify vmcore",
        "convert vmcore -",
        "reclaim report reclaim.pht",
        "reclaim compare reclaim.pht reclaim.pht",
        "latency walk_component --from functions.pht",
        "vmalloc --from vmalloc.pht",
        "bench codec vmcore --compress lzo --time 1ms",
        "makedumpfile -F --dump-dmesg vmcore",
        // Waits for its standard input.
        "makedumpfile -R rearranged",
    ] {
        let (reader, writer) = full_pipe();
        let mut child = Command::new(BINARY)
            .args(arguments.split(' '))
            .current_dir(directory.path())
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .stdin(Stdio::piped())
            .stdout(writer)
            .spawn()
            .unwrap();
        let confined = confined(&mut child);
        let environment = std::fs::read(format!("/proc/{}/environ", child.id())).unwrap_or_default();
        drop(reader);
        child.kill().unwrap();
        child.wait().unwrap();
        let status = confined.unwrap_or_else(|| panic!("{arguments}"));
        for line in ["NoNewPrivs:\t1", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000"] {
            assert!(status.contains(line), "{arguments}: {status}");
        }
        // Only root could have dropped these.
        let bound = status.contains("CapBnd:\t0000000000000000");
        assert!(bound || !rustix::process::geteuid().is_root(), "{arguments}: {status}");
        let planted = environment.windows(SECRET.len()).any(|bytes| bytes == SECRET.as_bytes());
        assert!(!planted, "{arguments}: the environment is as it was");
    }
}
