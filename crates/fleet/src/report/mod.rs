//! `pagehaul-fleet report`.
//!
//! Aggregates a few columns in maps. Other questions are for `sql`.

mod compare;
mod gather;
mod html;
mod summary;
mod text;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;
use pagehaul_output::{CreateOptions, Naming, NewFile, Special};
use pagehaul_present::printable_json;

/// Report on the tables of `extract`: signatures, kernels, hosts, memory at death
///
/// Signatures come by count, with their first and last crash. Only crashes of one host, or many signatures on one host, point to its
/// hardware. Requested crashes (sysrq) come last. Kernels are matched by the start of their release: 6.12 is each 6.12.x.
///
/// Exit status: 0, the report was printed; 1, there are no tables, or FILE exists; 2, the command line is wrong.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul-fleet report tables
  pagehaul-fleet report tables --since 2026-11-01
  pagehaul-fleet report tables --compare 6.1 6.12
  pagehaul-fleet report tables --top 50 --json
  pagehaul-fleet report tables --html fleet.html")]
pub(crate) struct ReportArguments {
    /// Directory of the tables
    directory: PathBuf,
    /// Signatures, kernels and hosts to list, at most
    #[arg(long, value_name = "N", default_value = "20")]
    top: usize,
    /// Only signatures of which the first crash is not before DATE: 2026-11-01, or a time such as 2026-11-01T12:00:00Z
    #[arg(long, value_name = "DATE", value_parser = parse_date)]
    since: Option<i64>,
    /// Compare two kernels: signatures with a larger part of the crashes of NEW
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"])]
    compare: Option<Vec<String>>,
    /// Print JSON, with all signatures
    #[arg(long)]
    json: bool,
    /// Write a web page, which needs no network and only you can read. It lists the crashes of each signature with their dumps
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    html: Option<PathBuf>,
    /// Replace FILE of --html if it exists
    #[arg(long, requires = "html")]
    force: bool,
}

/// Seconds since 1970 of a date or time; a date begins at midnight UTC.
pub(crate) fn parse_date(text: &str) -> Result<i64, String> {
    let date = || text.parse::<jiff::civil::Date>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok();
    let time = text.parse::<jiff::Timestamp>().ok().or_else(|| Some(date()?.timestamp()));
    time.map(jiff::Timestamp::as_second).ok_or_else(|| "expected a date such as 2026-11-01".to_owned())
}

/// Makes a report of all tables, as text, for `bench`.
///
/// # Errors
/// Fails if a directory cannot be read.
pub(crate) fn text(tables: &Path) -> anyhow::Result<String> {
    Ok(text::text(&summary::Report::new(&gather::gather(tables)?, None), 20))
}

pub(crate) fn run(arguments: &ReportArguments) -> anyhow::Result<ExitCode> {
    let page = CreateOptions {
        naming: Naming::WhenComplete,
        overwrite: arguments.force,
        special: Special::Any,
        private: true,
        sources: &[],
    };
    if let Some(path) = &arguments.html {
        NewFile::check(path, page)?;
    }
    let mut fleet = gather::gather(&arguments.directory)?;
    ensure!(
        !fleet.crashes.is_empty() || !fleet.unreadable.is_empty(),
        "{} has no tables: run pagehaul-fleet extract",
        arguments.directory.join("dumps").display()
    );
    if arguments.html.is_some() {
        gather::find_dumps(&arguments.directory, &mut fleet)?;
    }
    let mut report = summary::Report::new(&fleet, arguments.since);
    if let Some([old, new]) = arguments.compare.as_deref() {
        report.comparison = Some(compare::compare(&fleet.crashes, old, new)?);
    }
    if let Some(path) = &arguments.html {
        let mut file = NewFile::create(path, page)?;
        let written = (&**file.file()).write_all(html::page(&report, arguments.top).as_bytes());
        written.with_context(|| format!("cannot write {}", path.display()))?;
        file.commit()?;
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.json {
        let text = serde_json::to_string_pretty(&report)?;
        crate::say(&format!("{}\n", printable_json(&text)))?;
    } else {
        crate::say(&text::text(&report, arguments.top))?;
    }
    Ok(ExitCode::SUCCESS)
}
