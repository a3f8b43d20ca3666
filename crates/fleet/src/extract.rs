//! `pagehaul-fleet extract`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use pagehaul_physmem::file::shown;
use pagehaul_pool::map_numbers;
use pagehaul_present::sentence;
use pagehaul_present::time::parse_duration;
use pagehaul_redact::Redaction;
use pagehaul_run::{ChildOutput, output_within};

use crate::compact;
use crate::lock::Lock;
use crate::manifest::{Row, is_clear, record, text};
use crate::one::{UNWRITTEN, is_facts};
use crate::place::{IS_DAMAGED, others_stay};
use crate::python::{PythonArguments, is_own};
use crate::stage::Stage;
use crate::turns::Turns;

/// Bytes of what the process of one dump prints.
const MAX_OUTPUT: u64 = 1 << 20;

/// Make Parquet tables of dumps: one file per dump and table
///
/// DUMP is a dump or vmcore of any format, or the facts that `capture --facts` wrote: a file, or a URL (http://, https://,
/// s3://BUCKET/KEY). It can also be a recording (.pht) of `reclaim` or `latency`, or a trace.dat. Tables are
/// DIR/TABLE/v=1/month=YYYY-MM/CRASHID.parquet. The same dump gives the same bytes, so doing it again does no harm. Rows
/// that `compact` has put into a file of many crashes stay there if they are the same. Others are merged into it again, unless another run
/// goes on: the last one does it. The table manifest has a row for each DUMP, with what could not be made and why. Other processes read
/// each dump, with a time limit and 1 GiB of memory: a bad dump is a failed row.
///
/// Exit status: 0, all dumps have tables; 1, none could be made or written; 2, the command line is wrong; 3, some dumps failed, are
/// incomplete, or are damaged where tables are made of them.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul-fleet extract /var/crash/*/dump --to tables
  pagehaul-fleet extract *.facts.json.zst --to tables
  pagehaul-fleet extract reclaim.pht --to tables
  pagehaul-fleet extract s3://crashes/host7/dump.flat --to tables
  pagehaul-fleet extract --split dump.0 dump.1 --to tables
  pagehaul-fleet extract *.dump --to tables --only tasks,stacks
  pagehaul-fleet extract *.dump --to tables --python-table team_tables.py:sockets
  ls /dumps | xargs -P 8 -n 20 pagehaul-fleet extract --to tables")]
pub(crate) struct ExtractArguments {
    /// Dumps, or facts
    #[arg(required = true, value_name = "DUMP")]
    dumps: Vec<PathBuf>,
    /// Directory of the tables
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// The dumps are the parts of one split set
    #[arg(long)]
    split: bool,
    /// Replace names of hosts and programs, network addresses, UUIDs, paths and command lines by hashes. The contents of KEY make
    /// them: the same key gives the same hashes
    #[arg(long, value_name = "KEY")]
    redact: Option<PathBuf>,
    /// Dumps at a time [default: CPUs]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// Time for each of the three stages of a dump: 30s, 5m
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "2m")]
    time_limit: Duration,
    /// Make these tables only, and read of the dump only what they need: dumps,tasks. The manifest is always made. Without dumps, a copy
    /// of a dump that has less replaces the tables of another
    #[arg(long, value_name = "TABLES", value_delimiter = ',', value_parser = table_name)]
    only: Vec<String>,
    #[command(flatten)]
    python: PythonArguments,
    /// Print a line of JSON for each dump: its row of the manifest
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &ExtractArguments) -> anyhow::Result<ExitCode> {
    let program = std::env::current_exe().context("cannot find this program (/proc/self/exe)")?;
    let redaction = arguments.redact.as_deref().map(Redaction::from_file).transpose()?;
    // Shared: `compact` waits until no dump is extracted.
    let lock = Lock::shared(&arguments.to)?;
    if redaction.is_some() && is_clear(&arguments.to) {
        crate::console::tell(&format!(
            "pagehaul-fleet: {} has tables that were made without --redact: their rows stay in the clear; redact into another directory",
            arguments.to.display()
        ));
    }
    let dumps: Vec<&[PathBuf]> =
        if arguments.split { vec![&arguments.dumps] } else { arguments.dumps.chunks(1).collect() };
    let jobs =
        arguments.jobs.map_or_else(|| thread::available_parallelism().map_or(1, Into::into), usize::from);
    let turns = Turns::default();
    let rows = map_numbers(
        "extract",
        jobs,
        dumps.len() as u64,
        || (),
        |(), number| {
            let dump = dumps.get(number as usize)?;
            let mut row = extract(&program, dump, &turns, arguments);
            if let Err(why) = record(&arguments.to, dump, &row, redaction.as_ref()) {
                row.error.get_or_insert_with(|| sentence(why.chain()));
            }
            Some(row)
        },
    );
    drop(lock);
    // A full disk must not hide what was done.
    let merged = compact::again(&arguments.to);
    let failed = rows.iter().filter(|row| row.error.is_some()).count();
    for row in &rows {
        if let Some(error) = &row.error {
            // Some errors begin with the path.
            let error = error.strip_prefix(&format!("{}: ", row.path.display())).unwrap_or(error);
            let path = text(&row.path);
            crate::console::tell(&format!("pagehaul-fleet: {path}: {error}"));
        } else {
            for why in &row.lost {
                crate::console::tell(&format!("pagehaul-fleet: {}: {why}", text(&row.path)));
            }
        }
    }
    arguments.tell_missing(&rows);
    crate::console::say(&if arguments.json { lines(&rows)? } else { summary(&rows, failed, &arguments.to) })?;
    merged?;
    Ok(match failed {
        0 if rows.iter().all(|row| row.lost.is_empty()) => ExitCode::SUCCESS,
        0 => ExitCode::from(3),
        failed if failed == dumps.len() => ExitCode::FAILURE,
        _ => ExitCode::from(3),
    })
}

/// Returns the rows as lines of JSON.
fn lines(rows: &[Row]) -> serde_json::Result<String> {
    rows.iter().map(|row| Ok(serde_json::to_string(row)? + "\n")).collect()
}

/// Returns one sentence on all rows.
fn summary(rows: &[Row], failed: usize, to: &Path) -> String {
    let mut crashes: Vec<_> = rows.iter().filter_map(|row| row.crash_id.as_ref()).collect();
    crashes.sort_unstable();
    crashes.dedup();
    // Dumps of a crash share its tables.
    let mut tables: BTreeMap<_, usize> = BTreeMap::new();
    for row in rows {
        for (name, count) in &row.tables {
            let known = tables.entry((&row.crash_id, &row.run_id, name)).or_default();
            *known = (*known).max(*count);
        }
    }
    let lines: usize = tables.values().sum();
    let stay = |row: &&Row| row.missing.iter().any(|missing| others_stay(&missing.reason));
    let stay = match rows.iter().filter(stay).count() {
        0 => String::new(),
        count => format!(
            "; {count} left tables of another dump of the crash as they are (column missing of the manifest)"
        ),
    };
    format!(
        "{} dumps of {} crashes, {lines} rows in {}; {failed} failed{stay}\n",
        rows.len() - failed,
        crashes.len(),
        to.display()
    )
}

/// Extracts one dump, stage by stage.
fn extract(program: &Path, dump: &[PathBuf], turns: &Turns, arguments: &ExtractArguments) -> Row {
    let path = dump.first().map_or(Path::new(""), PathBuf::as_path);
    let stage = |stage, mode| in_process(program, dump, stage, mode, arguments);
    let failed = |why| Row::new(path, Some(why));
    let mut stages = Stage::value_variants().iter().copied().filter(|stage| arguments.needs(*stage));
    let before = states(dump);
    // The first also finds whether this is a recording. Only the others find most damage.
    let first = stages.next().unwrap_or(Stage::Facts);
    let may_defer = stages.clone().next().is_some() && !is_facts(path);
    let mode = if may_defer { Mode::Defer } else { Mode::Plain };
    // The process says the path in UTF-8.
    let begin = || Row { refused: false, path: shown(path), ..stage(first, mode).unwrap_or_else(failed) };
    let mut row = begin();
    // Only the dump itself says which crash it is of. Another that wrote tables of it meanwhile may have replaced these.
    let turn = turns.of(row.crash_id.as_deref().unwrap_or_default());
    let mut is_taken = None;
    if row.crash_id.is_some() {
        let taken = is_taken.insert(turn.lock().unwrap_or_else(PoisonError::into_inner));
        if std::mem::replace(&mut **taken, true) {
            row = begin();
        }
    }
    if row.error.is_some() || row.run_id.is_some() {
        arguments.keep_wanted(&mut row);
        return row;
    }
    for part in stages {
        if is_facts(path) {
            row.lacks(part.tables(), "facts have no pages: this table needs the dump");
            continue;
        }
        let more = stage(part, Mode::Plain);
        let has_died = more.is_err();
        let more = more.unwrap_or_else(failed);
        row.damaged |= more.damaged;
        if more.refused {
            // The dump may have it.
            row.error = more.error;
            break;
        }
        if let Some(error) = more.error {
            row.lacks(part.tables(), &error);
            // A kernel may lack what they are made of: no dump of it has more.
            if has_died || more.damaged || row.complete == Some(false) {
                row.lost.push(format!("no {}: {error}", part.tables().join(", ")));
            }
            // Damage of a dump costs a stage. A full disk would cost tables in silence.
            if more.is_unwritten {
                row.error = Some(error);
            }
        }
        row.tables.extend(more.tables);
        row.add_missing(more.missing);
    }
    if std::mem::take(&mut row.deferred) && row.error.is_none() {
        if row.damaged {
            row.lacks(first.tables(), IS_DAMAGED);
        } else {
            // The tables are of this dump, then.
            let mode = if row.tables.is_empty() { Mode::Plain } else { Mode::Take };
            let made = stage(first, mode).unwrap_or_else(failed);
            row.error = made.error;
            row.tables.extend(made.tables);
            row.add_missing(made.missing);
        }
    }
    if row.missing.iter().any(|missing| others_stay(&missing.reason)) {
        // The tables of another dump of the crash are there, and have more.
        row.lost.clear();
    } else if row.lost.is_empty() && row.error.is_none() {
        if row.damaged {
            row.lost
                .push("it is damaged: tables may lack rows, and the manifest says which are missing".into());
        } else if row.complete == Some(false) {
            row.lost.push(
                "it is incomplete: tables may lack rows, and the manifest says which are missing".into(),
            );
        }
    }
    // Without it, the dump passes for one of another crash.
    row.lost.extend(row.missing.iter().filter(|why| why.what == "crash_id").map(|why| why.reason.clone()));
    row.damaged = false;
    arguments.python.extract(program, dump, &arguments.to, arguments.time_limit, &mut row);
    // Each stage opens it anew, and they would be of different dumps.
    if row.error.is_none() && states(dump) != before {
        row.error = Some("it changed while it was read; extract it again".into());
    }
    arguments.keep_wanted(&mut row);
    row
}

/// What changes with the contents of files, except of those on servers: device, inode, size, and time of the last change.
fn states(files: &[PathBuf]) -> Vec<Option<[i64; 5]>> {
    let state = |path: &PathBuf| {
        let found = fs::metadata(path).ok()?;
        let [device, inode, size] = [found.dev(), found.ino(), found.size()].map(u64::cast_signed);
        Some([device, inode, size, found.mtime(), found.mtime_nsec()])
    };
    files.iter().map(state).collect()
}

impl ExtractArguments {
    /// Whether a stage makes a table that is asked for.
    fn needs(&self, stage: Stage) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| stage.tables().contains(&name.as_str()))
    }

    /// Names the tables that are asked for by name and were not made of dumps without an error, and the reasons.
    fn tell_missing(&self, rows: &[Row]) {
        let asked = self.only.iter().map(String::as_str);
        let asked = asked.chain(self.python.functions.iter().map(|function| function.name.as_str()));
        let mut missing: BTreeMap<(&str, &str), Vec<&Path>> = BTreeMap::new();
        for table in asked {
            for row in rows.iter().filter(|row| row.error.is_none()) {
                let reason = row.missing.iter().find(|missing| missing.what == table);
                let reason = reason.map_or("it would have no rows", |missing| missing.reason.as_str());
                // The tables of another dump of the crash are there.
                if !others_stay(reason) && !row.tables.iter().any(|(made, _)| made == table) {
                    missing.entry((table, reason)).or_default().push(&row.path);
                }
            }
        }
        for ((table, reason), dumps) in missing {
            let Some(first) = dumps.first().map(|path| path.display()) else { continue };
            let of = match dumps.len() {
                1 => first.to_string(),
                count => format!("{count} dumps, such as {first}"),
            };
            crate::console::tell(&format!("pagehaul-fleet: no table {table} of {of}: {reason}"));
        }
    }

    /// Drops the reasons why tables are absent that are not asked for.
    fn keep_wanted(&self, row: &mut Row) {
        if !self.only.is_empty() {
            row.missing.retain(|missing| !is_own(&missing.what) || self.only.contains(&missing.what));
        }
    }
}

/// Fails unless `extract` makes a table of this name.
fn table_name(name: &str) -> Result<String, String> {
    if name != "manifest" && is_own(name) {
        return Ok(name.to_owned());
    }
    Err(match name {
        "manifest" => "it is always made; name the other tables to make".to_owned(),
        _ => "there is no table of this name; the guide lists them".to_owned(),
    })
}

/// What a stage does where tables of an equal dump of the crash are.
#[derive(Debug, Clone, Copy)]
enum Mode {
    /// Replaces them if this dump comes first in the order of dumps.
    Plain,
    /// Leaves them for now.
    Defer,
    /// Replaces them.
    Take,
}

/// Runs a stage in another process.
fn in_process(
    program: &Path,
    dump: &[PathBuf],
    stage: Stage,
    mode: Mode,
    arguments: &ExtractArguments,
) -> Result<Row, String> {
    let mut command = Command::new(program);
    command.arg("extract-one").arg("--to").arg(&arguments.to);
    // Recordings on servers are copied first, and it can write nowhere else.
    command.env("TMPDIR", &arguments.to);
    if let Some(stage) = stage.to_possible_value() {
        command.args(["--stage", stage.get_name()]);
    }
    match mode {
        Mode::Plain => None,
        Mode::Defer => Some("--defer"),
        Mode::Take => Some("--take"),
    }
    .map(|option| command.arg(option));
    if let Some(key) = &arguments.redact {
        command.arg("--redact").arg(key);
    }
    if !arguments.only.is_empty() {
        command.arg("--only").arg(arguments.only.join(","));
    }
    command.arg("--").args(dump);
    let ChildOutput { bytes, status } =
        output_within(&mut command, arguments.time_limit, MAX_OUTPUT).map_err(|error| error.to_string())?;
    let is_unwritten = status.is_some_and(|status| status.code() == Some(UNWRITTEN.into()));
    serde_json::from_slice(&bytes).map(|row: Row| Row { is_unwritten, ..row }).map_err(|_| {
        let ended = status.map_or_else(String::new, |status| format!(" ({status})"));
        format!("the process that reads it failed{ended}")
    })
}
