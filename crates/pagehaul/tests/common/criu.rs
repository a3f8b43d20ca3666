//! The stand-in for CRIU.

// Not every test uses all of it.
#![allow(dead_code)]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use super::subject::tool;

pub fn stand_in() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join("../examples/criu_stand_in")
}

/// A command with the stand-in.
pub fn with_criu(command: &str) -> Command {
    let mut command = tool(&[command, "--criu"]);
    command.arg(stand_in());
    command
}

pub fn said(output: &Output) -> String {
    String::from_utf8([output.stdout.as_slice(), &output.stderr].concat()).unwrap()
}

/// Whether the kernel tracks writes by asynchronous write protection: Linux 6.7.
pub fn can_track_writes() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(7))
}
