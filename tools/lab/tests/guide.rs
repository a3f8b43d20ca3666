//! Runs the guide's commands that need root and a kernel of their own in a virtual machine, and those that need a crash on
//! the dump of one.
//!
//! Boots virtual machines, so it runs only with PAGEHAUL_LAB=1 (as `make test` sets it).

use pagehaul_test_support::guide;
use std::process::Command;

use lab::workload::{self, Config, Step};

#[test]
fn every_command_for_root_works() {
    if !lab::enabled() {
        eprintln!("skipped: set PAGEHAUL_LAB=1 to boot virtual machines");
        return;
    }
    let steps: Vec<Step> = guide::blocks()
        .into_iter()
        .filter(|block| block.needs == "guest")
        .enumerate()
        .map(|(number, block)| Step {
            name: format!("{}-{number}", block.chapter),
            script: format!("set -eu\ncd /scratch\n{}", block.script),
            time_limit: 300,
        })
        .collect();
    let names: Vec<String> = steps.iter().map(|step| step.name.clone()).collect();
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let config = Config {
        kernel: "6.12".into(),
        memory_mib: 512,
        scratch_mib: 512,
        swap_mib: 0,
        steps,
        ..Config::default()
    };
    let report = workload::run(&config, &out).unwrap();
    for (step, name) in report.steps.iter().zip(names) {
        let said = std::fs::read_to_string(out.join(format!("{name}.stderr"))).unwrap_or_default();
        assert_eq!(step.exit_code, Some(0), "{name}: {said}");
    }
}

#[test]
fn every_command_on_a_crash_works() {
    if !lab::enabled() {
        eprintln!("skipped: set PAGEHAUL_LAB=1 to boot virtual machines");
        return;
    }
    let crash = lab::crash(&lab::Config { kernel: "6.12".into(), ..lab::Config::default() }).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let programs = [
        ("pagehaul", lab::build::pagehaul(lab::Architecture::X86_64).unwrap()),
        ("pagehaul-fleet", lab::build::fleet().unwrap()),
    ];
    for (name, program) in programs {
        std::os::unix::fs::symlink(program, directory.path().join(name)).unwrap();
    }
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let run = |script: &str| {
        let mut command = Command::new("bash");
        command.args(["-euc", script]).current_dir(directory.path()).env("PATH", &path);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    run(&format!("pagehaul capture -q '{}' dump", crash.vmcore().display()));
    run(&format!(
        "mkdir -p crash/1 && pagehaul capture -q --facts '{}' crash/1/dump",
        crash.vmcore().display()
    ));
    let blocks: Vec<_> = guide::blocks().into_iter().filter(|block| block.needs == "crash").collect();
    assert!(!blocks.is_empty());
    for block in blocks {
        for command in block.script.lines() {
            assert!(!run(&command.replace("/var/crash/", "crash/")).is_empty(), "{command} prints nothing");
        }
    }
}
