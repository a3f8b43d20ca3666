//! pagehaul called as makedumpfile: what each form of its command line does, on synthetic machines.

mod common {
    pub mod setup;
    pub mod small_disk;
}

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::{Command, Output, Stdio};

use common::setup::{BINARY, Setup};
use common::small_disk::with_disk_of;
use pagehaul_kdump::format::{FLAT_INDEX_SIGNATURE, FlatIndex, FlatRecord};
use pagehaul_kdump::{KdumpFile, STATUS_OFFSET};
use pagehaul_physmem::file::PlainFile;
use pagehaul_synth::{Content, Era, Kind, Machine, Message};

/// A machine with a log, and `makedumpfile` as the kdump scripts find it: a link.
struct Guest(Setup);

impl Guest {
    fn new() -> Self {
        let mut machine = Machine::new(Era::V6_12);
        machine.sampler(0x4000);
        let text = "Kernel panic - not syncing: sysrq triggered crash";
        let mut messages = [Message { nanoseconds: 1_500_000_000, level: 0, caller: 7, text }; 2];
        (messages[1].text, messages[1].caller) = ("Two lines:\n  the second", 1 << 31 | 3);
        machine.log(0x6000, &messages);
        Self::of(Setup::new(&mut machine))
    }

    fn of(setup: Setup) -> Self {
        std::os::unix::fs::symlink(BINARY, setup.path("makedumpfile")).unwrap();
        Self(setup)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(self.0.path("makedumpfile"));
        command.args(line.split_whitespace()).current_dir(self.0.directory.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Runs, expects success and nothing on standard error but progress; returns standard output.
    fn succeeds(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs, expects status 1; returns standard output and error.
    fn fails(&self, line: &str) -> (String, String) {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(1), "{line}");
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.0.path(name)).unwrap()
    }

    /// Asserts that two files hold the same pages.
    fn assert_same_pages(&self, names: &[&str], other: &str) {
        let expected = self.0.right_pages(other);
        assert_eq!(self.0.right_pages_of(names).unwrap(), (expected, true), "{names:?}");
    }
}

#[test]
fn options_select_codec_level_and_format() {
    let guest = Guest::new();
    for (options, equivalent) in [
        ("", "-d 0 -c none"),
        ("-d 31", "-d 31 -c none"),
        ("-c -d 31", "-d 31 -c zlib:1"),
        ("-l --message-level 7 -d 31", "-d 31 -c lzo"),
        ("-p -d 17", "-d 17 -c snappy"),
        ("-z -d 1 --num-threads=4", "-d 1 -c zstd:1"),
        ("-E -d 31", "-d 31 -f elf"),
        ("-l -c -b 8 --cyclic-buffer 1024 --non-mmap -x vmlinux", "-d 0 -c zlib:1"),
    ] {
        let said = guest.succeeds(&format!("{options} vmcore dump"));
        assert!(said.contains("The dumpfile is saved to dump.\n"), "{options}: {said}");
        assert!(said.ends_with("makedumpfile Completed.\n"), "{options}: {said}");
        assert_eq!(std::fs::metadata(guest.0.path("dump")).unwrap().permissions().mode() & 0o777, 0o600);
        let mut arguments = vec!["capture", "-q", "--force"];
        arguments.extend(equivalent.split(' '));
        arguments.extend(["vmcore", "expected"]);
        guest.0.succeeds(&arguments);
        assert!(guest.bytes("dump") == guest.bytes("expected"), "{options}");
        std::fs::remove_file(guest.0.path("dump")).unwrap();
    }
    // As a command of pagehaul too.
    guest.0.succeeds(&["makedumpfile", "-c", "-d31", "vmcore", "dump"]);
    guest.0.succeeds(&["capture", "-q", "--force", "-c", "zlib:1", "vmcore", "expected"]);
    assert!(guest.bytes("dump") == guest.bytes("expected"));
}

#[test]
fn an_existing_file_stays_without_f() {
    let guest = Guest::new();
    std::fs::write(guest.0.path("dump"), "precious").unwrap();
    let (out, error) = guest.fails("-l -d 31 vmcore dump");
    assert!(error.contains("dump exists") && out.ends_with("makedumpfile Failed.\n"), "{out}{error}");
    assert_eq!(guest.bytes("dump"), b"precious");
    guest.succeeds("-f -l -d 31 vmcore dump");
    assert_eq!(guest.0.is_complete("dump"), Some(true));
}

#[test]
fn message_levels_choose_what_is_said() {
    let guest = Guest::new();
    let run = |line: &str| {
        let output = guest.run(line);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    assert_eq!(run("-f --message-level 0 -d 31 vmcore dump"), (Some(0), String::new(), String::new()));
    assert_eq!(run("--message-level 0 -d 31 nothing dump2"), (Some(1), String::new(), String::new()));
    let (code, out, error) = run("--message-level 4 -d 31 nothing dump2");
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(error.starts_with("makedumpfile: cannot open nothing"), "{error}");
    let (_, out, _) = run("-f --message-level 16 -d 31 vmcore dump");
    assert!(out.contains("Original pages  : 0x0000") && !out.contains("Completed"), "{out}");
    let (_, out, _) = run("-f -D -d 31 vmcore dump");
    assert!(out.contains("  OSRELEASE=6.12") && out.contains("Completed"), "{out}");
}

#[test]
fn a_flattened_dump_leaves_standard_output_to_the_stream() {
    let guest = Guest::new();
    let output = guest.run("-F -c -d 31 vmcore");
    assert!(output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("The dumpfile is saved to STDOUT.") && said.contains("Completed"), "{said}");
    assert!(output.stdout.starts_with(b"makedumpfile\0\0\0\0"));
    std::fs::write(guest.0.path("flat"), &output.stdout).unwrap();
    guest.succeeds("-c -d 31 vmcore dump");
    guest.assert_same_pages(&["flat"], "dump");
    // The options in the order that kdump-config gives them.
    assert!(guest.run("-c -d 31 -F vmcore").stdout == output.stdout);
}

#[test]
fn a_stream_is_rearranged_from_file_pipe_and_device_with_garbage() {
    let guest = Guest::new();
    let mut stream = guest.run("-F -l -d 31 vmcore").stdout;
    let rearrange = |input: Stdio, output: &str| {
        let done = guest.command(&format!("-R {output}")).stdin(input).output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    std::fs::write(guest.0.path("flat"), &stream).unwrap();
    let flat = || Stdio::from(File::open(guest.0.path("flat")).unwrap());
    assert_eq!(rearrange(flat(), "file"), (Some(0), String::new()));
    assert_eq!(guest.0.is_complete("file"), Some(true));
    guest.assert_same_pages(&["file"], "flat");
    assert_eq!(rearrange(flat(), "file").0, Some(1), "the file exists");

    // A raw partition: the rest of an older dump follows.
    stream.extend_from_slice(&stream.clone()[4096..]);
    let mut child = guest.command("--message-level 0 -R piped").stdin(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    // The reader stops at the end record, and closes the pipe.
    let _ = pipe.write_all(&stream);
    drop(pipe);
    assert!(child.wait().unwrap().success());
    assert!(guest.bytes("piped") == guest.bytes("file"));

    std::fs::write(guest.0.path("other"), "a partition without a dump").unwrap();
    let (code, said) = rearrange(Stdio::from(File::open(guest.0.path("other")).unwrap()), "none");
    assert!(code == Some(1) && said.contains("not a flattened dump"), "{said}");
    assert!(!guest.0.path("none").exists());
}

/// Returns a flattened stream up to its terminator.
fn without_index(stream: &[u8]) -> &[u8] {
    let index = stream.len() - FlatIndex::SIZE;
    assert!(stream[index..].starts_with(&FLAT_INDEX_SIGNATURE));
    let count = u64::from_be_bytes(stream[index + 24..index + 32].try_into().unwrap());
    &stream[..index - FlatRecord::SIZE * count as usize]
}

#[test]
fn a_flattened_elf_dump_becomes_the_elf_dump() {
    let guest = Guest::new();
    let output = guest.run("-F -E -d 31 vmcore");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let up_to_end = without_index(&output.stdout);
    assert!(up_to_end.len() < output.stdout.len());
    guest.succeeds("-E -d 31 vmcore elf");
    std::fs::write(guest.0.path("flat"), &output.stdout).unwrap();
    let rearranged = |name: &str| {
        let flat = File::open(guest.0.path("flat")).unwrap();
        guest.command(&format!("--message-level 0 -R {name}")).stdin(flat).status().unwrap().code()
    };
    assert_eq!(rearranged("file"), Some(0));
    assert!(guest.bytes("file") == guest.bytes("elf"));
    // The mark is the last record: without it, the stream makes an incomplete dump.
    std::fs::write(guest.0.path("flat"), &up_to_end[..up_to_end.len() - 36]).unwrap();
    assert_eq!(rearranged("cut"), Some(1));
    let (mut whole, cut) = (guest.bytes("elf"), guest.bytes("cut"));
    whole[48] = 1;
    assert!(cut == whole);
}

#[test]
fn a_truncated_stream_leaves_a_marked_file() {
    let guest = Guest::new();
    let stream = guest.run("-F -d 31 vmcore").stdout;
    let stream = without_index(&stream);
    for (number, length) in
        [stream.len() - 1, stream.len() - 50, stream.len() / 2, 20_000].into_iter().enumerate()
    {
        std::fs::write(guest.0.path("flat"), &stream[..length]).unwrap();
        let output = format!("cut{number}");
        let flat = File::open(guest.0.path("flat")).unwrap();
        let done = guest.command(&format!("--message-level 0 -R {output}")).stdin(flat).output().unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{said}");
        assert!(said.contains("INCOMPLETE DUMP: the flattened dump ends before its end record"), "{said}");
        assert_ne!(guest.0.is_complete(&output), Some(true), "{length}");
    }
}

#[test]
fn a_dump_that_was_incomplete_when_captured_is_kept_with_its_mark() {
    let guest = Guest::new();
    // What a capture on a failing source writes: a whole stream whose status word says INCOMPLETE.
    let mut whole = guest.run("-F -d 31 vmcore").stdout;
    let status = without_index(&whole).len() - 16 - 4;
    whole[status] |= 8;
    std::fs::write(guest.0.path("flat"), &whole).unwrap();
    let flat = File::open(guest.0.path("flat")).unwrap();
    let done = guest.command("-R dump").stdin(flat).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    // Fedora's scripts remove the dump of a raw partition unless the status is 0.
    assert_eq!(done.status.code(), Some(0), "{said}");
    assert!(said.contains("INCOMPLETE DUMP"), "{said}");
    assert_eq!(guest.0.is_complete("dump"), Some(false));
}

#[test]
fn parts_are_written_and_joined() {
    let guest = Guest::new();
    let said = guest.succeeds("--split -l -d 31 vmcore a b c");
    assert!(said.contains("The dumpfiles are saved to a, b, and c."), "{said}");
    guest.succeeds("-l -d 31 vmcore dump");
    let parts: Vec<_> = ["a", "b", "c"].into_iter().filter(|part| guest.0.path(part).exists()).collect();
    guest.assert_same_pages(&parts, "dump");
    guest.succeeds(&format!("--reassemble {} whole", parts.join(" ")));
    guest.assert_same_pages(&["whole"], "dump");
    let opened = KdumpFile::open(Box::new(PlainFile::open(&guest.0.path("whole")).unwrap())).unwrap();
    assert_eq!(opened.info().status & 0x2, 0x2, "pages stay compressed with lzo");
    assert_eq!(opened.dump_level(), 31);
}

#[test]
fn the_log_goes_to_a_new_file_or_to_standard_output() {
    let guest = Guest::new();
    let said = guest.succeeds("--dump-dmesg vmcore log");
    assert!(
        said.contains("The dmesg log is saved to log.\n") && said.ends_with("makedumpfile Completed.\n"),
        "{said}"
    );
    let expected = "\
[    1.500000] [      T7] Kernel panic - not syncing: sysrq triggered crash
[    1.500000] [      C3] Two lines:
                            the second
";
    assert_eq!(String::from_utf8(guest.bytes("log")).unwrap(), expected);
    assert!(guest.fails("--dump-dmesg vmcore log").1.contains("cannot create log"));
    // openSUSE's kdump-save: text on standard output, and these lines on standard error.
    let output = guest.run("-F --message-level 8 --dump-dmesg vmcore");
    assert!(output.status.success() && output.stdout == guest.bytes("log"));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.lines().any(|line| line.starts_with("  OSRELEASE=6.12")), "{said}");
    assert!(said.lines().any(|line| line.starts_with("  CRASHTIME=")), "{said}");
}

#[test]
fn check_params_opens_nothing() {
    let guest = Guest::new();
    assert_eq!(guest.succeeds("--check-params -l --message-level 7 -d 31 nothing dump"), "");
    assert_eq!(guest.succeeds("--check-params -l --message-level 7 -d 31 -F nothing"), "");
    assert!(!guest.0.path("dump").exists());
    for (line, reason) in [
        ("-d 32 vmcore dump", "Dump_level(32) is invalid."),
        ("--message-level 99 vmcore dump", "Message_level(99) is invalid."),
        ("--config erase.conf -x vmlinux vmcore dump", "--config is refused: data cannot be erased"),
        ("--eppic a.c vmcore dump", "--eppic is refused"),
        ("-X vmcore dump", "-X is refused"),
        ("-q vmcore dump", "invalid option -- 'q'"),
        ("", ""),
    ] {
        for line in [format!("--check-params {line}"), line.to_owned()] {
            let (out, error) = guest.fails(&line);
            assert!(out.starts_with("Commandline parameter is invalid.\n"), "{line}: {out}");
            assert!(error.contains(reason), "{line}: {error}");
            assert!(!guest.0.path("dump").exists());
        }
    }
    // With -F, standard output stays empty.
    let (out, error) = guest.fails("-F vmcore dump");
    assert!(out.is_empty() && error.starts_with("Commandline parameter is invalid."), "{out}{error}");
}

#[test]
fn memory_usage_version_and_help() {
    let guest = Guest::new();
    let table = guest.succeeds("--mem-usage vmcore");
    for row in
        ["TYPE", "ZERO", "NON_PRI_CACHE", "PRI_CACHE", "USER", "FREE", "KERN_DATA", "Total pages on system:"]
    {
        assert!(table.lines().any(|line| line.starts_with(row)), "no {row} in {table}");
    }
    assert!(guest.succeeds("-v").starts_with("makedumpfile: version 1.7."));
    assert!(guest.succeeds("--help").contains("--dump-dmesg"));
    let dry = guest.succeeds("--dry-run --show-stats -d 31 vmcore dump");
    assert!(dry.contains("Free pages              : 0x") && !guest.0.path("dump").exists(), "{dry}");
}

#[test]
fn the_next_level_is_tried_when_the_dump_does_not_fit() {
    // Noise in free memory, which level 31 excludes.
    let mut machine = Machine::new(Era::V6_12);
    machine.sampler(0x4000);
    for pfn in 0x5000..0x6000 {
        machine.page(Kind::Buddy, pfn, 0).fill(pfn, Content::Random);
    }
    let guest = Guest::of(Setup::new(&mut machine));
    let done = guest.run("-z -L 8M -d 0,31 vmcore dump");
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("the dump at level 0 does not fit; trying level 31"), "{said}");
    assert!(done.status.success(), "{said}");
    assert_eq!(guest.0.is_complete("dump"), Some(true));
}

/// The tables of level 0 alone are larger than the disk.
#[test]
fn the_next_level_is_tried_when_not_even_the_tables_fit() {
    let mut machine = Machine::new(Era::V6_12);
    machine.sampler(0x4000);
    for pfn in 0x5000..0x6000 {
        machine.page(Kind::Buddy, pfn, 0).fill(pfn, Content::Random);
    }
    let guest = Guest::of(Setup::new(&mut machine));
    let directory = guest.0.directory.path();
    let run = |arguments: &str| {
        let script = format!("{BINARY} makedumpfile -l -d 0,31 {arguments}; {BINARY} info disk/dump");
        let done = with_disk_of("700k", directory, &script);
        (String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    let (out, said) = run("vmcore disk/dump");
    assert!(said.contains("the dump at level 0 does not fit; trying level 31"), "{out}{said}");
    assert!(out.contains("\ncomplete ") && out.contains("\ndump level    31 "), "{out}{said}");
    // No level fits twice. One part may, if it is written before the other.
    let (out, said) = run("--split vmcore disk/dump disk/other");
    assert!(said.contains("the dump at level 0 does not fit; trying level 31"), "{out}{said}");
    let (_, outcome) = said.rsplit_once("No space left on device (os error 28); ").unwrap();
    let is_told =
        outcome.starts_with("no output holds a page") || outcome.contains(" is marked incomplete and holds ");
    assert!(is_told, "{out}{said}");
}

#[test]
fn a_full_disk_leaves_what_was_rearranged_marked() {
    let guest = Guest::of(Setup::with_noise(8));
    let flat = guest.run("-F -d 0 vmcore").stdout;
    assert!(flat.len() > 7 << 20);
    std::fs::write(guest.0.path("flat"), &flat).unwrap();
    let script = format!(
        "{BINARY} makedumpfile -R disk/dump < flat; code=$?; cp --sparse=always disk/dump dump; exit $code"
    );
    let done = with_disk_of("6m", guest.0.directory.path(), &script);
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(1), "{said}");
    assert!(said.contains("INCOMPLETE DUMP: cannot write to disk/dump: No space left on device"), "{said}");
    assert_eq!(guest.0.is_complete("dump"), Some(false), "{said}");
    assert!(guest.0.right_pages("dump") > 256);
}

/// Its own options, not those of pagehaul's commands.
#[test]
fn messages_advise_what_makedumpfile_accepts() {
    let guest = Guest::new();
    std::fs::write(guest.0.path("dump"), "precious").unwrap();
    let (_, said) = guest.fails("-d 31 vmcore dump");
    assert!(said.contains("dump exists; remove it, or replace it with -f\n"), "{said}");
    std::fs::write(guest.0.path("raw"), vec![1; 8192]).unwrap();
    let (_, said) = guest.fails("-d 31 raw other");
    assert!(said.contains("`pagehaul convert --layout` makes a dump"), "{said}");
    let (_, said) = guest.fails("-d 31 vmcore /dev/null");
    assert!(said.contains("use -F to write a flattened stream"), "{said}");
}

#[test]
fn an_incomplete_dump_is_loud_at_every_message_level() {
    let guest = Guest::of(Setup::with_noise(8));
    for line in ["--message-level 0 -L 4M -d 0 vmcore dump", "--message-level 1 -L 4M -d 0 -f vmcore dump"] {
        let done = guest.run(line);
        let said = String::from_utf8(done.stderr).unwrap();
        assert_eq!(done.status.code(), Some(1), "{said}");
        assert!(
            said.contains("INCOMPLETE DUMP: the size limit is reached; dump is marked incomplete"),
            "{said}"
        );
        assert!(said.contains("This is an incomplete dumpfile, but might analyzable."), "{said}");
        assert_eq!(guest.0.is_complete("dump"), Some(false));
    }
}

#[test]
fn a_console_that_takes_nothing_does_not_hold_up_the_dump() {
    let guest = Guest::new();
    // A pipe that is full and never read, as a console after XOFF.
    let (_reader, writer) = rustix::pipe::pipe().unwrap();
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).unwrap();
    let full = File::from(writer);
    while (&full).write(&[b'x'; 4096]).is_ok() {}
    rustix::fs::fcntl_setfl(&full, rustix::fs::OFlags::empty()).unwrap();
    let status = guest
        .command("-l --message-level 31 -d 31 vmcore dump")
        .stdout(full.try_clone().unwrap())
        .stderr(full)
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(guest.0.is_complete("dump"), Some(true));
}

#[test]
fn a_dump_is_filtered_again() {
    let guest = Guest::new();
    guest.succeeds("-l -d 1 vmcore first");
    guest.succeeds("-c -d 16 first second");
    let second = File::open(guest.0.path("second")).unwrap();
    let mut status = [0; 4];
    second.read_exact_at(&mut status, STATUS_OFFSET).unwrap();
    assert_eq!(u32::from_le_bytes(status) & 8, 0);
    let opened = KdumpFile::open(Box::new(PlainFile::open(&guest.0.path("second")).unwrap())).unwrap();
    assert_eq!(opened.dump_level(), 17);
}
