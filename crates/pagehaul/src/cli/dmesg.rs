//! `pagehaul dmesg`.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pagehaul_kernel::{Caller, KernelLog, Record};
use pagehaul_present::printable;
use serde::Serialize;

use crate::cli::completeness;
use crate::cli::options::{Dumps, Json, Verbose};
use crate::printed;

/// Print the kernel log of a dump
///
/// Needs no debug symbols: VMCOREINFO in the dump describes the log. Inconsistent records are skipped and counted.
///
/// Exit status: 0, the log was printed; 1, the dump cannot be read; 2, the command line is wrong; 3, the dump is incomplete, or a page
/// that was needed is damaged, and what it has of the log was printed.
#[derive(Debug, Args)]
pub(crate) struct DmesgArguments {
    #[command(flatten)]
    dumps: Dumps,
    #[command(flatten)]
    pub(crate) verbose: Verbose,
    /// Begin each line with its facility and level
    #[arg(short = 'x', long)]
    decode: bool,
    /// Begin each line with its caller: the task (T) or processor (C) that wrote it
    #[arg(long)]
    callers: bool,
    /// Lowest priority to print: 0 (emerg) to 7 (debug)
    #[arg(short, long, value_name = "LEVEL", default_value = "7", value_parser = clap::value_parser!(u8).range(0..=7))]
    level: u8,
    #[command(flatten)]
    json: Json,
}

/// Names of levels and facilities as `dmesg -x` has them.
const LEVELS: [&str; 8] = ["emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"];
const FACILITIES: [&str; 12] =
    ["kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp"];

pub(crate) fn run(arguments: &DmesgArguments) -> anyhow::Result<ExitCode> {
    let source = arguments.dumps.open()?;
    let memory = source.memory();
    let log = KernelLog::read(memory).with_context(|| source.path().display().to_string());
    let mut log = completeness::explain(&source, log)?;
    log.records.retain(|record| record.level <= arguments.level);
    if arguments.json.json {
        json(&log)?;
    } else {
        printed::out(|out| plain(&log, arguments, out))?;
    }
    if log.damaged > 0 {
        tell!("pagehaul: {} records are inconsistent or unreadable, and are skipped", log.damaged);
    }
    completeness::tell_warnings(&source);
    Ok(completeness::status(&source))
}

/// The log as lines, each message with its time: "[    1.234567] text". What the mount shows.
#[cfg(feature = "mount")]
pub(crate) fn lines(log: &KernelLog) -> Vec<u8> {
    let mut out = Vec::new();
    for record in &log.records {
        // Writing to memory does not fail.
        let _ = line(record, "", "", &mut out);
    }
    out
}

fn plain(log: &KernelLog, arguments: &DmesgArguments, out: &mut dyn Write) -> io::Result<()> {
    for record in &log.records {
        let decoded = match arguments.decode {
            true => format!("{:6}:{:6}: ", facility(record.facility), LEVELS[usize::from(record.level & 7)]),
            false => String::new(),
        };
        let caller = match record.caller.filter(|_| arguments.callers) {
            Some(Caller::Task(pid)) => format!("[{:>6}] ", format!("T{pid}")),
            Some(Caller::Cpu(number)) => format!("[{:>6}] ", format!("C{number}")),
            None => String::new(),
        };
        line(record, &decoded, &caller, out)?;
    }
    Ok(())
}

fn line(record: &Record, decoded: &str, caller: &str, out: &mut dyn Write) -> io::Result<()> {
    let (seconds, micros) = (record.nanoseconds / 1_000_000_000, record.nanoseconds % 1_000_000_000 / 1000);
    for text in record.text.split('\n') {
        writeln!(out, "{decoded}[{seconds:5}.{micros:06}] {caller}{}", printable(text))?;
    }
    Ok(())
}

fn facility(number: u8) -> String {
    FACILITIES.get(usize::from(number)).map_or_else(|| number.to_string(), |name| (*name).into())
}

#[derive(Serialize)]
struct Printed<'a> {
    sequence: Option<u64>,
    seconds: f64,
    level: &'static str,
    facility: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subsystem: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<&'a str>,
    text: &'a str,
}

#[derive(Serialize)]
struct PrintedLog<'a> {
    damaged: u64,
    records: Vec<Printed<'a>>,
}

fn json(log: &KernelLog) -> anyhow::Result<()> {
    let records = log.records.iter().map(|record| Printed {
        sequence: record.sequence,
        seconds: record.nanoseconds as f64 / 1e9,
        level: LEVELS[usize::from(record.level & 7)],
        facility: facility(record.facility),
        task: record.caller.and_then(|caller| if let Caller::Task(pid) = caller { Some(pid) } else { None }),
        cpu: record
            .caller
            .and_then(|caller| if let Caller::Cpu(number) = caller { Some(number) } else { None }),
        subsystem: record.device.as_ref().map(|(subsystem, _)| subsystem.as_str()),
        device: record.device.as_ref().map(|(_, device)| device.as_str()),
        text: &record.text,
    });
    printed::json(&PrintedLog { damaged: log.damaged, records: records.collect() })
}
