//! Sources that lack pages: the mark in the output, the report, the exit status, `info` and `verify` agree.

mod common {
    pub mod setup;
}

use std::io::Read;
use std::process::Stdio;

use common::setup::Setup;
use pagehaul_kdump::STATUS_OFFSET;
use pagehaul_kdump::format::flags;
use pagehaul_synth::{Content, Era, Machine, Records, flatten};

/// Exit status of a command that left an incomplete dump, and of `verify` for one.
const INCOMPLETE: i32 = 3;
/// Exit status of `read` for a page that an incomplete dump lacks.
const MISSING: i32 = 5;

/// Random pages, with a machine around them.
fn setup() -> Setup {
    let mut machine = Machine::new(Era::V6_12);
    machine.ram(0x10_0000, 0x640_0000).sampler(0x2000);
    for pfn in 0x4000..0x4400 {
        machine.fill(pfn, Content::Random);
    }
    Setup::new(&mut machine)
}

fn json(setup: &Setup, arguments: &[&str]) -> (Option<i32>, serde_json::Value) {
    let output = setup.run(arguments);
    let said = String::from_utf8_lossy(&output.stderr);
    let json = serde_json::from_slice(&output.stdout);
    (output.status.code(), json.unwrap_or_else(|error| panic!("{arguments:?}: {error}: {said}")))
}

/// Runs a command that writes `files`, and asserts that everything calls them incomplete.
fn assert_incomplete(setup: &Setup, command: &[&str], files: &[&str]) {
    let arguments = [&command[..1], &["--json", "--force"], &command[1..], files].concat();
    let (code, report) = json(setup, &arguments);
    assert_eq!(code, Some(INCOMPLETE), "{arguments:?}: {report}");
    let outcome = report["outcome"]["how"].as_str().unwrap();
    assert!(["pages-unreadable", "source-incomplete"].contains(&outcome), "{arguments:?}: {report}");
    let lost = report["unreadable_pages"].as_u64().unwrap();
    assert_eq!(report["pages_written"].as_u64(), Some(report["pages_kept"].as_u64().unwrap() - lost));
    let (code, described) = json(setup, &[&["info", "--json"], files].concat());
    assert_eq!((code, &described["complete"]), (Some(INCOMPLETE), &false.into()), "{arguments:?}");
    let (code, found) = json(setup, &[&["verify", "--json"], files].concat());
    assert_eq!((code, &found["intact"]), (Some(INCOMPLETE), &false.into()), "{arguments:?}");
    // One sentence, also where nothing else is printed.
    let quiet = [&command[..1], &["-q", "--force"], &command[1..], files].concat();
    let said = setup.fails(&quiet, INCOMPLETE);
    assert!(said.trim_end().lines().count() == 1 && said.contains("marked incomplete and hold"), "{said}");
}

#[test]
fn a_cut_vmcore_makes_incomplete_dumps_in_every_layout() {
    let setup = setup();
    let file = std::fs::File::options().write(true).open(setup.path("vmcore")).unwrap();
    let size = file.metadata().unwrap().len();
    file.set_len(size - 0x2400 * 4096 - 1).unwrap();
    for format in ["kdump", "flattened", "elf"] {
        for access in ["--no-mmap", "--map-size=64K"] {
            assert_incomplete(&setup, &["capture", "-d", "0", "-f", format, access, "vmcore"], &["dump"]);
        }
        assert_incomplete(&setup, &["capture", "-d", "31", "-f", format, "vmcore"], &["dump"]);
        assert_incomplete(&setup, &["convert", "-f", format, "vmcore"], &["dump"]);
    }
    assert_incomplete(&setup, &["capture", "-d", "0", "vmcore"], &["part-0", "part-1"]);
}

/// What follows from a cut is not blamed first, but in a report, which lists all that is missing: notes that are not whole, a kernel that cannot be found.
#[test]
fn of_a_cut_file_the_cut_is_said_first() {
    let setup = setup();
    let output = setup.run(&["makedumpfile", "-E", "-F", "-d", "0", "vmcore"]);
    let stream = output.stdout;
    let elf = std::fs::read(setup.path("vmcore")).unwrap();
    for (name, bytes) in [("stream", stream), ("elf", elf)] {
        // Within the headers, the notes, and memory.
        for length in [0x1400, 0x1800, 0x1f00, 0x2400, 0x3000, 0x20_0000] {
            std::fs::write(setup.path("cut"), &bytes[..length]).unwrap();
            for command in
                [&["pages", "cut"][..], &["triage", "cut"], &["dmesg", "cut"], &["capture", "cut", "none"]]
            {
                let output = setup.run(command);
                let said = String::from_utf8(output.stderr).unwrap();
                let shown = String::from_utf8(output.stdout).unwrap();
                if command[0] == "triage" && !shown.is_empty() {
                    assert_eq!(output.status.code(), Some(INCOMPLETE), "{name}, {length:#x}: {shown}");
                    assert!(shown.contains("  cut: it is truncated"), "{name}, {length:#x}: {shown}");
                    continue;
                }
                let first = said.lines().next().unwrap_or_default();
                assert!(!output.status.success(), "{name}, {length:#x}, {command:?}: {said}");
                let cause = first.split("; ").next().unwrap_or_default();
                let named = cause.contains("truncated") || first.contains("it is truncated or damaged");
                assert!(named, "{name}, {length:#x}, {command:?}: {said}");
            }
        }
    }
}

#[test]
fn an_incomplete_dump_makes_incomplete_conversions() {
    let setup = setup();
    let put = |name: &str, bytes: &[u8]| std::fs::write(setup.path(name), bytes).unwrap();
    let mut kdump = setup.image.kdump();
    kdump.level(31);
    let whole = kdump.bytes();
    put("cut", &whole[..whole.len() - 100_000]);
    let flat = flatten(&whole, 0x1_0000, Records::Ascending);
    put("flat-cut", &flat[..flat.len() - 100_000]);
    put("flat-without-end", &flat[..flat.len() - 16]);
    let mut unfinished = kdump.incomplete(1000).bytes();
    put("unfinished", &unfinished);
    // Descriptors of zeros, and nothing in the header that says so.
    unfinished[STATUS_OFFSET as usize] &= !flags::INCOMPLETE.to_le_bytes()[0];
    put("zeroed", &unfinished);
    let parts = setup.image.kdump().level(31).parts(2);
    put("part", &parts[0]);
    for source in ["cut", "flat-cut", "flat-without-end", "unfinished", "zeroed", "part"] {
        for format in ["kdump", "flattened", "elf"] {
            assert_incomplete(&setup, &["convert", "-f", format, source], &["dump"]);
        }
        assert_eq!(json(&setup, &["info", "--json", source]).1["complete"], false, "{source}");
        assert_eq!(setup.run(&["verify", source]).status.code(), Some(INCOMPLETE), "{source}");
    }
}

/// As makedumpfile's pipe leaves it when the disk is full, or ssh broke.
#[test]
fn every_command_names_the_truncation_of_a_dump() {
    let setup = setup();
    setup.succeeds(&["capture", "-q", "-d", "0", "vmcore", "whole"]);
    let whole = std::fs::read(setup.path("whole")).unwrap();
    std::fs::write(setup.path("cut"), &whole[..whole.len() * 9 / 10]).unwrap();
    for arguments in [
        &["info", "cut"][..],
        &["triage", "cut"],
        &["triage", "--json", "cut"],
        &["triage", "diff", "cut", "cut"],
        &["dmesg", "cut"],
        &["pages", "cut"],
        &["facts", "cut"],
    ] {
        let output = setup.run(arguments);
        let shown = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(INCOMPLETE), "{arguments:?}: {shown}");
        assert!(shown.contains("truncated"), "{arguments:?}: {shown}");
    }
}

#[test]
fn a_truncated_stream_is_an_incomplete_dump_for_every_command() {
    let setup = setup();
    let whole = setup.run(&["capture", "-q", "-d", "31", "-f", "flattened", "vmcore", "-"]).stdout;
    let plain = setup.image.kdump().level(31).bytes();
    let foreign = flatten(&plain, 0xfff, Records::Ascending);
    for (name, stream) in [("ours", whole), ("foreign", foreign)] {
        let tables = 4096 + setup.image.kdump().level(31).bytes().len() / 8;
        for cut in [tables.max(200_000), stream.len() / 2, stream.len() - 5000] {
            std::fs::write(setup.path("cut"), &stream[..cut]).unwrap();
            let what = format!("{name}: {cut} of {} bytes", stream.len());
            for command in ["info", "triage", "dmesg", "pages", "facts", "verify"] {
                let output = setup.run(&[command, "cut"]);
                let shown = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
                assert_eq!(output.status.code(), Some(INCOMPLETE), "{what}: {command}: {shown}");
                assert!(shown.contains("the flattened stream is truncated"), "{what}: {command}: {shown}");
                assert!(shown.contains("pagehaul convert"), "{what}: {command}: {shown}");
            }
            // Records in the order of addresses: the last page that is not zeros did not arrive.
            if name == "foreign" {
                let said = setup.fails(&["read", "cut", "--phys", "0x43ff000", "--len", "16"], MISSING);
                assert!(said.contains(" is missing: "), "{what}: read: {said}");
            }
            // What it says to do makes a dump of the same pages.
            setup.fails(&["convert", "-q", "--force", "cut", "salvaged"], INCOMPLETE);
            let pages = |name: &str| setup.right_pages_of(&[name]).unwrap();
            assert_eq!(pages("cut"), pages("salvaged"), "{what}");
            assert!(!pages("cut").1);
        }
    }
    // ELF: the last record is the mark.
    let elf = setup.run(&["makedumpfile", "-E", "-F", "-d", "31", "vmcore"]).stdout;
    for cut in [elf.len() / 4, elf.len() / 2, elf.len() / 4 * 3] {
        std::fs::write(setup.path("cut"), &elf[..cut]).unwrap();
        let (code, described) = json(&setup, &["info", "--json", "cut"]);
        assert_eq!(
            (code, &described["complete"]),
            (Some(INCOMPLETE), &false.into()),
            "{cut} of {}",
            elf.len()
        );
    }
    // Before the bitmaps are whole, nothing can be found: one sentence.
    let whole = setup.run(&["capture", "-q", "-d", "31", "-f", "flattened", "vmcore", "-"]).stdout;
    for cut in [100, 4096, 4200, 9000, 20_000] {
        std::fs::write(setup.path("cut"), &whole[..cut]).unwrap();
        for command in ["info", "triage", "dmesg", "pages", "facts", "verify"] {
            let said = setup.fails(&[command, "cut"], 1);
            assert_eq!(said.trim_end().lines().count(), 1, "{command}, {cut} bytes: {said}");
        }
    }
}

#[test]
fn a_source_that_shrinks_while_it_is_read_makes_an_incomplete_dump() {
    let setup = Setup::noisy();
    let mut child = setup
        .command(&["capture", "-q", "-t", "1", "-d", "0", "-c", "none", "vmcore", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut stream = vec![0; 1 << 20];
    // Pages are coming. More than fit the pipe and all buffers are still to be read.
    out.read_exact(&mut stream).unwrap();
    let vmcore = std::fs::File::options().write(true).open(setup.path("vmcore")).unwrap();
    vmcore.set_len(0x10_0000).unwrap();
    out.read_to_end(&mut stream).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    std::fs::write(setup.path("dump"), stream).unwrap();
    assert_eq!(setup.is_complete("dump"), Some(false), "{said}");
    assert_eq!(output.status.code(), Some(INCOMPLETE), "{said}");
    assert!(said.contains("is marked incomplete and holds"), "{said}");
}

#[test]
fn dry_runs_of_incomplete_sources_succeed_and_say_so() {
    let setup = setup();
    let file = std::fs::File::options().write(true).open(setup.path("vmcore")).unwrap();
    let size = file.metadata().unwrap().len();
    file.set_len(size - 0x2400 * 4096 - 1).unwrap();
    let (code, report) = json(&setup, &["capture", "--json", "--dry-run", "vmcore"]);
    assert_eq!((code, &report["outcome"]["how"]), (Some(0), &"dry-run".into()));
    assert!(report["warnings"].to_string().contains("it is truncated"), "{report}");
}
