//! `pagehaul-fleet`: facts of many crashes. Extraction drives one process per dump; a report reads the tables.

mod bench;
mod compact;
mod extract;
mod lock;
mod manifest;
mod metrics;
mod one;
mod place;
mod python;
mod read;
mod remove;
mod report;
mod sql;
mod table;
mod tables;
mod turns;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use pagehaul_present::sentence;

/// Make tables of the facts of many crashes, and report on them
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Extract(extract::ExtractArguments),
    /// For `extract`: one dump
    #[command(hide = true)]
    ExtractOne(one::OneArguments),
    /// For `extract`: a function in Python
    #[command(hide = true)]
    ExtractPython(python::ProgramArguments),
    Report(report::ReportArguments),
    Sql(sql::SqlArguments),
    Compact(compact::CompactArguments),
    Remove(remove::RemoveArguments),
    Metrics(metrics::MetricsArguments),
    Bench(bench::BenchArguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Extract(arguments) => extract::run(&arguments),
        Command::ExtractOne(arguments) => one::run(&arguments),
        Command::ExtractPython(arguments) => python::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Sql(arguments) => sql::run(&arguments),
        Command::Compact(arguments) => compact::run(&arguments),
        Command::Remove(arguments) => remove::run(&arguments),
        Command::Metrics(arguments) => metrics::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
    };
    result.unwrap_or_else(|error| {
        tell(&format!("pagehaul-fleet: {}", sentence(error.chain())));
        ExitCode::FAILURE
    })
}

/// Writes a line to standard error. Ignores a failure to write: the exit status still tells the result.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", pagehaul_present::printable(line));
}

/// Writes to standard output. Ignores a closed pipe, as `head` leaves it.
fn say(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
