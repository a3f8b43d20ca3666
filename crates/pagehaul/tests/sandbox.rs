//! Commands that parse files from elsewhere confine themselves. What the sandbox refuses is tested in `src/sandbox`.

use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pagehaul_synth::{Era, Machine, Message};

const BINARY: &str = env!("CARGO_BIN_EXE_pagehaul");
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

/// Returns whether the command comes under a seccomp filter (mode 2) before it ends.
fn confines_itself(child: &mut Child) -> bool {
    let status = format!("/proc/{}/status", child.id());
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE && child.try_wait().unwrap().is_none() {
        if std::fs::read_to_string(&status).is_ok_and(|status| status.contains("\nSeccomp:\t2\n")) {
            return true;
        }
        std::thread::yield_now();
    }
    false
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
        "read vmcore --phys 0x4000000",
        "pages vmcore",
        "verify vmcore",
        "convert vmcore -",
        "reclaim report reclaim.pht",
        "reclaim compare reclaim.pht reclaim.pht",
        "latency walk_component --from functions.pht",
        "vmalloc --from vmalloc.pht",
    ] {
        let (reader, writer) = full_pipe();
        let mut child = Command::new(BINARY)
            .args(arguments.split(' '))
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(writer)
            .spawn()
            .unwrap();
        let confined = confines_itself(&mut child);
        drop(reader);
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(confined, "{arguments}");
    }
}
