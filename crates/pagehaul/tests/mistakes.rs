//! Mistakes of the first hour: each is answered by one sentence that says what to do.

mod common {
    pub mod setup;
}

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::setup::{BINARY, Setup};

/// Expects one line on standard error, with all of `parts`.
fn says(output: &Output, parts: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in {said:?}");
    }
}

#[cfg(feature = "process")]
#[test]
fn the_core_of_a_process_is_no_dump() {
    let setup = Setup::small();
    let mut sleeper = Command::new("sleep").arg("1000").spawn().unwrap();
    let saved = setup.run(&["core", "-q", &sleeper.id().to_string(), "core"]);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert!(saved.status.success(), "{}", String::from_utf8_lossy(&saved.stderr));
    for command in ["triage core", "dmesg core", "pages core", "facts core", "read --phys 0 core"] {
        says(&setup.run(&command.split(' ').collect::<Vec<_>>()), &["the core of a process (sleep)", "gdb"]);
    }
    for command in ["capture", "convert"] {
        says(&setup.run(&[command, "core", "out"]), &["the core of a process (sleep)"]);
        assert!(!setup.path("out").exists());
    }
    for command in ["info", "verify"] {
        setup.succeeds(&[command, "core"]);
    }
}

#[test]
fn checkpoints_and_records_of_pstore_are_no_dumps() {
    let setup = Setup::small();
    fs::write(setup.path("checkpoint"), b"PAGEHAUL-CKPT\0\0\x01\0\0\0\0\0\0\0\0").unwrap();
    fs::copy(setup.path("checkpoint"), setup.path("other")).unwrap();
    for command in ["triage", "dmesg", "pages", "facts", "verify other"] {
        let command = format!("{command} checkpoint");
        says(
            &setup.run(&command.split(' ').collect::<Vec<_>>()),
            &["a checkpoint of processes", "one at a time"],
        );
    }
    fs::write(setup.path("dmesg-ramoops-0"), "Emergency#12 Part1\n<0>[    1.000000] Restarting system\n")
        .unwrap();
    for command in ["info", "dmesg", "pages", "verify"] {
        let command = format!("{command} dmesg-ramoops-0");
        says(
            &setup.run(&command.split(' ').collect::<Vec<_>>()),
            &["a record of pstore", "`pagehaul triage`"],
        );
    }
    says(&setup.run(&["triage", "."]), &["a directory", "or the records of pstore in it"]);
}

#[test]
fn compressed_dumps_are_named() {
    let setup = Setup::small();
    fs::write(setup.path("dump.zst"), b"\x28\xb5\x2f\xfd and so on").unwrap();
    says(&setup.run(&["triage", "dump.zst"]), &["compressed by zstd", "`zstd -d`"]);
}

#[test]
fn files_of_the_kernel_that_are_not_there_are_explained() {
    let setup = Setup::small();
    for (path, when) in [("/proc/vmcore", "only in the capture kernel"), ("/proc/kcore", "CONFIG_PROC_KCORE")]
    {
        if Path::new(path).exists() {
            eprintln!("not tested: {path} exists here");
            continue;
        }
        says(&setup.run(&["triage", path]), &["no such file", when]);
        says(&setup.run(&["capture", path, "out"]), &["no such file", when]);
    }
}

#[test]
fn where_the_output_goes_is_said() {
    let setup = Setup::small();
    let mut cases = vec![
        (vec!["capture", "-o", "x", "vmcore"], "The output is the last argument"),
        (vec!["convert", "vmcore", "--output", "x"], "The output is the last argument"),
        (vec!["dmesg", "-o", "x", "vmcore"], "prints to standard output (> FILE)"),
    ];
    if cfg!(feature = "html") {
        cases.push((vec!["triage", "-o", "x", "vmcore"], "--html FILE writes a web page"));
    }
    if cfg!(feature = "process") {
        cases.push((vec!["core", "-o", "x", "1"], "The output is the last argument"));
    }
    for (arguments, answer) in cases {
        let said = setup.fails(&arguments, 2);
        assert!(said.contains(answer) && !said.contains("-- -o"), "{said}");
    }
    let said = setup.fails(&["capture", "--nonsense", "vmcore", "x"], 2);
    assert!(!said.contains("standard output") && !said.contains("last argument"), "{said}");
}

#[cfg(feature = "process")]
#[test]
fn a_name_is_no_process_id() {
    let said = Setup::small().fails(&["core", "abc", "x"], 2);
    assert!(said.contains("expected the number of a process") && !said.contains("digit"), "{said}");
}

#[test]
fn one_thread_is_one() {
    let said = Setup::small().succeeds(&["capture", "-t", "1", "vmcore", "dump"]);
    assert!(said.contains("; 1 thread,"), "{said}");
}

#[cfg(feature = "kdump-setup")]
#[test]
fn cpus_that_are_not_known_are_not_zero() {
    let setup = Setup::small();
    fs::create_dir(setup.path("root")).unwrap();
    let output = setup.run(&["kdump", "check", "--root", "root"]);
    let said = String::from_utf8_lossy(&output.stdout);
    let unknown = "Linux of an unknown release, memory of an unknown size, an unknown number of CPUs, ";
    assert!(said.starts_with(unknown), "{said}");
}

#[cfg(feature = "mount")]
#[test]
fn directories_that_cannot_be_mounted_on_are_explained() {
    let setup = Setup::small();
    fs::create_dir(setup.path("full")).unwrap();
    fs::write(setup.path("full/file"), "").unwrap();
    fs::create_dir(setup.path("empty")).unwrap();
    for options in [&["mount"][..], &["mount", "--background"]] {
        let run = |directory| setup.run(&[options, &["vmcore", directory]].concat());
        says(&run("full"), &["full is not empty"]);
        says(&run("vmcore"), &["vmcore: not a directory"]);
        says(&run("none"), &["none: No such file or directory"]);
    }
    // In a mount namespace of its own.
    let options = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let within = |script: &str| {
        let script = format!("mount -t tmpfs tmpfs {script}");
        let mut command = Command::new("unshare");
        command.args([options, "sh", "-c", &script]).current_dir(setup.path(".")).stdin(Stdio::null());
        command.output().unwrap()
    };
    if !within("empty").status.success() {
        eprintln!("not tested: no mount namespace to be had here");
        return;
    }
    says(
        &within(&format!("empty && touch empty/file && {BINARY} mount vmcore empty")),
        &["is mounted on empty"],
    );
    says(
        &within(&format!("/dev && {BINARY} mount vmcore empty")),
        &["there is no /dev/fuse", "modprobe fuse"],
    );
}

#[cfg(feature = "mount")]
#[test]
fn users_are_told_of_the_helper() {
    use std::os::unix::fs::PermissionsExt;
    if !Path::new("/dev/fuse").exists() || !rustix::process::geteuid().is_root() {
        eprintln!("not tested: this needs root and /dev/fuse");
        return;
    }
    let setup = Setup::small();
    fs::create_dir(setup.path("empty")).unwrap();
    for (path, mode) in [(".", 0o755), ("empty", 0o777), ("vmcore", 0o644)] {
        fs::set_permissions(setup.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    // The directory of the program may be root's alone.
    fs::copy(BINARY, setup.path("pagehaul")).unwrap();
    let words =
        "--reuid=65534 --regid=65534 --clear-groups env PATH=/nonexistent ./pagehaul mount vmcore empty";
    let output =
        Command::new("setpriv").args(words.split(' ')).current_dir(setup.path(".")).output().unwrap();
    says(&output, &["fusermount3 is not on PATH", "install fuse3"]);
}

#[test]
fn progress_fits_80_columns_and_goes() {
    // Large enough for the bar to be drawn.
    let setup = Setup::with_noise(48);
    let command = format!("stty cols 80 && {BINARY} capture --json -c zstd:9 vmcore dump >/dev/null");
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).current_dir(setup.path(".")).stdin(Stdio::null());
    let Ok(output) = script.env("TERM", "xterm").output() else {
        eprintln!("not tested: there is no script(1)");
        return;
    };
    let progress = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{progress}");
    let bars: Vec<_> = progress.split('\r').filter(|part| part.contains(" of ")).collect();
    assert!(!bars.is_empty(), "{progress:?}");
    for bar in bars {
        let bar = bar.split('\u{1b}').next().unwrap_or_default();
        assert!(bar.chars().count() <= 80, "{bar:?}");
    }
    // The last thing drawn is an erased line: nothing of the bar stays.
    assert!(progress.trim_end().ends_with("\u{1b}[2K"), "{progress:?}");
}
