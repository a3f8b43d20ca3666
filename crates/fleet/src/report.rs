//! `pagehaul-fleet report`.
//!
//! One aggregate over one small table, a row per crash: a map does it. Other questions are for DuckDB or Spark, which read the same
//! files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pagehaul_present::Table;
use pagehaul_present::time::utc;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use serde::Serialize;

/// Report on the tables of `extract`: signatures by count, first and last seen, kernels, hosts
///
/// A signature seen on one host only, more than once, points to its hardware. Crashes that were requested (sysrq) are counted apart.
///
/// Exit status: 0, the report was printed; 1, there are no tables; 2, the command line is wrong.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul-fleet report tables
  pagehaul-fleet report tables --top 50 --json")]
pub(crate) struct ReportArguments {
    /// Directory of the tables
    directory: PathBuf,
    /// Signatures to print
    #[arg(long, value_name = "N", default_value = "20")]
    top: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Crashes of one signature.
#[derive(Debug, Default, Serialize)]
struct Group {
    sig: String,
    title: String,
    kind: String,
    crashes: usize,
    /// Seconds since 1970.
    first_seen: Option<i64>,
    last_seen: Option<i64>,
    kernels: BTreeMap<String, usize>,
    hosts: BTreeMap<String, usize>,
    /// One of its crashes.
    example: String,
}

#[derive(Debug, Serialize)]
struct Report {
    crashes: usize,
    requested: usize,
    /// Without a crash in the log.
    without_signature: usize,
    hosts: usize,
    signatures: Vec<Group>,
    unreadable: Vec<String>,
}

/// A row of `dumps`: columns that a report needs. A column that the file lacks is none.
#[derive(Debug, Default)]
struct Crash {
    crash_id: String,
    sig: Option<String>,
    title: Option<String>,
    kind: Option<String>,
    release: Option<String>,
    host: Option<String>,
    crash_time: Option<i64>,
}

pub(crate) fn run(arguments: &ReportArguments) -> anyhow::Result<ExitCode> {
    let directory = arguments.directory.join("dumps/v=1");
    let mut files = Vec::new();
    collect(&directory, &mut files).with_context(|| format!("cannot read {}", directory.display()))?;
    files.sort_unstable();
    let mut unreadable = Vec::new();
    // Files of one crash in two months, or put together by other tools, count once.
    let mut crashes = BTreeMap::new();
    for file in &files {
        match read(file) {
            Ok(rows) => crashes.extend(rows.into_iter().map(|row| (row.crash_id.clone(), row))),
            Err(error) => unreadable.push(format!("{}: {error:#}", file.display())),
        }
    }
    anyhow::ensure!(
        !crashes.is_empty() || !unreadable.is_empty(),
        "{} has no tables: run pagehaul-fleet extract",
        directory.display()
    );
    let report = aggregate(crashes.into_values(), unreadable);
    if arguments.json {
        crate::say(&format!("{}\n", serde_json::to_string_pretty(&report)?))?;
    } else {
        crate::say(&text(&report, arguments.top))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "parquet") {
            files.push(path);
        }
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<Vec<Crash>> {
    let reader = SerializedFileReader::new(File::open(path)?)?;
    reader.get_row_iter(None)?.map(|row| Ok(crash(&row?))).collect()
}

fn crash(row: &Row) -> Crash {
    let mut crash = Crash::default();
    for (name, field) in row.get_column_iter() {
        let text = || if let Field::Str(text) = field { Some(text.clone()) } else { None };
        match name.as_str() {
            "crash_id" => crash.crash_id = text().unwrap_or_default(),
            "sig" => crash.sig = text(),
            "title" => crash.title = text(),
            "kind" => crash.kind = text(),
            "release" => crash.release = text(),
            "host" => crash.host = text(),
            "crash_time" => {
                if let Field::TimestampMicros(time) = field {
                    crash.crash_time = Some(time / 1_000_000);
                }
            }
            _ => {}
        }
    }
    crash
}

fn aggregate(crashes: impl Iterator<Item = Crash>, unreadable: Vec<String>) -> Report {
    let mut groups = BTreeMap::<String, Group>::new();
    let mut hosts = BTreeSet::new();
    let (mut count, mut requested, mut without_signature) = (0, 0, 0);
    for crash in crashes {
        count += 1;
        hosts.extend(crash.host.clone());
        let Some(sig) = crash.sig else {
            without_signature += 1;
            continue;
        };
        requested += usize::from(crash.kind.as_deref() == Some("requested"));
        let group = groups.entry(sig.clone()).or_insert_with(|| Group {
            sig,
            title: crash.title.unwrap_or_default(),
            kind: crash.kind.unwrap_or_default(),
            example: crash.crash_id,
            ..Group::default()
        });
        group.crashes += 1;
        group.first_seen = [group.first_seen, crash.crash_time].into_iter().flatten().min();
        group.last_seen = group.last_seen.max(crash.crash_time);
        for (names, name) in [(&mut group.kernels, crash.release), (&mut group.hosts, crash.host)] {
            if let Some(name) = name {
                *names.entry(name).or_default() += 1;
            }
        }
    }
    let mut signatures: Vec<Group> = groups.into_values().collect();
    // What somebody asked for comes last.
    signatures.sort_by(|a, b| {
        let key = |group: &Group| (group.kind == "requested", std::cmp::Reverse(group.crashes));
        key(a).cmp(&key(b)).then_with(|| a.sig.cmp(&b.sig))
    });
    Report { crashes: count, requested, without_signature, hosts: hosts.len(), signatures, unreadable }
}

fn text(report: &Report, top: usize) -> String {
    let mut out = format!(
        "{} crashes on {} hosts, {} signatures; {} requested, {} without a crash in the log\n\n",
        report.crashes,
        report.hosts,
        report.signatures.len(),
        report.requested,
        report.without_signature
    );
    let mut table =
        Table::new(["crashes", "signature", "title", "first seen", "last seen", "kernels", "hosts"])
            .left([1, 2, 3, 4, 5]);
    let time =
        |time: Option<i64>| time.and_then(|time| u64::try_from(time).ok()).map_or_else(|| "-".into(), utc);
    for group in report.signatures.iter().take(top) {
        let hosts = match group.hosts.len() {
            1 if group.crashes > 1 => "1 (hardware?)".to_owned(),
            hosts => hosts.to_string(),
        };
        let kernels = group.kernels.keys().cloned().collect::<Vec<_>>().join(" ");
        table.row([
            group.crashes.to_string(),
            group.sig.clone(),
            group.title.clone(),
            time(group.first_seen),
            time(group.last_seen),
            kernels,
            hosts,
        ]);
    }
    out.push_str(&table.to_string());
    out.push('\n');
    for why in &report.unreadable {
        out.push_str(&format!("unreadable: {why}\n"));
    }
    pagehaul_present::printable_lines(&out).into_owned()
}
