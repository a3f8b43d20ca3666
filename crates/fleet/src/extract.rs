//! `pagehaul-fleet extract`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use pagehaul_pool::map_numbers;
use pagehaul_present::time::parse_duration;
use pagehaul_run::{ChildOutput, output_within};

use crate::one::{Row, put};

/// Bytes of what the process of one dump prints.
const MOST_OUTPUT: u64 = 1 << 20;

/// Make Parquet tables of dumps: one file per dump and table
///
/// DUMP is a dump or vmcore of any format, or the facts that `capture --facts` wrote. Tables are
/// DIR/TABLE/v=1/month=YYYY-MM/CRASHID.parquet; the same dump gives the same bytes, so doing it again does no harm.
/// DIR/manifest has a file per DUMP, with what could not be made and why. Each dump is read by another process with a time limit and
/// 1 GiB of memory: a bad dump is a failed row.
///
/// Exit status: 0, all dumps have tables; 1, none could be made or written; 2, the command line is wrong; 3, some dumps failed.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul-fleet extract /var/crash/*/dump --to tables
  pagehaul-fleet extract *.facts.json.zst --to tables
  ls /dumps | xargs -P 8 -n 20 pagehaul-fleet extract --to tables")]
pub(crate) struct ExtractArguments {
    /// Dumps, or facts
    #[arg(required = true, value_name = "DUMP")]
    dumps: Vec<PathBuf>,
    /// Directory of the tables
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Dumps at a time [default: CPUs]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// Time for one dump: 30s, 5m
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "2m")]
    time_limit: Duration,
}

pub(crate) fn run(arguments: &ExtractArguments) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find this program (/proc/self/exe)")?;
    let jobs =
        arguments.jobs.map_or_else(|| thread::available_parallelism().map_or(1, Into::into), usize::from);
    let rows = map_numbers(
        "extract",
        jobs,
        arguments.dumps.len() as u64,
        || (),
        |(), number| {
            let row = in_process(&program, arguments.dumps.get(number as usize)?, arguments);
            Some(record(&arguments.to, &row).map(|()| row))
        },
    );
    let rows = rows.into_iter().collect::<anyhow::Result<Vec<Row>>>()?;
    let failed = rows.iter().filter(|row| row.error.is_some()).count();
    for row in &rows {
        if let Some(error) = &row.error {
            crate::tell(&format!("pagehaul-fleet: {}: {error}", row.path.display()));
        }
    }
    let mut crashes: Vec<_> = rows.iter().filter_map(|row| row.crash_id.as_ref()).collect();
    crashes.sort_unstable();
    crashes.dedup();
    let lines: usize = rows.iter().flat_map(|row| &row.tables).map(|(_, rows)| rows).sum();
    crate::say(&format!(
        "{} dumps of {} crashes, {lines} rows in {}; {failed} failed\n",
        rows.len() - failed,
        crashes.len(),
        arguments.to.display()
    ))?;
    Ok(match failed {
        0 => ExitCode::SUCCESS,
        failed if failed == arguments.dumps.len() => ExitCode::FAILURE,
        _ => ExitCode::from(3),
    })
}

/// Extracts one dump in another process.
fn in_process(program: &Path, dump: &Path, arguments: &ExtractArguments) -> Row {
    let mut command = Command::new(program);
    command.arg("extract-one").arg("--").arg(dump).arg(&arguments.to);
    let row =
        output_within(&mut command, arguments.time_limit, MOST_OUTPUT).map_err(|error| error.to_string());
    row.and_then(|ChildOutput { bytes, status }| {
        serde_json::from_slice(&bytes).map_err(|_| {
            let ended = status.map_or_else(String::new, |status| format!(" ({status})"));
            format!("the process that reads it failed{ended}")
        })
    })
    .unwrap_or_else(|why| Row::failed(dump, why))
}

/// Writes the row of a dump to the manifest, under a name made of the dump's path: the next try replaces it.
fn record(to: &Path, row: &Row) -> anyhow::Result<()> {
    let path = std::path::absolute(&row.path).unwrap_or_else(|_| row.path.clone());
    let name = twox_hash::XxHash3_64::oneshot(path.as_os_str().as_encoded_bytes());
    put(&to.join("manifest/v=1").join(format!("{name:016x}.json")), |out| {
        serde_json::to_writer_pretty(&mut *out, row)?;
        Ok(writeln!(out)?)
    })
}
