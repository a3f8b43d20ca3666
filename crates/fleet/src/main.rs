//! `pagehaul-fleet`: facts of many crashes. Extraction drives one process per dump; a report reads the tables.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use pagehaul_fleet::Program;
use pagehaul_present::{printable, sentence};

fn main() -> ExitCode {
    Program::parse().run().unwrap_or_else(|error| {
        let line = format!("pagehaul-fleet: {}", sentence(error.chain()));
        // The exit status still tells the result.
        let _ = writeln!(std::io::stderr(), "{}", printable(&line));
        ExitCode::FAILURE
    })
}
