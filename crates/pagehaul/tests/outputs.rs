//! Outputs harm no file: what has their name is replaced only on request, never written through, and never while another
//! run writes to it.

mod common {
    #[allow(dead_code)]
    pub mod path_options;
    pub mod setup;
}

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use common::setup::{BINARY, Setup};
use rustix::fs::{FlockOperation, flock};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o777
}

/// The formats of dumps in files.
const FORMATS: [&str; 3] = ["kdump", "elf", "flattened"];

#[test]
fn a_replaced_dump_is_a_new_file_that_only_its_owner_reads() {
    let setup = Setup::small();
    let [dump, link] = ["dump", "link"].map(|name| setup.path(name));
    for format in FORMATS {
        fs::write(&dump, "old").unwrap();
        fs::set_permissions(&dump, Permissions::from_mode(0o666)).unwrap();
        fs::hard_link(&dump, &link).unwrap();
        setup.succeeds(&["capture", "-q", "--force", "-f", format, "vmcore", "dump"]);
        assert_eq!(mode(&dump), 0o600, "{format}");
        assert_eq!(fs::read(&link).unwrap(), b"old", "{format}");
        fs::remove_file(&link).unwrap();
    }
}

#[test]
fn symbolic_links_are_not_written_through() {
    let setup = Setup::small();
    let [dump, other] = ["dump", "other"].map(|name| setup.path(name));
    for (format, exists) in FORMATS.into_iter().flat_map(|format| [(format, true), (format, false)]) {
        if exists {
            fs::write(&other, "old").unwrap();
        }
        symlink("other", &dump).unwrap();
        assert!(setup.fails(&["capture", "-f", format, "vmcore", "dump"], 1).contains("--force"));
        setup.succeeds(&["capture", "-q", "--force", "-f", format, "vmcore", "dump"]);
        assert!(fs::symlink_metadata(&dump).unwrap().is_file());
        assert_eq!(fs::read(&other).ok(), exists.then(|| b"old".to_vec()));
        fs::remove_file(&dump).unwrap();
        let _ = fs::remove_file(&other);
    }
}

#[test]
fn a_dump_that_another_run_writes_is_left_to_it() {
    let setup = Setup::small();
    fs::write(setup.path("dump"), "being written").unwrap();
    let other = File::open(setup.path("dump")).unwrap();
    flock(&other, FlockOperation::LockExclusive).unwrap();
    for outputs in [&["dump"][..], &["part", "dump"]] {
        let arguments = [&["capture", "--force", "vmcore"], outputs].concat();
        assert!(setup.fails(&arguments, 1).contains("another program is writing to dump"));
        assert_eq!(fs::read(setup.path("dump")).unwrap(), b"being written");
        assert!(!setup.path("part").exists());
    }
    // Closing it would not do: another thread's child has it open, too, until its exec.
    flock(&other, FlockOperation::Unlock).unwrap();
    setup.succeeds(&["capture", "-q", "--force", "vmcore", "dump"]);
}

#[test]
fn of_two_captures_into_one_file_one_succeeds() {
    let setup = Setup::small();
    let start = || {
        let mut command = Command::new(BINARY);
        command.args(["capture", "-q", "--force", "-d", "0", "vmcore", "dump"]).current_dir(setup.path("."));
        command.stderr(Stdio::piped()).spawn().unwrap()
    };
    for _ in 0..10 {
        let runs = [start(), start()].map(|run| run.wait_with_output().unwrap());
        let refused = runs.iter().filter(|run| !run.status.success());
        for run in refused.clone() {
            let said = String::from_utf8_lossy(&run.stderr);
            assert!(
                said.contains("another program is writing to dump") || said.contains("File exists"),
                "{said}"
            );
        }
        // One may come after the other has ended.
        assert!(refused.count() <= 1);
        setup.succeeds(&["verify", "dump"]);
        let names = fs::read_dir(setup.path(".")).unwrap().map(|entry| entry.unwrap().file_name());
        assert!(names.into_iter().all(|name| name == "dump" || name == "vmcore"));
    }
}

#[test]
fn checksums_replace_a_file_only_on_request_and_never_the_source() {
    let setup = Setup::small();
    let sums = setup.path("dump.sums");
    fs::write(&sums, "old").unwrap();
    for outputs in [&["dump"][..], &["dump", "part"]] {
        let arguments = [&["capture", "--checksums", "vmcore"], outputs].concat();
        assert!(setup.fails(&arguments, 1).contains("dump.sums exists; remove it"));
        assert_eq!(fs::read(&sums).unwrap(), b"old");
        assert!(!setup.path("dump").exists());
    }
    fs::remove_file(&sums).unwrap();
    symlink("other", &sums).unwrap();
    fs::write(setup.path("other"), "other").unwrap();
    setup.succeeds(&["capture", "-q", "--checksums", "--force", "vmcore", "dump"]);
    assert_eq!(fs::read(setup.path("other")).unwrap(), b"other");
    assert_eq!(mode(&sums), 0o600);
    setup.succeeds(&["verify", "dump"]);
    // The source by the name of the output's checksums, and a part by those of another.
    fs::copy(setup.path("vmcore"), setup.path("big.sums")).unwrap();
    for command in ["capture", "convert"] {
        let said = setup.fails(&[command, "--checksums", "--force", "big.sums", "big"], 1);
        assert!(said.contains("big.sums is the source itself"), "{said}");
        assert!(fs::read(setup.path("big.sums")).unwrap() == fs::read(setup.path("vmcore")).unwrap());
    }
    let said = setup.fails(&["capture", "--checksums", "--force", "vmcore", "part", "part.sums"], 1);
    assert!(said.contains("part.sums is named twice"), "{said}");
}

#[test]
fn checksums_of_a_replaced_dump_go_with_it() {
    let setup = Setup::small();
    let sums = setup.path("dump.sums");
    let captures: [&[&str]; 3] = [
        &["-f", "elf", "vmcore", "dump"],
        &["-f", "flattened", "vmcore", "dump"],
        &["vmcore", "dump", "part"],
    ];
    for arguments in captures {
        setup.succeeds(&["capture", "-q", "--force", "--checksums", "vmcore", "dump"]);
        setup.succeeds(&[&["capture", "-q", "--force"], arguments].concat());
        assert!(!sums.exists(), "{arguments:?}");
    }
    // Files of others stay: text, a link to checksums, and the source.
    fs::write(&sums, "sums of mine").unwrap();
    setup.succeeds(&["capture", "-q", "--force", "vmcore", "dump"]);
    assert_eq!(fs::read(&sums).unwrap(), b"sums of mine");
    setup.succeeds(&["capture", "-q", "--checksums", "vmcore", "other"]);
    fs::remove_file(&sums).unwrap();
    symlink("other.sums", &sums).unwrap();
    setup.succeeds(&["capture", "-q", "--force", "vmcore", "dump"]);
    assert!(fs::symlink_metadata(&sums).unwrap().is_symlink());
    setup.succeeds(&["verify", "other"]);
    // Without --force nothing is removed.
    setup.succeeds(&["capture", "-q", "--checksums", "vmcore", "again"]);
    setup.fails(&["capture", "vmcore", "again"], 1);
    setup.succeeds(&["verify", "again"]);
}

#[test]
fn standard_output_by_name_is_written_in_place() {
    let setup = Setup::small();
    let redirected = setup.path("redirected");
    let run = |arguments: &[&str]| {
        fs::write(&redirected, "").unwrap();
        let before = fs::metadata(&redirected).unwrap().ino();
        let file = File::options().write(true).open(&redirected).unwrap();
        let mut command = Command::new(BINARY);
        command.args(arguments).current_dir(setup.path(".")).stdout(file);
        assert!(command.status().unwrap().success(), "{arguments:?}");
        assert_eq!(fs::metadata(&redirected).unwrap().ino(), before);
        assert!(fs::symlink_metadata("/dev/stdout").unwrap().is_symlink());
        fs::read(&redirected).unwrap()
    };
    setup.succeeds(&["capture", "-q", "vmcore", "dump"]);
    // Only root may create a temporary file in /dev, without which pages come in another order.
    symlink("/dev/stdout", setup.path("stdout")).unwrap();
    let dump = run(&["capture", "-q", "--force", "vmcore", "stdout"]);
    assert!(dump == fs::read(setup.path("dump")).unwrap());
    assert!(fs::symlink_metadata(setup.path("stdout")).unwrap().is_symlink());
    #[cfg(feature = "census")]
    assert!(run(&["pages", "--force", "--html", "/dev/stdout", "dump"]).starts_with(b"<!DOCTYPE html>"));
}

#[cfg(feature = "census")]
#[test]
fn a_report_replaces_a_link_and_leaves_what_it_leads_to() {
    let setup = Setup::small();
    setup.succeeds(&["capture", "-q", "vmcore", "dump"]);
    fs::write(setup.path("other"), "other").unwrap();
    symlink("other", setup.path("page.html")).unwrap();
    for _ in 0..2 {
        setup.succeeds(&["pages", "--force", "--html", "page.html", "dump"]);
        assert!(fs::read(setup.path("page.html")).unwrap().starts_with(b"<!DOCTYPE html>"));
    }
    assert_eq!(fs::read(setup.path("other")).unwrap(), b"other");
    assert!(setup.fails(&["pages", "--force", "--html", "dump", "dump"], 1).contains("is the source itself"));
    // A pipe takes a report as well.
    let piped = setup.run(&["pages", "--html", "/dev/stdout", "dump"]);
    assert!(piped.stdout == fs::read(setup.path("page.html")).unwrap());
}

/// A command line that writes to `there`, and whether it can be run here.
#[cfg(all(feature = "census", feature = "stalls", feature = "bench", feature = "process", feature = "html"))]
fn writing(command: &str, pid: &str, trace: &str) -> (Vec<String>, bool) {
    let (line, runs) = match command {
        "capture" => ("capture vmcore there".to_owned(), true),
        "convert" => ("convert dump there".to_owned(), true),
        "triage" => ("triage --html there dump".to_owned(), false),
        "pages" => ("pages --html there dump".to_owned(), true),
        "core" => (format!("core {pid} there"), true),
        "checkpoint" => (format!("checkpoint {pid} there"), false),
        "reclaim record" => ("reclaim record -o there -- true".to_owned(), false),
        "reclaim report" => (format!("reclaim report --html there {trace}"), true),
        "reclaim compare" => (format!("reclaim compare --html there a={trace} b={trace}"), true),
        "reclaim export" => (format!("reclaim export {trace} -o there"), true),
        "latency" => ("latency --function vfs_read -o there -- true".to_owned(), false),
        "vmalloc" => ("vmalloc -o there -- true".to_owned(), false),
        "bench codec" => ("bench codec --time 1ms --plot there dump".to_owned(), true),
        "bench read" => ("bench read --time 1ms --plot there dump".to_owned(), true),
        other => panic!("{other} is an output: how is it called?"),
    };
    (line.split(' ').map(str::to_owned).collect(), runs)
}

#[cfg(all(feature = "census", feature = "stalls", feature = "bench", feature = "process", feature = "html"))]
#[test]
fn no_command_replaces_a_file_without_force_and_all_make_files_of_one_user() {
    let setup = Setup::small();
    setup.succeeds(&["capture", "-q", "vmcore", "dump"]);
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../reclaim/tests/data/guest-7.2.pht");
    let mut target = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = target.id().to_string();
    for (command, argument) in common::path_options::OUTPUTS {
        let (mut line, runs) = writing(command, &pid, trace);
        let there = setup.path("there");
        fs::write(&there, "another dump").unwrap();
        fs::set_permissions(&there, Permissions::from_mode(0o644)).unwrap();
        let arguments: Vec<&str> = line.iter().map(String::as_str).collect();
        let output = setup.run(&arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{command} {argument}: {said}");
        assert_eq!(fs::read(&there).unwrap(), b"another dump", "{command} {argument}: {said}");
        if !runs {
            continue;
        }
        assert!(said.contains("there exists; remove it, or replace it with --force"), "{command}: {said}");
        line.insert(1 + command.matches(' ').count(), "--force".to_owned());
        let arguments: Vec<&str> = line.iter().map(String::as_str).collect();
        setup.succeeds(&arguments);
        assert_ne!(fs::read(&there).unwrap(), b"another dump", "{command} {argument}");
        assert_eq!(mode(&there), 0o600, "{command} {argument}");
    }
    target.kill().unwrap();
    target.wait().unwrap();
}

#[cfg(all(feature = "census", feature = "stalls", feature = "bench", feature = "process", feature = "html"))]
#[test]
fn no_command_replaces_a_file_of_proc() {
    let setup = Setup::small();
    setup.succeeds(&["capture", "-q", "vmcore", "dump"]);
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../reclaim/tests/data/guest-7.2.pht");
    let mut target = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = target.id().to_string();
    // Nobody can write to it, and no file can be made next to it.
    const FILE: &str = "/proc/version";
    let before = fs::read(FILE).unwrap();
    for (command, argument) in common::path_options::OUTPUTS {
        let (mut line, runs) = writing(command, &pid, trace);
        if !runs {
            continue;
        }
        line.iter_mut().filter(|word| *word == "there").for_each(|word| *word = FILE.to_owned());
        line.insert(1 + command.matches(' ').count(), "--force".to_owned());
        let arguments: Vec<&str> = line.iter().map(String::as_str).collect();
        let output = setup.run(&arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{command} {argument}: {said}");
        assert!(said.contains(FILE), "{command} {argument}: {said}");
        assert_eq!(fs::read(FILE).unwrap(), before, "{command} {argument}");
    }
    target.kill().unwrap();
    target.wait().unwrap();
}

#[cfg(all(feature = "census", feature = "html"))]
#[test]
fn the_running_kernel_is_a_source_that_no_page_replaces() {
    let setup = Setup::small();
    // A file in place of /proc/kcore, which some kernels do not have, and whose contents never end.
    let script = |command: &str| {
        format!(
            "mount -t tmpfs none /proc && cp vmcore /proc/kcore && {command} --html /proc/kcore --force; cmp vmcore /proc/kcore"
        )
    };
    for command in ["triage --live", "pages /proc/kcore"] {
        let program = format!("{} {command}", env!("CARGO_BIN_EXE_pagehaul"));
        let output = Command::new("unshare")
            .args(["--mount", "--map-root-user", "sh", "-c", &script(&program)])
            .current_dir(setup.path("."))
            .output();
        match output.map(|output| (String::from_utf8_lossy(&output.stderr).into_owned(), output.status)) {
            Ok((said, status)) if !said.starts_with("unshare:") => {
                assert!(
                    said.contains("/proc/kcore is the source itself; name another output"),
                    "{command}: {said}"
                );
                assert!(status.success(), "{command}: {said}");
            }
            _ => eprintln!("skipped: this system has no namespaces for its users"),
        }
    }
}
