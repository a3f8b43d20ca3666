//! The command line as people and scripts use it: output, exit codes, and one sentence for each thing that goes wrong.

mod common {
    pub mod setup;
}

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use pagehaul_synth::{Era, Foreign, Machine};

use common::setup::{BINARY, Setup};

#[test]
fn a_capture_reports_what_it_did() {
    let setup = Setup::small();
    let text = setup.succeeds(&["capture", "vmcore", "dump"]);
    for part in ["class", "kept", "excluded", "free", "dump: ", "to 1", "threads", "anonymous memory"] {
        assert!(text.contains(part), "no \"{part}\" in {text}");
    }
    let json = setup.succeeds(&["capture", "--json", "--force", "-t", "3", "-c", "zlib:2", "vmcore", "dump"]);
    for part in ["\"how\": \"complete\"", "\"codec\": \"zlib:2\"", "\"threads\": 3", "\"level\": 31"] {
        assert!(json.contains(part), "no {part} in {json}");
    }
    assert_eq!(setup.succeeds(&["capture", "-q", "--force", "vmcore", "dump"]), "");
    let described = setup.succeeds(&["info", "dump"]);
    for part in
        ["kdump-compressed, version 6", "complete      yes", "6.12", "x86_64", "31 (zero, cache", "zstd"]
    {
        assert!(described.contains(part), "no \"{part}\" in {described}");
    }
}

#[test]
fn a_dry_run_writes_nothing() {
    let setup = Setup::small();
    let text = setup.succeeds(&["capture", "--dry-run", "vmcore"]);
    assert!(text.contains("estimate: "), "{text}");
    setup.succeeds(&["capture", "--dry-run", "vmcore", "dump"]);
    assert!(!setup.path("dump").exists());
}

#[test]
fn levels_have_numbers_and_names() {
    let setup = Setup::small();
    setup.succeeds(&["capture", "-q", "-d", "22", "vmcore", "number"]);
    setup.succeeds(&["capture", "-q", "-d", "cache,cache-private,free", "vmcore", "names"]);
    assert!(std::fs::read(setup.path("number")).unwrap() == std::fs::read(setup.path("names")).unwrap());
    assert!(setup.fails(&["capture", "-d", "32", "vmcore", "x"], 2).contains("0 to 31"));
    assert!(setup.fails(&["capture", "-c", "zstd:99", "vmcore", "x"], 2).contains("22"));
    assert!(setup.fails(&["capture", "-c", "rar", "vmcore", "x"], 2).contains("zlib"));
    assert!(setup.fails(&["capture", "--map-size", "5000", "vmcore", "x"], 2).contains("power of two"));
}

#[test]
fn info_describes_the_machine_of_any_dump() {
    let setup = Setup::small();
    let others = [("riscv64", 243), ("loongarch64", 258), ("mips64", 8)];
    let others = others.map(|(machine, elf_machine)| Foreign { machine, elf_machine, ..Foreign::ALL[6] });
    for machine in Foreign::ALL.into_iter().chain(others) {
        let word = |value: u32| if machine.big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        let mut registers = vec![0; 600];
        registers[32..36].copy_from_slice(&word(42)); // pr_pid
        let mut notes = Vec::new();
        for (name, kind, desc) in
            [("CORE\0\0\0\0", 1, &registers[..]), ("ERASEINFO\0\0\0", 0, b"erased key\n\0")]
        {
            let length = name.trim_end_matches('\0').len() as u32 + 1;
            notes.extend([length, desc.len() as u32, kind].into_iter().flat_map(word));
            notes.extend([name.as_bytes(), desc].concat());
        }
        std::fs::write(setup.path("dump"), machine.elf(&[(0x1000, machine.page(1))], &notes)).unwrap();
        let text = setup.succeeds(&["info", "dump"]);
        let order = if machine.big_endian { "big-endian" } else { "little-endian" };
        let bits = if machine.wide { 64 } else { 32 };
        // ELF does not say which of the 32-bit Arm machines it is.
        let name = if machine.machine == "armv7l" { "arm" } else { machine.machine };
        for part in [format!(" {name}: {order}, {bits}-bit pointers"), "erased key".into()] {
            assert!(text.contains(&part), "no {part:?} in {text}");
        }
        // Registers of the others are not known.
        let known = ["aarch64", "ppc64", "ppc64le", "s390x", "riscv64"];
        assert_eq!(text.contains("PID 42"), known.contains(&machine.machine), "{text}");
    }
}

#[test]
fn bad_inputs_get_one_sentence() {
    let setup = Setup::small();
    std::fs::write(setup.path("empty"), []).unwrap();
    std::fs::write(setup.path("text"), "not a vmcore at all").unwrap();
    std::fs::write(setup.path("short"), &std::fs::read(setup.path("vmcore")).unwrap()[..100]).unwrap();
    let mut foreign = std::fs::read(setup.path("vmcore")).unwrap();
    foreign[18..20].copy_from_slice(&258_u16.to_le_bytes());
    std::fs::write(setup.path("loongarch"), foreign).unwrap();
    // Another machine's memory can be read, but no dump of it is written.
    assert!(setup.succeeds(&["info", "loongarch"]).contains("loongarch64"));
    for command in ["capture", "convert"] {
        let said = setup.fails(&[command, "loongarch", "x"], 1);
        assert!(said.contains("x86_64, arm64 and riscv64 machines"), "{command}: {said}");
    }
    for (source, part) in [
        ("nothing", "cannot open nothing"),
        (".", "directory"),
        ("empty", "empty"),
        ("text", "neither an ELF vmcore nor"),
        ("short", "short"),
    ] {
        let said = setup.fails(&["capture", source, "dump"], 1);
        assert!(said.contains(part), "{source}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{source}: {said}");
        assert!(!setup.path("dump").exists(), "{source}");
        assert!(setup.fails(&["info", source], 1).contains(part));
    }
}

#[test]
fn a_kernel_that_is_not_understood_is_named_by_its_file() {
    let setup = Setup::small();
    let mut bytes = std::fs::read(setup.path("vmcore")).unwrap();
    let key = b"OFFSET(page.mapping)";
    let at = bytes.windows(key.len()).position(|window| window == key).unwrap();
    bytes[at] = b'X';
    std::fs::write(setup.path("odd"), bytes).unwrap();
    for arguments in
        [&["capture", "odd", "x"][..], &["capture", "--dry-run", "odd"], &["info", "--classes", "odd"]]
    {
        let said = setup.fails(arguments, 1);
        assert!(said.contains("odd: VMCOREINFO has no OFFSET(page.mapping)"), "{said}");
    }
}

#[test]
fn habits_of_makedumpfile_are_answered() {
    let setup = Setup::small();
    for (arguments, answer) in [
        (&["capture", "-l", "-d", "31", "vmcore", "x"][..], "makedumpfile's -l: -c lzo."),
        (&["-l", "--message-level", "7", "-d", "31", "vmcore", "x"], "makedumpfile's -l: -c lzo."),
        (&["capture", "-c", "-d", "31", "vmcore", "x"], "makedumpfile's -c: -c zlib."),
        (&["capture", "-F", "vmcore"], "`-` as the output"),
        (&["--dump-dmesg", "vmcore"], "`pagehaul dmesg`"),
    ] {
        let said = setup.fails(arguments, 2);
        assert!(said.contains(answer), "{arguments:?}: {said}");
    }
    for arguments in [&["capture", "-c", "rar", "vmcore", "x"][..], &["capture", "--nonsense"]] {
        let said = setup.fails(arguments, 2);
        assert!(!said.contains("makedumpfile's"), "{arguments:?}: {said}");
    }
}

#[test]
fn no_dump_goes_to_a_terminal() {
    let setup = Setup::small();
    let mut script = Command::new("script");
    script.args(["-qec", &format!("{BINARY} capture vmcore -"), "/dev/null"]).current_dir(setup.path("."));
    let Ok(output) = script.stdin(Stdio::null()).output() else {
        eprintln!("not tested: there is no script(1)");
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("standard output is a terminal"), "{said}");
}

#[test]
fn nothing_is_lost_in_a_closed_standard_output() {
    let setup = Setup::small();
    let run = |arguments: &str| {
        let script = format!("exec {BINARY} {arguments} >&-");
        let output = Command::new("sh").args(["-c", &script]).current_dir(setup.path(".")).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for arguments in ["capture vmcore -", "capture -f flattened vmcore -", "convert vmcore -", "core 1 -"] {
        if cfg!(feature = "process") || !arguments.starts_with("core") {
            let (code, said) = run(arguments);
            assert_eq!(code, Some(2), "{arguments}: {said}");
            assert!(said.contains("standard output is closed; redirect it"), "{said}");
        }
    }
    let (code, said) = run("info vmcore");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("standard output is closed"), "{said}");
    // The dump is there; only the report is lost.
    let (code, said) = run("capture vmcore dump");
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the report is lost: standard output is closed"), "{said}");
    setup.succeeds(&["verify", "dump"]);
    // /dev/null that is asked for is as good an output as any, however it is opened.
    let mut devices = [std::fs::File::options(), std::fs::File::options()];
    devices[0].write(true);
    devices[1].read(true).write(true);
    for device in devices {
        let mut command = setup.command(&["capture", "vmcore", "-"]);
        assert!(command.stdout(device.open("/dev/null").unwrap()).status().unwrap().success());
    }
}

#[test]
fn outputs_that_could_do_harm_are_refused() {
    let setup = Setup::small();
    setup.succeeds(&["capture", "-q", "vmcore", "dump"]);
    assert!(setup.fails(&["capture", "vmcore", "dump"], 1).contains("--force"));
    assert!(setup.fails(&["capture", "--force", "vmcore", "vmcore"], 1).contains("is the source itself"));
    assert!(
        setup.fails(&["capture", "--force", "vmcore", "/dev/null"], 1).contains("neither a file nor a disk")
    );
    assert!(setup.fails(&["capture", "--force", "vmcore", "."], 1).contains(". is a directory; name a file"));
    assert!(setup.fails(&["capture", "vmcore", "none/dump"], 1).contains("none/dump"));
    assert!(setup.fails(&["capture", "-f", "elf", "vmcore", "-"], 1).contains("flattened"));
    assert!(setup.fails(&["capture", "--json", "vmcore", "-"], 2).contains("standard output"));
    assert!(setup.fails(&["capture", "vmcore", "-", "part"], 2).contains("parts have to be files"));
    assert!(setup.fails(&["capture", "--checksums", "vmcore", "-"], 2).contains("name an output file"));
    assert!(setup.fails(&["capture", "vmcore"], 2).contains("OUTPUT"));
}

#[test]
fn a_stream_makes_the_same_dump() {
    let setup = Setup::small();
    let stream = setup.run(&["capture", "vmcore", "-"]);
    assert!(stream.status.success());
    assert!(String::from_utf8(stream.stderr).unwrap().contains("standard output: "));
    std::fs::write(setup.path("flat"), stream.stdout).unwrap();
    setup.succeeds(&["capture", "-q", "flat", "again"]);
    setup.succeeds(&["capture", "-q", "vmcore", "direct"]);
    // In a file the pages come in another order, so the bytes differ, but not what is in them.
    setup.succeeds(&["capture", "-q", "-f", "elf", "flat", "flat.elf"]);
    setup.succeeds(&["capture", "-q", "-f", "elf", "direct", "direct.elf"]);
    assert!(std::fs::read(setup.path("again")).unwrap() == std::fs::read(setup.path("direct")).unwrap());
    let elf = |name| std::fs::read(setup.path(name)).unwrap();
    assert!(elf("flat.elf") == elf("direct.elf"));
}

#[test]
fn a_file_that_may_not_grow_leaves_a_marked_dump() {
    let setup = Setup::noisy();
    // MiB that fit; in an ELF file each page has its place, and the noise starts at 64 MiB.
    for (format, name, limit) in [("kdump", "limited", 10), ("elf", "limited-elf", 74)] {
        // In units of 512 bytes.
        let script = format!(
            "ulimit -f {}; exec {BINARY} capture -q -d 0 -c none -f {format} vmcore {name}",
            limit << 11
        );
        let output =
            Command::new("sh").args(["-c", &script]).current_dir(setup.directory.path()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("cannot write to") && said.contains("is marked incomplete"), "{said}");
        setup.assert_incomplete(name, 1..setup.image.pfns().len() as u64);
    }
}

/// Runs a script that may mount disks that only it sees. Returns its exit code and standard error.
fn with_own_mounts(setup: &Setup, script: &str) -> (Option<i32>, String) {
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .current_dir(setup.directory.path())
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_full_disk_leaves_a_marked_dump() {
    let setup = Setup::noisy();
    std::fs::create_dir(setup.path("disk")).unwrap();
    // A disk of 12 MiB that only the command sees.
    let script = format!(
        "mount -t tmpfs -o size=12m none disk && {BINARY} capture -q -d 0 -c lzo vmcore disk/dump; code=$?; \
         cp disk/dump full; exit $code"
    );
    let (code, said) = with_own_mounts(&setup, &script);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    setup.assert_incomplete("full", 1..setup.image.pfns().len() as u64);
}

#[test]
fn a_full_disk_among_several_loses_nothing() {
    let setup = Setup::noisy();
    std::fs::create_dir(setup.path("disk")).unwrap();
    for (place, outputs) in [(1, "one disk/part two"), (2, "one two disk/part")] {
        // How much each disk takes depends on timing: on a busy machine a part may happen to fit.
        assert!((0..8).any(|_| fills_a_disk(&setup, place, outputs)), "the small disk never became full");
    }
}

/// Captures to three outputs, number `place` of which is on a disk of 5 MiB, and checks that no page is lost. Returns
/// whether that disk became full.
fn fills_a_disk(setup: &Setup, place: usize, outputs: &str) -> bool {
    let script = format!(
        "mount -t tmpfs -o size=5m none disk && \
         {BINARY} capture --force --json -d 0 -c none vmcore {outputs} > report && cp disk/part part && \
         {BINARY} convert -q --force -c none part two one whole"
    );
    let (code, said) = with_own_mounts(setup, &script);
    assert_eq!(code, Some(0), "{said}");
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(setup.path("report")).unwrap()).unwrap();
    let part = &report["parts"][place];
    assert_eq!(part["exists"], true, "{report}");
    assert!(part["pages"].as_u64() > Some(0) && part["pages"] == part["pages_written"], "{part}");
    assert_eq!(setup.right_pages("whole"), setup.image.expected(0).len() as u64);
    part["outcome"]["how"] == "disk-full"
}

#[test]
fn signals_end_a_stream_in_order() {
    use rustix::process::Signal;
    // timeout(1) sends two at once.
    for signals in [&[Signal::TERM][..], &[Signal::TERM, Signal::TERM, Signal::INT, Signal::HUP]] {
        signalled_stream_is_marked(signals);
    }
}

/// A second signal must not end it before its tables are written: a bitmap would claim pages that are not there.
#[test]
fn signals_end_a_dump_in_a_file_in_order() {
    use rustix::process::Signal;
    let setup = Setup::noisy();
    let dump = setup.path("dump");
    loop {
        let mut child = setup
            .command(&["capture", "-q", "-d", "0", "-c", "zlib:9", "-t", "1", "vmcore", "dump"])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let size = || std::fs::metadata(&dump).map_or(0, |meta| meta.len());
        while size() < 4 << 20 && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        if child.try_wait().unwrap().is_none() {
            let pid = rustix::process::Pid::from_child(&child);
            for signal in [Signal::TERM, Signal::TERM, Signal::INT, Signal::HUP] {
                rustix::process::kill_process(pid, signal).unwrap();
            }
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        if output.status.code() == Some(3) {
            assert!(said.contains("stopped by a signal"), "{said}");
            break;
        }
        // A busy machine may have let it finish.
        assert!(output.status.success(), "{said}");
        std::fs::remove_file(&dump).unwrap();
    }
    setup.assert_incomplete("dump", 0..setup.image.pfns().len() as u64);
    let output = setup.run(&["verify", "--json", "dump"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["missing"], &report["damaged"]), (&0.into(), &0.into()), "{report}");
}

fn signalled_stream_is_marked(signals: &[rustix::process::Signal]) {
    let setup = Setup::noisy();
    let mut child = setup
        .command(&["capture", "-q", "-d", "0", "-c", "none", "vmcore", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut stream = vec![0; 1 << 20];
    // Pages are coming; far more than fit the pipe and all buffers are still to come when the signal is sent.
    out.read_exact(&mut stream).unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    for &signal in signals {
        rustix::process::kill_process(pid, signal).unwrap();
    }
    out.read_to_end(&mut stream).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("stopped by a signal"), "{said}");
    std::fs::write(setup.path("stopped"), stream).unwrap();
    setup.assert_incomplete("stopped", 1..setup.image.pfns().len() as u64);
}

#[test]
fn memory_stays_under_the_bound() {
    // 8 GiB of address space, little of it used.
    let setup = Setup::new(Machine::new(Era::V6_12).ram(0x10_0000, 8 << 30).sampler(0x80000));
    for threads in [1_u64, 4] {
        let json = setup.succeeds(&[
            "capture",
            "--json",
            "--force",
            "-d",
            "31",
            "-t",
            &threads.to_string(),
            "vmcore",
            "dump",
        ]);
        let at = json.find("\"peak_anonymous_bytes\": ").unwrap() + 24;
        let bytes: u64 = json[at..].split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
        assert!(bytes > 0 && bytes <= (32 + 8 * threads) << 20, "{bytes} bytes with {threads} threads");
    }
}

#[test]
fn completions_and_manual_pages_are_generated() {
    let setup = Setup::small();
    for shell in ["bash", "zsh", "fish"] {
        assert!(setup.succeeds(&["completions", shell]).contains("dump-level"));
    }
    setup.succeeds(&["man", "pages"]);
    let page = std::fs::read_to_string(setup.path("pages").join(Path::new("pagehaul-capture.1"))).unwrap();
    assert!(page.contains("dump\\-level") && page.contains("Exit status"), "{page}");
}

#[test]
fn verbose_says_what_the_machine_is() {
    let setup = Setup::small();
    let said = setup.succeeds(&["capture", "-v", "--dry-run", "vmcore"]);
    for part in
        ["highest PFN 0x", "kernel 6.12", "page tables of 4 levels, phys_base 0x", "direct map at 0xffff"]
    {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!setup.succeeds(&["capture", "--dry-run", "vmcore"]).contains("page tables of"));
}

#[test]
fn codecs_restrict_auto_alone() {
    let setup = Setup::small();
    assert!(setup.fails(&["capture", "--codecs", "lzo", "vmcore", "dump"], 2).contains("add -c auto"));
    let said = setup.succeeds(&["capture", "-c", "auto", "--codecs", "zlib", "vmcore", "dump"]);
    assert!(said.contains("(auto, "), "{said}");
    assert!(setup.succeeds(&["info", "dump"]).contains("zlib"));
}
