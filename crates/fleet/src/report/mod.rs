//! `pagehaul-fleet report`.
//!
//! Aggregates a few columns in maps. Other questions are for `sql`.

pub(crate) mod alert;
pub(crate) mod bugs;
pub(crate) mod compare;
pub(crate) mod exposure;
pub(crate) mod gather;
pub(crate) mod group;
pub(crate) mod html;
mod input;
mod interval;
mod propose;
pub(crate) mod rates;
pub(crate) mod summary;
pub(crate) mod text;
mod titles;
mod version;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::{ArgGroup, Args};
use pagehaul_output::{CreateOptions, Naming, NewFile, Special};
use pagehaul_present::{printable_json, printable_lines};

use crate::date::parse_date;
use crate::written::{check_outside, identity};

use bugs::Bugs;
use exposure::{Exposure, Hosts};
use gather::Fleet;
use summary::Report;

/// Report on the tables of `extract`: signatures, kernels, hosts, memory at death
///
/// Signatures come by count, with their first and last crash. Only crashes of one host, or many signatures on one host, point to its
/// hardware. Requested crashes (sysrq) come last. Kernels are matched by the start of their release: 6.12 is each 6.12.x. Pairs of
/// signatures that are perhaps one bug have the same coarse signature, or share most of their frames.
///
/// Exit status: 0, the report was printed; 1, there are no tables, a file of the options cannot be read, or the page exists; 2, the
/// command line is wrong; 3, a table cannot be read, and the report of the others was printed, or with
/// --fail-on-rate crashes cannot be counted, because they have no machine-hours or their host is not in the file of hosts: nothing can be
/// said; with --fail-on-new or --fail-on-rate: 4, a signature is new, or a fixed bug came back; 5, a rate is above RATE; 6, both. 4 to 6 come before 3.
///
/// With --fail-on-new, the kernel NEW of --compare may have no crashes: the report says so.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("known").args(["since", "compare"]).multiple(true)))]
#[command(after_help = "Examples:
  pagehaul-fleet report tables
  pagehaul-fleet report tables --since 2026-11-01
  pagehaul-fleet report tables --compare 6.1 6.12
  pagehaul-fleet report tables --bugs bugs.toml --since 2026-11-01 --fail-on-new
  pagehaul-fleet report tables --exposure hours.csv --hosts hosts.csv --since 2026-11-01 --fail-on-rate 0.5
  pagehaul-fleet report tables --top 50 --json
  pagehaul-fleet report tables --html fleet.html")]
pub(crate) struct ReportArguments {
    /// Directory of the tables
    directory: PathBuf,
    /// Signatures, kernels and hosts to list, at most
    #[arg(long, value_name = "N", default_value = "20")]
    top: usize,
    /// Only signatures of which the first crash is not before DATE: 2026-11-01, or a time such as 2026-11-01T12:00:00Z. Rates count crashes
    /// since DATE
    #[arg(long, value_name = "DATE", value_parser = parse_date)]
    since: Option<i64>,
    /// Compare two kernels: signatures with a larger part of the crashes of NEW
    #[arg(long, num_args = 2, value_names = ["OLD", "NEW"])]
    compare: Option<Vec<String>>,
    /// Merge the signatures of each bug in FILE, and print links and states. FILE is TOML: a [[bug]] has an id, signatures (exact or
    /// coarse), and perhaps title, link, state ("open" or "fixed") and fixed-in (a release, or one of each branch)
    #[arg(long, value_name = "FILE")]
    bugs: Option<PathBuf>,
    /// Print rates per 1,000 machine-hours with 95 % intervals. FILE is CSV with a header: release, machine_hours, and perhaps fleet, class
    /// and day. The rates of groups are compared with the rest
    #[arg(long, value_name = "FILE")]
    exposure: Option<PathBuf>,
    /// For --exposure by fleet or class: which hosts are of which. FILE is CSV with a header: host (* is any text, ? one character), and
    /// fleet or class
    #[arg(long, value_name = "FILE", requires = "exposure")]
    hosts: Option<PathBuf>,
    /// End with status 4 if a signature of no known bug has no crash before --since, or none of the kernel OLD of --compare, or if a fixed
    /// bug came back there. Requested crashes do not count
    #[arg(long, requires = "known")]
    fail_on_new: bool,
    /// End with status 5 if a group has more than RATE crashes per 1,000 machine-hours, with its whole interval
    #[arg(long, value_name = "RATE", requires = "exposure", value_parser = parse_rate)]
    fail_on_rate: Option<f64>,
    /// Print JSON, with all signatures
    #[arg(long)]
    json: bool,
    /// Write a web page, which needs no network and only you can read. It lists the crashes of each signature with their dumps. FILE is not
    /// below the directory of the tables
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    html: Option<PathBuf>,
    /// Replace FILE of --html if it exists
    #[arg(long, requires = "html")]
    force: bool,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate >= 0.0);
    rate.ok_or_else(|| "expected a number of crashes per 1,000 machine-hours, such as 0.5".to_owned())
}

/// Makes a report of all tables, as text.
///
/// # Errors
/// Fails if a directory cannot be read.
pub fn report_text(tables: &Path) -> anyhow::Result<String> {
    let fleet = gather::gather(tables)?;
    Ok(text::text(&summarize(&fleet, &Bugs::default()), 20))
}

/// Counts, and proposes what may be one bug.
pub(crate) fn summarize(fleet: &Fleet, bugs: &Bugs) -> Report {
    let mut report = Report::new(fleet, bugs);
    report.perhaps_same = propose::propose(&fleet.crashes, &report.signatures);
    report
}

pub(crate) fn run(arguments: &ReportArguments) -> anyhow::Result<ExitCode> {
    let read = [&arguments.bugs, &arguments.exposure, &arguments.hosts];
    let sources: Vec<(u64, u64)> = read.into_iter().flatten().filter_map(|path| identity(path)).collect();
    let page = CreateOptions {
        naming: Naming::WhenComplete,
        overwrite: arguments.force,
        special: Special::Any,
        private: true,
        sources: &sources,
    };
    if let Some(path) = &arguments.html {
        check_outside(path, &arguments.directory)?;
        NewFile::check(path, page)?;
    }
    let bugs = arguments.bugs.as_deref().map(Bugs::open).transpose()?.unwrap_or_default();
    let exposure = arguments.exposure.as_deref();
    let exposure = exposure.map(|path| Exposure::open(path, arguments.since)).transpose()?;
    let hosts = arguments.hosts.as_deref().map(Hosts::open).transpose()?;
    if let Some(exposure) = &exposure {
        ensure!(
            hosts.is_some() || !exposure.has_fleet && !exposure.has_class,
            "machine-hours by fleet or class need --hosts FILE: which hosts are of which"
        );
    }
    let mut fleet = gather::gather(&arguments.directory)?;
    ensure!(
        !fleet.crashes.is_empty() || !fleet.unreadable.is_empty(),
        "{} has no tables: run pagehaul-fleet extract",
        arguments.directory.join("dumps").display()
    );
    bugs.assign(&mut fleet.crashes);
    if arguments.html.is_some() {
        gather::find_dumps(&arguments.directory, &mut fleet)?;
    }
    let mut report = summarize(&fleet, &bugs);
    if let Some([old, new]) = arguments.compare.as_deref() {
        report.comparison =
            Some(compare::compare(&fleet.crashes, &report.signatures, old, new, arguments.fail_on_new)?);
    }
    report.rates = exposure.map(|exposure| {
        rates::rates(&fleet.crashes, &report.signatures, &exposure, hosts.as_ref(), arguments.since)
    });
    if let Some(since) = arguments.since {
        report.limit(since);
    }
    if arguments.fail_on_new {
        report.alerts.extend(alert::new_signatures(&report));
    }
    if let Some(limit) = arguments.fail_on_rate {
        report.alerts.extend(alert::high_rates(&report, limit));
        report.alerts.extend(alert::not_counted(&report));
    }
    if arguments.fail_on_new || arguments.fail_on_rate.is_some() {
        let unreadable: Vec<_> = alert::unreadable(&report).collect();
        report.alerts.extend(unreadable);
    }
    print(&report, arguments, page)?;
    for alert in &report.alerts {
        crate::console::tell(&format!("pagehaul-fleet: {}", alert.text));
    }
    if arguments.fail_on_new || arguments.fail_on_rate.is_some() {
        return Ok(alert::exit_code(&report));
    }
    Ok(if report.unreadable.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(alert::UNKNOWN) })
}

fn print(report: &Report, arguments: &ReportArguments, page: CreateOptions<'_>) -> anyhow::Result<()> {
    if let Some(path) = &arguments.html {
        let mut file = NewFile::create(path, page)?;
        // Text of dumps and facts must not reorder or hide what is around it.
        let page = html::page(report, arguments.top);
        let written = (&**file.file()).write_all(printable_lines(&page).as_bytes());
        written.with_context(|| format!("cannot write {}", path.display()))?;
        return Ok(file.commit()?);
    }
    if arguments.json {
        let text = serde_json::to_string_pretty(report)?;
        return crate::console::say(&format!("{}\n", printable_json(&text)));
    }
    crate::console::say(&text::text(report, arguments.top))
}
