//! Every write failed, and every write killed: whatever becomes of any one write of a capture or conversion, the output
//! claims no page that it does not hold, and is complete only if it holds every page. Judged by pagehaul's reader, by one
//! that shares no code with it, and by libkdumpfile.

mod common {
    pub mod faulty;
    pub mod independent;
    pub mod libkdumpfile;
    pub mod loop_device;
    pub mod setup;
}

use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use common::faulty::{Fault, Faulty, Plan};
use common::independent;
use common::libkdumpfile::{Libkdumpfile, Reading};
use common::loop_device::LoopDevice;
use common::setup::Setup;
use pagehaul_synth::{Content, Era, Machine};

/// One command that writes.
struct Command {
    name: &'static str,
    arguments: &'static str,
    /// The dump, or its parts.
    outputs: &'static [&'static str],
}

const COMMANDS: [Command; 7] = [
    Command { name: "kdump", arguments: "capture vmcore disk/dump", outputs: &["dump"] },
    Command { name: "checksums", arguments: "capture --checksums vmcore disk/dump", outputs: &["dump"] },
    Command { name: "split set", arguments: "capture vmcore disk/one disk/two", outputs: &["one", "two"] },
    Command { name: "flattened", arguments: "capture -f flattened vmcore disk/dump", outputs: &["dump"] },
    Command { name: "ELF", arguments: "capture -f elf vmcore disk/dump", outputs: &["dump"] },
    Command { name: "convert", arguments: "convert source disk/dump", outputs: &["dump"] },
    Command { name: "convert to ELF", arguments: "convert -f elf source disk/dump", outputs: &["dump"] },
];

/// What happens to a write.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    /// It fails.
    Once(Fault),
    /// It and all later ones fail.
    Always,
    /// The program is killed after it.
    Kill,
}

const TROUBLES: [Trouble; 5] = [
    Trouble::Once(Fault::Error),
    Trouble::Once(Fault::Short),
    Trouble::Once(Fault::Full),
    Trouble::Always,
    Trouble::Kill,
];

impl Trouble {
    fn plan(self, write: usize) -> Plan {
        match self {
            Self::Once(fault) => Plan { fault: Some((write, fault)), ..Plan::default() },
            Self::Always => Plan { writes: Some(write), ..Plan::default() },
            Self::Kill => Plan { kill: Some(write + 1), ..Plan::default() },
        }
    }
}

/// What became of the runs.
#[derive(Debug, Default)]
struct Count {
    complete: usize,
    incomplete: usize,
    none: usize,
    killed: usize,
    /// Pages of all incomplete dumps, each compared with memory.
    pages: u64,
}

/// Runs a command while the file system fails as `plan` says. Returns its exit status, or `None` if it was killed, what it
/// printed, and how many writes there were.
fn run(setup: &Setup, faulty: &Faulty, arguments: &str, plan: Plan) -> (Option<i32>, String, usize) {
    faulty.fail(plan);
    let mut arguments: Vec<&str> = arguments.split(' ').collect();
    arguments.splice(1..1, ["-q", "-d", "0", "-c", "none", "-t", "2", "--force"]);
    let child = setup.command(&arguments).stderr(Stdio::piped()).spawn().unwrap();
    faulty.set_victim(child.id());
    let output = child.wait_with_output().unwrap();
    let (writes, _) = faulty.fail(Plan::default());
    assert!(matches!(output.status.signal(), None | Some(9)), "{arguments:?}: {}", output.status);
    (output.status.code(), String::from_utf8(output.stderr).unwrap(), writes)
}

/// Judges what a run left in `outputs`, files of `setup`.
fn judge(
    setup: &Setup,
    other: &mut Option<Libkdumpfile>,
    outputs: &[&str],
    code: Option<i32>,
    what: &str,
    count: &mut Count,
) {
    let all = setup.image.expected(0).len() as u64;
    // A part that holds nothing is removed.
    let outputs: Vec<&str> = outputs.iter().copied().filter(|name| setup.path(name).exists()).collect();
    // Asserts that no page differs from memory.
    let opened = setup.right_pages_of(&outputs).ok();
    let mut claimed = 0;
    for output in &outputs {
        let bytes = fs::read(setup.path(output)).unwrap_or_default();
        if let Some(other) = other {
            let reading = other.read(&setup.path(output), &bytes);
            // It reads each part of a split set as a dump, and no flattened stream. Of an ELF file that ends early, version
            // 0.5.1 maps zeros past the end; in what the file has, the other readers find none.
            let is_elf = bytes.starts_with(b"\x7fELF");
            let expected = match reading {
                Reading::Pages([right, zeros, wrong, errors]) => {
                    let is_whole = right > 0 && zeros + errors == 0;
                    wrong == 0 && (zeros == 0 || is_elf) && (code != Some(0) || outputs.len() > 1 || is_whole)
                }
                Reading::Refused => code != Some(0) || bytes.starts_with(b"makedumpfile"),
                Reading::Died(_) => false,
            };
            assert!(expected, "{what}: libkdumpfile reads {output} as {reading:?}");
        }
        let pages = independent::pages(&bytes);
        claimed += pages.len() as u64;
        for (pfn, page) in pages {
            assert!(page == setup.image.page(pfn), "{what}: PFN {pfn:#x} of {output} has other contents");
        }
    }
    let (held, complete) = opened.unwrap_or_default();
    assert!(!complete || held == all, "{what}: complete with {held} of {all} pages");
    match code {
        Some(0) => {
            assert!(complete, "{what}: exit status 0, and not complete");
            count.complete += 1;
        }
        Some(1) => {
            assert!(opened.is_none() && claimed == 0, "{what}: exit status 1 with {claimed} pages");
            count.none += 1;
        }
        Some(3) => {
            assert!(opened.is_some() && !complete, "{what}: exit status 3, and not marked incomplete");
            count.incomplete += 1;
            count.pages += held;
        }
        Some(code) => panic!("{what}: exit status {code}"),
        None => {
            count.killed += 1;
            count.pages += held;
        }
    }
}

/// The writes to be tried: all with `PAGEHAUL_SWEEP=all`, else some forty.
fn tried(writes: usize) -> std::iter::StepBy<std::ops::Range<usize>> {
    let all = std::env::var("PAGEHAUL_SWEEP").is_ok_and(|value| value == "all");
    (0..writes).step_by(if all { 1 } else { writes.div_ceil(40).max(1) })
}

#[test]
fn any_write_may_fail_or_be_the_last() {
    let setup = Setup::with_noise(3);
    setup.succeeds(&["capture", "-q", "-d", "0", "vmcore", "source"]);
    let Some(faulty) = Faulty::mount(&setup.path("disk")) else { return };
    let mut other = Libkdumpfile::start(&setup.path("vmcore"));
    for command in COMMANDS {
        let (code, said, writes) = run(&setup, &faulty, command.arguments, Plan::default());
        assert_eq!(code, Some(0), "{}: {said}", command.name);
        faulty.clear();
        let mut count = Count::default();
        let tried = tried(writes);
        let runs = tried.len() * TROUBLES.len();
        for (write, trouble) in tried.flat_map(|write| TROUBLES.map(|trouble| (write, trouble))) {
            let (code, said, _) = run(&setup, &faulty, command.arguments, trouble.plan(write));
            let what = format!("{}: {trouble:?} at write {write} of {writes}: {said}", command.name);
            for output in command.outputs {
                match faulty.take(output) {
                    Some(bytes) => fs::write(setup.path(output), bytes).unwrap(),
                    None => drop(fs::remove_file(setup.path(output))),
                }
            }
            faulty.clear();
            if matches!(trouble, Trouble::Once(Fault::Short)) {
                assert_eq!(code, Some(0), "{what}");
            }
            // The dump is complete; only its checksums are lost.
            let sums_lost = code == Some(1) && said.contains("the dump is written, but");
            let judged = if sums_lost { Some(0) } else { code };
            judge(&setup, &mut other, command.outputs, judged, &what, &mut count);
            assert!(code.is_none_or(|code| code == 0) || said.trim_end().lines().count() == 1, "{what}");
        }
        println!("{}: {writes} writes, {runs} runs: {count:?}", command.name);
        assert!(count.killed > 0 && count.incomplete + count.none + count.complete > 0);
    }
    if let Some((given, read)) = other.map(|other| other.counts()) {
        println!("libkdumpfile reads {read} of {given} different files");
        assert!(read > 0);
    }
}

/// Overwrites a disk. Closing it does not write its cache back while another thread's child, not yet at its exec, has it open, too:
/// then the fault that comes next would meet these writes.
fn overwrite(disk: &str, bytes: &[u8]) {
    let mut file = fs::OpenOptions::new().write(true).open(disk).unwrap();
    file.write_all(bytes).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn any_write_to_a_disk_may_fail_or_be_the_last() {
    let setup = Setup::with_noise(3);
    let mut machine = Machine::new(Era::V6_1);
    for pfn in 0x5000..0x5300 {
        machine.fill(pfn, Content::Random);
    }
    let other = Setup::new(&mut machine);
    let Some(faulty) = Faulty::mount(&setup.path("disk")) else { return };
    let mut libkdumpfile = Libkdumpfile::start(&setup.path("vmcore"));
    for format in ["kdump", "flattened"] {
        // A file of the faulty file system as a disk: the kernel writes to it on behalf of the program.
        let disk = LoopDevice::new(&setup.path("disk/image"), 16 << 20);
        let Some(disk) = disk.and_then(LoopDevice::with_small_requests) else { return };
        let arguments = format!("capture -f {format} vmcore {}", disk.path());
        let (code, said, writes) = run(&setup, &faulty, &arguments, Plan::default());
        assert_eq!(code, Some(0), "{said}");
        other.succeeds(&[
            "capture",
            "-q",
            "-d",
            "0",
            "-c",
            "none",
            "--force",
            "-f",
            format,
            "vmcore",
            disk.path(),
        ]);
        let older = faulty.contents("image").unwrap();
        let mut count = Count::default();
        let mut untouched = 0;
        let troubles = [Trouble::Once(Fault::Error), Trouble::Always, Trouble::Kill];
        for (write, trouble) in tried(writes).flat_map(|write| troubles.map(|trouble| (write, trouble))) {
            // An older dump of another machine, of which nothing may pass for this one's.
            overwrite(disk.path(), &older);
            let (code, said, _) = run(&setup, &faulty, &arguments, trouble.plan(write));
            let what = format!("disk, {format}: {trouble:?} at write {write} of {writes}: {said}");
            // Not the page cache's: it may have what a failed write lost.
            let left = faulty.contents("image").unwrap();
            if left == older && code != Some(3) {
                assert_ne!(code, Some(0), "{what}");
                untouched += 1;
                continue;
            }
            fs::write(setup.path("copy"), left).unwrap();
            judge(&setup, &mut libkdumpfile, &["copy"], code, &what, &mut count);
        }
        let runs = tried(writes).len() * troubles.len();
        println!(
            "disk, {format}: {writes} writes, {runs} runs: {count:?}, older dump untouched: {untouched}"
        );
    }
}

/// Descriptors are saved every 32 MiB or second; buffers hold 10 MiB on their way to the disk.
#[test]
fn a_killed_capture_keeps_all_but_the_last_42_mib() {
    const LOST: usize = (42 << 20) / 4096;
    let mut machine = Machine::new(Era::V6_12);
    machine.ram(0x10_0000, 0xc00_0000);
    for pfn in 0x4000..0xa000 {
        machine.fill(pfn, Content::Random);
    }
    let setup = Setup::new(&mut machine);
    let Some(faulty) = Faulty::mount(&setup.path("disk")) else { return };
    let (code, said, writes) = run(&setup, &faulty, "capture vmcore disk/dump", Plan::default());
    assert_eq!(code, Some(0), "{said}");
    for eighth in 1..8 {
        faulty.clear();
        let kill = writes * eighth / 8;
        let plan = Plan { kill: Some(kill), ..Plan::default() };
        let (code, said, done) = run(&setup, &faulty, "capture vmcore disk/dump", plan);
        if code.is_some() {
            // The first capture was slower, and so saved its tables more often.
            assert!(code == Some(0) && done < kill, "{said}");
            continue;
        }
        let bytes = faulty.take("dump").unwrap();
        let on_disk = bytes.chunks(4096).filter(|block| block.iter().any(|byte| *byte != 0)).count();
        fs::write(setup.path("dump"), bytes).unwrap();
        assert_eq!(setup.is_complete("dump"), Some(false));
        // Asserts that no page differs from memory.
        setup.right_pages("dump");
        let pages = independent::pages(&fs::read(setup.path("dump")).unwrap());
        let held = pages.into_iter().filter(|(pfn, page)| {
            assert!(*page == setup.image.page(*pfn), "PFN {pfn:#x} has other contents");
            page.iter().any(|byte| *byte != 0)
        });
        let held = held.count();
        println!("killed after write {kill} of {writes}: {on_disk} pages on disk, {held} in the dump");
        assert!(held + LOST >= on_disk, "write {kill}: {held} of {on_disk} pages");
    }
}
