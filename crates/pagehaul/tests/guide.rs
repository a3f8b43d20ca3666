//! Runs every command of the guide that needs no virtual machine, and holds its reference page against `--help`.
#![cfg(all(
    feature = "census",
    feature = "mount",
    feature = "process",
    feature = "remote",
    feature = "stalls"
))]

mod common {
    pub mod image;
    pub mod setup;
    pub mod subject;
}

use common::image;
use pagehaul_test_support::guide;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::setup::{BINARY, Setup};
use common::subject::Subject;
use pagehaul_synth::{Era, Inside, Machine, Message, Task};
use pagehaul_test_support::server::{Response, Server};

/// What a chapter's commands find in their directory.
fn prepare(chapter: &str) -> Setup {
    let mut machine = Machine::new(Era::V6_12);
    machine.sampler(0x4000);
    let text = "Kernel panic - not syncing: sysrq triggered crash";
    machine.log(0x6000, &[Message { nanoseconds: 1_500_000_000, level: 0, caller: 7, text }]);
    if ["memory", "remote", "triage"].contains(&chapter) {
        let stack = vec!["__schedule", "schedule", "io_schedule"];
        let task = Task { pid: 20, comm: "writer".into(), state: 2, ran: 1, stack, pages: Some(100) };
        machine.inside(0x5000, &Inside { tasks: vec![task], clock: 60, free: 1 << 17, ..Inside::default() });
    }
    let setup = Setup::new(&mut machine);
    for directory in ["bin", "crash", "disk1", "disk2", "mnt"] {
        std::fs::create_dir(setup.path(directory)).unwrap();
    }
    std::os::unix::fs::symlink(BINARY, setup.path("bin/pagehaul")).unwrap();
    // Stands for CRIU, which needs root.
    let criu = std::env::current_exe().unwrap().parent().unwrap().join("../examples/criu_stand_in");
    std::os::unix::fs::symlink(criu, setup.path("bin/criu")).unwrap();
    // Stands for another host: runs the command here.
    let ssh = setup.path("bin/ssh");
    std::fs::write(&ssh, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n").unwrap();
    std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../reclaim/tests/data");
    for (recording, name) in
        [("guest-6.12.pht", "reclaim.pht"), ("guest-6.1.pht", "before.pht"), ("guest-7.2.pht", "after.pht")]
    {
        std::fs::copy(recordings.join(recording), setup.path(name)).unwrap();
    }
    if chapter == "encryption" {
        let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("../encryption/tests/data");
        let key = std::fs::read_to_string(keys.join("age.txt")).unwrap();
        let public = key.lines().find_map(|line| line.strip_prefix("# public key: ")).unwrap();
        std::fs::write(setup.path("recipients"), format!("# the analysts\n{public}\n")).unwrap();
        std::fs::write(setup.path("analyst.key"), &key).unwrap();
    }
    if chapter == "images" {
        image::write(&setup.image, &setup.path("memory"), &setup.path("memory.lime"));
        let log = Path::new(env!("CARGO_MANIFEST_DIR")).join("../facts/tests/data/null.6.12.log");
        // Recorded before the line with which each record of a panic ends.
        let log = std::fs::read_to_string(log).unwrap()
            + "[    6.400000] Kernel panic - not syncing: Fatal exception\n";
        std::fs::write(setup.path("dmesg-ramoops-0"), format!("Panic#1 Part1\n{log}")).unwrap();
    }
    if ["memory", "reading", "remote", "triage"].contains(&chapter) {
        setup.succeeds(&["capture", "-q", "vmcore", "dump"]);
        std::fs::copy(setup.path("dump"), setup.path("idle")).unwrap();
    }
    setup
}

#[test]
fn the_readme_and_the_guide_have_the_same_table_of_architectures() {
    let table = |path: &str| -> Vec<String> {
        let text =
            std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap();
        let (_, section) = text.split_once("## Architectures\n").unwrap();
        let rows =
            section.lines().take_while(|line| !line.starts_with('#')).filter(|line| line.starts_with('|'));
        rows.map(str::to_owned).collect()
    };
    let readme = table("README.md");
    assert!(readme.len() > 2, "the README has the table");
    assert_eq!(readme, table("docs/guide/src/README.md"));
}

/// Root of the repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_command_of_the_readme_works() {
    let setup = prepare("triage");
    let process = Subject::start(&["4", "1"]);
    let fuse = std::fs::File::open("/dev/fuse").is_ok();
    let blocks = guide::blocks_of(&repository().join("README.md"));
    let here = blocks.iter().filter(|block| block.needs.is_empty());
    let commands: Vec<&str> = here.flat_map(|block| block.script.lines()).collect();
    assert!(commands.len() >= 7, "{commands:?}");
    for command in commands {
        let mounts = command.starts_with("pagehaul mount ");
        if mounts && !fuse {
            continue;
        }
        let mut script = command.replace("/proc/vmcore", "vmcore").replace("/var/crash/", "crash/");
        script = script.replace(" /mnt", " mnt").replace(" PID ", " $PID ");
        if mounts {
            script += "\ntest -s mnt/vmcore\numount mnt";
        }
        let path = format!("{}:{}", setup.path("bin").display(), std::env::var("PATH").unwrap());
        let output = Command::new("sh")
            .args(["-e", "-c", &script])
            .current_dir(setup.directory.path())
            .env("PATH", path)
            .env("PID", process.pid())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {said}");
        assert!(!output.stdout.is_empty() || !said.is_empty(), "{script}");
    }
    for output in ["report.html", "crash/dump", "core.zst"] {
        assert!(setup.path(output).metadata().unwrap().len() > 1000, "{output}");
    }
}

/// They change the machine, and build for minutes: `scripts/test_packages.sh` runs those that install.
#[test]
fn the_readme_installs_what_the_scripts_build() {
    let blocks = guide::blocks_of(&repository().join("README.md"));
    let install = &blocks.iter().find(|block| block.needs == "distribution").unwrap().script;
    let makefile = std::fs::read_to_string(repository().join("Makefile")).unwrap();
    let packages = std::fs::read_to_string(repository().join("scripts/packages.sh")).unwrap();
    assert!(packages.contains("deb=$out/${name}_$version-1_$debian.deb"));
    for word in install.split_whitespace() {
        if let Some(file) = word.strip_prefix("./target/packages/") {
            let (name, version) = file.split_once('_').unwrap();
            assert_eq!(version, concat!(env!("CARGO_PKG_VERSION"), "-1_amd64.deb"));
            assert!(packages.contains(&format!("make_deb {name} ")), "{name}");
        }
    }
    for command in install.lines() {
        let mut words = command.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                "make" => {
                    let target = words.next().unwrap();
                    assert!(makefile.contains(&format!("\n{target}:")), "{target}");
                }
                "--path" => assert!(repository().join(words.next().unwrap()).join("Cargo.toml").exists()),
                "#" => break,
                _ => {}
            }
        }
    }
}

#[test]
fn every_command_of_the_guide_works() {
    let mut last: Option<(String, Setup)> = None;
    let mut commands = 0;
    for block in guide::blocks() {
        let age = Command::new("age").arg("--version").output().is_ok();
        let fuse = std::fs::File::open("/dev/fuse").is_ok();
        if ["bucket", "guest", "crash", "duckdb", "fleet", "python-table", "distribution"]
            .contains(&block.needs.as_str())
            || block.needs == "mount" && !fuse
            || block.needs == "age" && !age
        {
            continue;
        }
        if last.as_ref().is_none_or(|(chapter, _)| *chapter != block.chapter) {
            last = Some((block.chapter.clone(), prepare(&block.chapter)));
        }
        let Some((_, setup)) = &last else { continue };
        let process = (block.needs == "process").then(|| Subject::start(&["4", "1"]));
        let mut script = block.script.replace("/proc/vmcore", "vmcore").replace("/var/crash/", "crash/");
        let server = (block.chapter == "remote").then(|| {
            let dump = std::fs::read(setup.path("dump")).unwrap();
            Server::start(move |request| Response::range(request, &dump, "v1"))
        });
        if let Some(server) = &server {
            script = script.replace("https://crashes.example.com", &server.url(""));
        }
        let path = format!("{}:{}", setup.path("bin").display(), std::env::var("PATH").unwrap());
        let output = Command::new("sh")
            .args(["-e", "-c", &script])
            .current_dir(setup.directory.path())
            .env("PATH", path)
            .env("NO_PROXY", "127.0.0.1")
            .env("PID", process.as_ref().map_or(String::new(), Subject::pid))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {script}{said}", block.chapter);
        assert!(!output.stdout.is_empty() || !said.is_empty() || script.contains("-q"), "{script}");
        commands += block.script.lines().count();
    }
    assert!(commands > 30, "{commands}");
}

/// The reference page: `--help` of every command.
fn reference() -> String {
    let help = |command: &[&str]| {
        let output = Command::new(BINARY).args(command).arg("--help").output().unwrap();
        assert!(output.status.success(), "{command:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let mut page = String::from(
        "# Commands\n\n<!-- Generated from the program's own help: PAGEHAUL_BLESS=1 cargo test -p pagehaul --test guide -->\n",
    );
    let mut section = |command: &[&str]| {
        let title = ["pagehaul"].iter().chain(command).copied().collect::<Vec<_>>().join(" ");
        page += &format!("\n## {title}\n\n```text\n{}\n```\n", help(command).trim_end());
    };
    section(&[]);
    for command in subcommands(&help(&[])) {
        section(&[&command]);
        for inner in subcommands(&help(&[&command])) {
            section(&[&command, &inner]);
        }
    }
    page
}

/// The subcommands that a help text lists.
fn subcommands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    lines
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn the_reference_page_is_current() {
    let path = guide::directory().join("reference.md");
    let page = reference();
    if std::env::var_os("PAGEHAUL_BLESS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == page, "{} is out of date; PAGEHAUL_BLESS=1 rewrites it", path.display());
}
