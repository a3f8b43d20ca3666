//! The stand-in for CRIU.

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
