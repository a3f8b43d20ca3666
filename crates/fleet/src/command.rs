//! The command line.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{compact, extract, metrics, one, python, remove, report, sql};

/// Make tables of the facts of many crashes, and report on them
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
pub struct Program {
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
}

impl Program {
    /// Runs the command, which prints what it finds. The program `pagehaul-fleet` must be the current executable: `extract` starts it
    /// again for each dump.
    ///
    /// # Errors
    /// Fails if the command does. The help of each describes its exit status.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        match &self.command {
            Command::Extract(arguments) => extract::run(arguments),
            Command::ExtractOne(arguments) => one::run(arguments),
            Command::ExtractPython(arguments) => python::run(arguments),
            Command::Report(arguments) => report::run(arguments),
            Command::Sql(arguments) => sql::run(arguments),
            Command::Compact(arguments) => compact::run(arguments),
            Command::Remove(arguments) => remove::run(arguments),
            Command::Metrics(arguments) => metrics::run(arguments),
        }
    }
}
