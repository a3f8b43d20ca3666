//! What tests of dumps that are given away share.

use std::path::Path;
use std::process::{Command, Output};

use lab::{Config, Crash};

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

/// Crashes guests of some kernels: of a few, or of all. Passes each kernel and its crash on. A crash is kept, so that it serves all tests.
pub fn each_crash([few, all]: [&[&str]; 2], guest: impl Fn(&str) -> Config, check: impl Fn(&str, &Crash)) {
    if !lab::enabled() {
        eprintln!("skipped: set PAGEHAUL_LAB=1 to boot virtual machines");
        return;
    }
    let kernels = lab::few_or_all(few, all.iter().copied());
    if kernels.is_empty() {
        eprintln!("skipped: set PAGEHAUL_LAB=all to boot {}", all.join(", "));
    }
    for kernel in kernels {
        check(kernel, &lab::crash(&guest(kernel)).unwrap());
    }
}
