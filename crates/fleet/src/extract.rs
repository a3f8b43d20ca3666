//! `pagehaul-fleet extract`.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use pagehaul_present::time::parse_duration;

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
    let next = AtomicUsize::new(0);
    let rows: Vec<anyhow::Result<Row>> = thread::scope(|scope| {
        let work = || {
            let mut rows = Vec::new();
            while let Some(dump) = arguments.dumps.get(next.fetch_add(1, Ordering::Relaxed)) {
                let row = in_process(&program, dump, arguments);
                rows.push(record(&arguments.to, &row).map(|()| row));
            }
            rows
        };
        let workers: Vec<_> = (1..jobs.min(arguments.dumps.len())).map(|_| scope.spawn(work)).collect();
        let mut rows = work();
        // A worker does not panic; if it did, its rows would be missing in the count below.
        workers.into_iter().for_each(|worker| rows.extend(worker.join().unwrap_or_default()));
        rows
    });
    let rows = rows.into_iter().collect::<anyhow::Result<Vec<Row>>>()?;
    let failed = rows.iter().filter(|row| row.error.is_some()).count() + (arguments.dumps.len() - rows.len());
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
        rows.len() - rows.iter().filter(|row| row.error.is_some()).count(),
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
    output(&mut command, arguments.time_limit)
        .and_then(|text| Ok(serde_json::from_slice(&text)?))
        .unwrap_or_else(|error| Row::failed(dump, format!("{error:#}")))
}

/// Returns what a process prints within a time.
fn output(command: &mut Command, limit: Duration) -> anyhow::Result<Vec<u8>> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start a process")?;
    let out = child.stdout.take().context("the process has no output")?;
    let (send, receive) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut text = Vec::new();
        let read = out.take(MOST_OUTPUT).read_to_end(&mut text);
        // The other end is gone once the time is over.
        let _ = send.send(read.map(|_| text));
    });
    let Ok(read) = receive.recv_timeout(limit) else {
        let _ = child.kill();
        let _ = child.wait();
        anyhow::bail!("it takes longer than {} s", limit.as_secs());
    };
    let (text, status) = (read?, child.wait()?);
    anyhow::ensure!(status.success() && !text.is_empty(), "the process that reads it failed ({status})");
    Ok(text)
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
