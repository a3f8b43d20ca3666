//! What tests of dumps that are given away share.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lab::Config;

pub fn pagehaul(arguments: &[&str], files: &[&Path]) -> Output {
    let mut command = Command::new(lab::build::pagehaul_of_tests().unwrap());
    command.args(arguments).args(files).output().unwrap()
}

pub fn succeeds(arguments: &[&str], files: &[&Path]) -> String {
    let output = pagehaul(arguments, files);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// Crashes guests by a scenario, of 6.12 or of all these kernels, with additions to their command lines. Passes each kernel and its
/// vmcore on. A crash is kept, so that it serves all tests.
pub fn each_crash(scenario: &str, append: &str, all: &[&str], check: impl Fn(&str, PathBuf)) {
    if !lab::enabled() {
        eprintln!("skipped: set PAGEHAUL_LAB=1 to boot virtual machines");
        return;
    }
    for kernel in lab::few_or_all(&["6.12"], all.iter().copied()) {
        let config = Config {
            kernel: kernel.into(),
            cpus: 1,
            fill: 20,
            scenario: Some(scenario.into()),
            append: append.into(),
            ..Config::default()
        };
        check(kernel, lab::crash(&config).unwrap().vmcore());
    }
}
