//! `pagehaul kdump plan` and `apply` on copies of a machine's files.
#![cfg(feature = "kdump-setup")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

const FILES: &[(&str, &str)] = &[
    ("proc/cmdline", "crashkernel=512M-:192M"),
    ("proc/meminfo", "MemTotal: 8000000 kB\nMemFree: 8000000 kB\n"),
    ("proc/cpuinfo", "processor\t: 0\napicid\t\t: 0\n"),
    ("proc/sys/kernel/osrelease", "6.1.0-50-amd64"),
    ("proc/sys/kernel/panic_on_oops", "0"),
    ("sys/devices/system/cpu/online", "0-7"),
    ("etc/default/kdump-tools", "# mine\nUSE_KDUMP=0\n"),
    ("usr/bin/makedumpfile", "#!/bin/sh\nexec pagehaul makedumpfile \"$@\"\n"),
];

fn machine() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in FILES {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    directory
}

fn kdump(command: &str, root: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut run = Command::new(env!("CARGO_BIN_EXE_pagehaul"));
    let output = run.args(["kdump", command, "--root"]).arg(root).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// All files below /etc, with their contents.
fn configuration(root: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut directories = vec![root.join("etc")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                found.push((path.display().to_string(), fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_plan_is_applied_once_and_undone() {
    let directory = machine();
    let root = directory.path();
    let settings = root.join("etc/default/kdump-tools");
    fs::set_permissions(&settings, fs::Permissions::from_mode(0o640)).unwrap();
    let before = configuration(root);
    let arguments = ["--disk", "10G", "--capture-cpus", "4"];

    let (code, _, stderr) = kdump("apply", root, &arguments);
    assert_eq!(code, Some(2), "{stderr}");
    let (code, dry, _) = kdump("apply", root, &[&arguments[..], &["--dry-run"]].concat());
    assert_eq!(code, Some(0));
    assert!(dry.contains("nr_cpus=4") && dry.contains("# update-grub"), "{dry}");
    assert_eq!(configuration(root), before, "a dry run changes nothing");

    let apply = [&arguments[..], &["--yes"]].concat();
    let (code, applied, stderr) = kdump("apply", root, &apply);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(applied.starts_with(&dry), "{applied}");
    let after = configuration(root);
    assert_eq!(after.len(), before.len() + 2, "{after:?}");
    let text = fs::read_to_string(&settings).unwrap();
    assert!(text.starts_with("# mine\nUSE_KDUMP=1\n") && text.contains("disable_cpu_apicid=0"), "{text}");
    assert_eq!(fs::metadata(&settings).unwrap().permissions().mode() & 0o777, 0o640);

    let (_, again, _) = kdump("apply", root, &apply);
    assert_eq!(again, "\nThe files are as planned.\n");
    // Another plan on top of it: an undo goes back to the beginning.
    let (code, ..) = kdump("apply", root, &["--disk", "10G", "--capture-cpus", "2", "--yes"]);
    assert_eq!(code, Some(0));
    let (code, text, stderr) = kdump("apply", root, &["--undo"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(text.lines().filter(|line| line.starts_with("restored")).count(), 3, "{text}");
    assert_eq!(configuration(root), before);
    let (code, _, stderr) = kdump("apply", root, &["--undo"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("nothing to undo"), "{stderr}");
}

#[test]
fn applied_settings_wait_for_the_boot_loader() {
    let directory = machine();
    let root = directory.path();
    let write = |name: &str, text: &str| {
        fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
        fs::write(root.join(name), text).unwrap();
    };
    let generate = |words: &str| {
        let entry = format!("\tlinux\t/boot/vmlinuz root=/dev/sda1 ro quiet {words}\n");
        write(
            "boot/grub/grub.cfg",
            &format!("### BEGIN /etc/grub.d/10_linux ###\n{entry}### END /etc/grub.d/10_linux ###\n"),
        );
    };
    let found = || {
        let (_, text, _) = kdump("check", root, &[]);
        ["boot-loader-pending", "reboot-pending"].map(|id| text.contains(id))
    };
    write("etc/default/grub", "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet\"\n");
    let settings = "GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT crashkernel=512M-:192M\"\n";
    write("etc/default/grub.d/kdump-tools.cfg", settings);
    generate("crashkernel=512M-:192M");
    assert_eq!(found(), [false, false]);

    let (code, _, stderr) = kdump("apply", root, &["--disk", "10G", "--capture-cpus", "4", "--yes"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(found(), [true, false]);
    // As update-grub does.
    let text = fs::read_to_string(root.join("etc/default/grub.d/kdump-tools.cfg")).unwrap();
    let words = text.split_once("crashkernel=").unwrap().1.trim_end().trim_end_matches('"');
    generate(&format!("crashkernel={words}"));
    assert_eq!(found(), [false, true]);
}

#[test]
fn a_file_that_somebody_changed_is_not_undone() {
    let directory = machine();
    let root = directory.path();
    let settings = root.join("etc/default/kdump-tools");
    assert_eq!(kdump("apply", root, &["--disk", "10G", "--yes"]).0, Some(0));
    let changed = fs::read_to_string(&settings).unwrap() + "SSH=\"kdump@host\"\n";
    fs::write(&settings, &changed).unwrap();
    let applied = configuration(root);
    let (code, _, stderr) = kdump("apply", root, &["--undo"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("/etc/default/kdump-tools has changed since"), "{stderr}");
    assert_eq!(configuration(root), applied, "all or nothing");
    // Applied again, it is part of what an undo restores.
    assert_eq!(kdump("apply", root, &["--disk", "10G", "-d", "17", "--yes"]).0, Some(0));
    assert_eq!(kdump("apply", root, &["--undo"]).0, Some(0));
    assert_eq!(fs::read_to_string(&settings).unwrap(), changed);
}

#[test]
fn a_symbolic_link_stays_one() {
    let directory = machine();
    let root = directory.path();
    let [link, file] = ["etc/default/kdump-tools", "etc/site/kdump"].map(|name| root.join(name));
    fs::create_dir(root.join("etc/site")).unwrap();
    fs::rename(&link, &file).unwrap();
    symlink("../site/kdump", &link).unwrap();
    assert_eq!(kdump("apply", root, &["--disk", "10G", "--yes"]).0, Some(0));
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert!(fs::read_to_string(&file).unwrap().contains("USE_KDUMP=1"));
}

#[test]
fn files_of_any_bytes_and_size_are_restored() {
    let directory = machine();
    let root = directory.path();
    let settings = root.join("etc/default/kdump-tools");
    let mut text = b"USE_KDUMP=0\n# caf\xe9 \xff\xfe\r\n".to_vec();
    text.extend(b"# a long line\n".repeat(200_000));
    text.extend(b"KDUMP_COREDIR='/var/\xe9'");
    fs::write(&settings, &text).unwrap();
    let before = configuration(root);
    assert_eq!(kdump("apply", root, &["--disk", "10G", "--yes"]).0, Some(0));
    let after = fs::read(&settings).unwrap();
    assert!(after.starts_with(&[b"USE_KDUMP=1", &text[11..]].concat()), "only the value changes");
    let (code, _, stderr) = kdump("apply", root, &["--undo"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(configuration(root) == before, "restored byte for byte");
}

#[test]
fn what_is_not_understood_is_left_alone_and_said() {
    let directory = machine();
    let root = directory.path();
    let settings = root.join("etc/default/kdump-tools");
    for (text, reason) in [
        ("USE_KDUMP=0\nSSH_KEY=\"/root/a\n", "line 2: a quotation mark (\") without its end"),
        ("USE_KDUMP=0\r\n", "line 1: a line that ends in CR and LF"),
        ("if :; then USE_KDUMP=0; fi\n", "line 1: USE_KDUMP is assigned on a condition"),
    ] {
        fs::write(&settings, text).unwrap();
        let (code, out, stderr) = kdump("apply", root, &["--disk", "10G", "--yes"]);
        assert_eq!(code, Some(3), "{out}{stderr}");
        assert!(out.contains(reason) && out.contains("add by hand:  USE_KDUMP=\"1\""), "{out}");
        assert!(fs::read_to_string(&settings).unwrap().starts_with(text));
    }
}

/// A machine next to files that are not the machine's, which look like its own.
fn machine_and_others() -> (TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    for (name, text) in FILES {
        for top in [root.as_path(), directory.path()] {
            let path = top.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
    (directory, root)
}

#[test]
fn no_link_leads_out_of_the_root() {
    let up = "../../../../../../../../../../../../..";
    type Link = (&'static str, fn(&str, &Path) -> String);
    let links: [Link; 6] = [
        ("etc/default/kdump-tools", |up, of| format!("{up}{}", of.join("etc/default/kdump-tools").display())),
        ("etc/default/kdump-tools", |_, of| of.join("etc/default/kdump-tools").display().to_string()),
        ("etc/default", |up, of| format!("{up}{}", of.join("etc/default").display())),
        ("etc/default", |_, of| of.join("etc/default").display().to_string()),
        ("var", |up, of| format!("{up}{}", of.join("var").display())),
        ("var", |_, of| of.join("var").display().to_string()),
    ];
    for (name, target) in links {
        let (directory, root) = machine_and_others();
        fs::create_dir(directory.path().join("var")).unwrap();
        let link = root.join(name);
        let _ = fs::remove_file(&link).or_else(|_| fs::remove_dir_all(&link));
        symlink(target(up, directory.path()), &link).unwrap();
        let others = configuration(directory.path());
        let (_, out, stderr) = kdump("apply", &root, &["--distribution", "debian", "--disk", "10G", "--yes"]);
        kdump("apply", &root, &["--undo"]);
        let outside = |all: Vec<(String, Vec<u8>)>| -> Vec<_> {
            all.into_iter().filter(|(path, _)| !path.starts_with(root.to_str().unwrap())).collect()
        };
        assert_eq!(outside(configuration(directory.path())), outside(others), "{name}: {out}{stderr}");
        assert_eq!(fs::read_dir(directory.path().join("var")).unwrap().count(), 0, "{name}: {out}{stderr}");
    }
}

#[test]
fn a_crafted_record_restores_nothing_else() {
    let (directory, root) = machine_and_others();
    let state = root.join("var/lib/pagehaul/kdump/apply.json");
    fs::create_dir_all(state.parent().unwrap()).unwrap();
    let victim = directory.path().join("victim");
    fs::write(&victim, "1").unwrap();
    fs::write(root.join("victim"), "1").unwrap();
    for path in
        ["/../victim", "/victim", "victim", "/etc/default/../../victim", "/etc/default/../../../victim"]
    {
        for before in ["null", "\"2\""] {
            let record = format!(r#"[{{"path": "{path}", "before": {before}, "after": "1"}}]"#);
            fs::write(&state, record).unwrap();
            let (code, _, stderr) = kdump("apply", &root, &["--undo"]);
            assert_eq!(code, Some(1), "{stderr}");
            assert!(stderr.contains("which `kdump apply` does not change"), "{stderr}");
            assert_eq!(fs::read(&victim).unwrap(), b"1");
            assert_eq!(fs::read(root.join("victim")).unwrap(), b"1");
        }
    }
}

#[test]
fn a_pipe_in_place_of_a_file_does_not_hang() {
    for name in
        ["etc/default/kdump-tools", "etc/default/grub.d/kdump-tools.cfg", "proc/cmdline", "proc/meminfo"]
    {
        let directory = machine();
        let path = directory.path().join(name);
        let _ = fs::remove_file(&path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        for (command, arguments) in
            [("check", &[][..]), ("apply", &["--disk", "10G", "--yes"]), ("report", &[])]
        {
            let mut run = Command::new("timeout");
            run.args(["60", env!("CARGO_BIN_EXE_pagehaul"), "kdump", command, "--root"])
                .arg(directory.path());
            let output = run.args(arguments).output().unwrap();
            assert_ne!(output.status.code(), Some(124), "{command} with {name} hangs");
            assert!(!said(&output).contains("panicked"), "{}", said(&output));
        }
    }
}

#[test]
fn a_described_machine_is_planned() {
    let plan = |arguments: &[&str]| {
        let mut run = Command::new(env!("CARGO_BIN_EXE_pagehaul"));
        let output = run.args(["kdump", "plan", "--json"]).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let machine = ["--memory", "1T", "--cpus", "64", "--distribution", "fedora", "--kernel", "6.12.0"];
    let slow = plan(&[&machine[..], &["--disk", "100M"]].concat());
    let fast = plan(&[&machine[..], &["--disk", "10G"]].concat());
    assert_eq!(slow["found"]["pages"], "assumed");
    // A disk that is the limit needs no CPUs.
    assert!(slow["capture_cpus"].as_u64().unwrap() <= 2, "{slow}");
    assert!(fast["capture_cpus"].as_u64().unwrap() >= 16, "{fast}");
    assert!(fast["seconds"].as_f64() < slow["seconds"].as_f64());
    assert!(fast["reserve"]["bytes"].as_u64() > slow["reserve"]["bytes"].as_u64());
    let sizes: Vec<u64> =
        fast["dumps"].as_array().unwrap().iter().map(|dump| dump["bytes"].as_u64().unwrap()).collect();
    assert!(sizes[0] > *sizes.last().unwrap(), "{sizes:?}");
    // Nothing of the machine that plans is in it.
    let files = fast["changes"]["files"].as_array().unwrap();
    assert_eq!(files.len(), 3, "{files:?}");
}

/// What `bench capture --json` prints, as far as a plan reads it.
fn rates(scan: &str) -> String {
    format!(
        r#"{{"codec": "zstd:1", "rates": {{"level": 31, "scan": {scan}, "pack": 1e9, "place": 1e10, "ratio": 9, "kept": 1}}, "start": 7}}"#
    )
}

#[test]
fn rates_of_a_capture_make_the_times_of_a_plan() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rates.json");
    let plan = |arguments: &[&str]| {
        let mut run = Command::new(env!("CARGO_BIN_EXE_pagehaul"));
        run.args(["kdump", "plan", "--json", "--memory", "1T", "--cpus", "1", "--disk", "100G", "--rates"]);
        let output = run.arg(&file).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), said(&output))
    };
    fs::write(&file, rates("1e6")).unwrap();
    let (status, text, error) = plan(&[]);
    assert_eq!(status, Some(0), "{error}");
    let plan_json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let kept = plan_json["dumps"].as_array().unwrap().iter().find(|dump| dump["level"] == 31).unwrap();
    // 7 s, 2^28 struct pages, and what this machine keeps at 1 GB/s; classes are rounded to pages.
    let expected = 7.0 + (1u64 << 28) as f64 / 1e6 + kept["pages"].as_f64().unwrap() * 4096.0 / 1e9;
    let planned = plan_json["seconds"].as_f64().unwrap();
    assert!((planned - expected).abs() < 0.1, "{planned} {expected}");
    for (arguments, content, expected) in [
        (&["-c", "lzo"][..], rates("1e6"), "measure with the same"),
        (&["-d", "17"], rates("1e6"), "measure with the same"),
        (&[], rates("0"), "no machine has"),
        (&[], "{}".into(), "is not what"),
    ] {
        fs::write(&file, content).unwrap();
        let (status, _, error) = plan(arguments);
        assert_eq!(status, Some(1), "{error}");
        assert!(error.contains(expected), "{error}");
    }
}

fn said(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// With more memory than it has, a machine below --root still has the programs that are there.
#[test]
fn the_codec_is_planned_by_the_program_that_is_installed() {
    let directory = machine();
    let root = directory.path();
    let kept = "the configured codec stays";
    let (_, text, _) = kdump("plan", root, &["--memory", "1T"]);
    assert!(!text.contains(kept), "{text}");
    fs::write(root.join("usr/bin/makedumpfile"), "another program").unwrap();
    for arguments in [&[][..], &["--memory", "1T"]] {
        let (_, text, _) = kdump("plan", root, arguments);
        assert!(text.contains(kept), "{arguments:?}: {text}");
    }
}

#[test]
fn memory_of_an_unknown_size_is_not_planned_for() {
    let directory = machine();
    let root = directory.path();
    fs::remove_file(root.join("proc/meminfo")).unwrap();
    let (status, _, error) = kdump("plan", root, &[]);
    assert!(status == Some(1) && error.contains("by a --memory"), "{error}");
    assert_eq!(kdump("plan", root, &["--memory", "1T"]).0, Some(0));
}

/// Another program than pagehaul keeps its codec, and an ELF dump has none.
#[test]
fn a_dump_that_is_not_compressed_is_planned_as_one() {
    let directory = machine();
    let root = directory.path();
    let plan = |options: &str| {
        fs::write(
            root.join("etc/default/kdump-tools"),
            format!("USE_KDUMP=1\nMAKEDUMP_ARGS=\"{options}\"\n"),
        )
        .unwrap();
        let (status, text, error) = kdump("plan", root, &["--json", "--memory", "1T"]);
        assert_eq!(status, Some(0), "{error}");
        let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
        (
            plan["codec"].as_str().unwrap().to_owned(),
            plan["dump_bytes"].as_u64().unwrap(),
            plan["reasons"].to_string(),
        )
    };
    let (_, _, reasons) = plan("-d 31 --split");
    assert!(reasons.contains("no dump is written"), "{reasons}");
    let (codec, packed, _) = plan("-d 31");
    assert_eq!(codec, "zstd:1", "pagehaul takes the codec of the plan");
    let (codec, elf, reasons) = plan("-E -d 31");
    assert_eq!(codec, "none");
    assert!(elf > 2 * packed && reasons.contains("ELF"), "{elf} {packed} {reasons}");
    fs::write(root.join("usr/bin/makedumpfile"), "another program").unwrap();
    let (codec, bytes, reasons) = plan("-d 31");
    assert_eq!(codec, "none");
    assert!(bytes > 2 * packed && reasons.contains("name no codec"), "{bytes} {packed} {reasons}");
    let (codec, bytes, reasons) = plan("-l -d 31");
    assert_eq!((codec.as_str(), bytes), ("lzo", packed));
    assert!(!reasons.contains("name no codec") && !reasons.contains("size and time are those"), "{reasons}");
    // Asked for another one than the files can have.
    let (_, text, _) = kdump("plan", root, &["--memory", "1T", "-c", "zlib:9"]);
    assert!(text.contains("size and time are those of zlib:9, and the dump will be of lzo"), "{text}");
}

#[test]
fn a_machine_that_encrypts_takes_longer() {
    let directory = machine();
    let root = directory.path();
    let plan = || {
        let machine = ["--json", "-d", "0", "-c", "lzo", "--memory", "1T", "--cpus", "1", "--disk", "100G"];
        let (status, text, error) = kdump("plan", root, &machine);
        assert_eq!(status, Some(0), "{error}");
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let plain = plan();
    fs::create_dir_all(root.join("etc/pagehaul")).unwrap();
    let keys = include_str!("../../encryption/tests/data/ssh.pub");
    fs::write(root.join("etc/pagehaul/recipients"), keys).unwrap();
    let encrypted = plan();
    let seconds = |plan: &serde_json::Value| plan["seconds"].as_f64().unwrap();
    let ratio = seconds(&encrypted) / seconds(&plain);
    assert!(ratio > 1.01 && ratio < 1.5, "{ratio}");
    assert_eq!(encrypted["dump_bytes"], plain["dump_bytes"]);
    let explains =
        |plan: &serde_json::Value| plan["reasons"].to_string().contains("times include encryption");
    assert!(explains(&encrypted) && !explains(&plain));
}

/// Arguments that describe a machine whose files are below --root.
const DESCRIBED: [&str; 8] = ["--memory", "64G", "--cpus", "16", "--disk", "500M", "--kernel", "6.12.0"];

#[test]
fn a_collector_that_copies_all_memory_is_said_and_left() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    fs::create_dir_all(root.join("etc")).unwrap();
    for collector in ["dd bs=1M", "scp", "'makedumpfile -l -d 1'", "makedumpfile \\"] {
        let text = format!("core_collector {collector}\n");
        fs::write(root.join("etc/kdump.conf"), &text).unwrap();
        let (code, out, stderr) = kdump("plan", root, &DESCRIBED);
        assert_eq!(code, Some(0), "{stderr}");
        assert!(
            out.contains("  - size and time are those of a dump by makedumpfile; core_collector is"),
            "{out}"
        );
        let (code, out, stderr) = kdump("apply", root, &[&DESCRIBED[..], &["--yes"]].concat());
        assert_eq!(code, Some(3), "{out}{stderr}");
        assert!(out.contains("add by hand:  core_collector makedumpfile -l -d 31"), "{out}");
        assert_eq!(fs::read_to_string(root.join("etc/kdump.conf")).unwrap(), text);
    }
}

#[test]
fn lines_that_end_in_cr_and_lf_are_not_as_planned() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    fs::create_dir_all(root.join("etc")).unwrap();
    let text = "path /var/crash\r\ncore_collector makedumpfile -l -d 31\r\n";
    fs::write(root.join("etc/kdump.conf"), text).unwrap();
    let (code, out, stderr) = kdump("apply", root, &[&DESCRIBED[..], &["--yes"]].concat());
    assert_eq!(code, Some(3), "{out}{stderr}");
    assert!(out.contains("line 1: the line ends in CR and LF"), "{out}");
    assert_eq!(fs::read_to_string(root.join("etc/kdump.conf")).unwrap(), text);
}

#[test]
fn a_file_that_cannot_be_written_is_found_before_others_are() {
    let directory = machine();
    let root = directory.path();
    let settings = root.join("etc/default/kdump-tools");
    fs::remove_file(&settings).unwrap();
    symlink("/etc/site/kdump", &settings).unwrap();
    let before: Vec<_> =
        fs::read_dir(root.join("etc/default")).unwrap().map(|of| of.unwrap().path()).collect();
    for how in ["--dry-run", "--yes"] {
        let arguments = ["--distribution", "debian", "--disk", "10G", how];
        let (code, out, stderr) = kdump("apply", root, &arguments);
        assert_eq!(code, Some(1), "{how}: {out}{stderr}");
        assert!(stderr.contains("cannot write /etc/default/kdump-tools"), "{stderr}");
        let after: Vec<_> =
            fs::read_dir(root.join("etc/default")).unwrap().map(|of| of.unwrap().path()).collect();
        assert_eq!(after, before, "{how}");
    }
    assert!(!root.join("var/lib/pagehaul").exists());
}
