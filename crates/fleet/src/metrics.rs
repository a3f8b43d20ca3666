//! `pagehaul-fleet metrics`: the text format of Prometheus, for node_exporter's textfile collector.

mod signatures;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;
use pagehaul_facts::Facts;
use pagehaul_vmalloc::{AreaKind, Usage};

use crate::one::from_facts;
use crate::report::bugs::Bugs;
use crate::report::gather::{Crash, Fleet, gather, plausible};
use crate::report::summary::Report;
use crate::written::{check_outside, identity, put};

/// Write metrics of a machine or a fleet for node_exporter's textfile collector
///
/// FACTS are what `capture --facts` wrote next to each dump of this machine; --tables has the crashes of a fleet. Metrics:
/// pagehaul_crashes by kind, pagehaul_last_crash_timestamp_seconds, pagehaul_last_crash_info with signature, kind and kernel. For the
/// most frequent signatures, or bugs with --bugs: pagehaul_signature_crashes, pagehaul_signature_hosts,
/// pagehaul_signature_last_crash_timestamp_seconds, and pagehaul_signature_info with title, bug and state; the crashes of all others are
/// those of the signature "other". With --vmalloc, the areas and bytes that are freed but not purged. Files that cannot be read are
/// named, and pagehaul_unreadable_facts counts them (pagehaul_unreadable_tables with --tables).
///
/// Exit status: 0, the metrics were written; 1, they cannot be; 2, the command line is wrong.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul-fleet metrics /var/crash/*/dump.facts.json.zst
  pagehaul-fleet metrics --tables tables --bugs bugs.toml -o fleet.prom
  pagehaul-fleet metrics --vmalloc -o /var/lib/prometheus/node-exporter/pagehaul.prom /var/crash/*/*.facts.json.zst")]
pub(crate) struct MetricsArguments {
    /// Facts of crashes
    facts: Vec<PathBuf>,
    /// Directory of the tables of a fleet, in place of facts
    #[arg(long, value_name = "DIR", conflicts_with = "facts")]
    tables: Option<PathBuf>,
    /// Count signatures of one bug together, by the file of bugs of `report`
    #[arg(long, value_name = "FILE")]
    bugs: Option<PathBuf>,
    /// Signatures with metrics, at most
    #[arg(long, value_name = "N", default_value = "20")]
    top: usize,
    /// Add the state of the running kernel's vmalloc space (/proc/vmallocinfo). Needs root
    #[arg(long)]
    vmalloc: bool,
    /// File to write, at once and readable for all. Replaces a file, but none that is read, and is not below DIR of --tables [default:
    /// standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Refuses to replace what the metrics are made of. An earlier file of metrics is replaced.
fn check_output(output: &Path, arguments: &MetricsArguments) -> anyhow::Result<()> {
    // The file gets its name by a rename, which would take the place of a device for good.
    let is_file = std::fs::metadata(output).map_or(true, |found| found.is_file());
    ensure!(
        is_file,
        "{} is not a regular file: name another file, or leave out -o to print the metrics",
        output.display()
    );
    if let Some(tables) = &arguments.tables {
        check_outside(output, tables)?;
    }
    let Some(there) = identity(output) else { return Ok(()) };
    for read in arguments.facts.iter().chain(&arguments.bugs) {
        ensure!(
            identity(read) != Some(there),
            "{} is a file that is read: give another file",
            output.display()
        );
    }
    Ok(())
}

pub(crate) fn run(arguments: &MetricsArguments) -> anyhow::Result<ExitCode> {
    if let Some(output) = &arguments.output {
        check_output(output, arguments)?;
    }
    let bugs = arguments.bugs.as_deref().map(Bugs::open).transpose()?.unwrap_or_default();
    let mut fleet = match &arguments.tables {
        Some(tables) => gather(tables)?,
        None => of_facts(&arguments.facts),
    };
    for why in &fleet.unreadable {
        crate::console::tell(&format!("pagehaul-fleet: {why}"));
    }
    bugs.assign(&mut fleet.crashes);
    let mut text = of_fleet(&fleet, &bugs, arguments.top);
    let (name, help) = match &arguments.tables {
        Some(_) => ("pagehaul_unreadable_tables", "Files of tables that cannot be read."),
        None => ("pagehaul_unreadable_facts", "Facts that cannot be read."),
    };
    gauge(&mut text, name, help, [(String::new(), fleet.unreadable.len() as u64)]);
    if arguments.vmalloc {
        text += &of_vmalloc(&Usage::read().context("cannot read the vmalloc space")?);
    }
    match &arguments.output {
        Some(path) => {
            put(path, |out| Ok(out.write_all(text.as_bytes())?))?;
            // The collector runs as another user.
            let readable = fs::set_permissions(path, Permissions::from_mode(0o644));
            readable.with_context(|| format!("cannot change the mode of {}", path.display()))?;
        }
        None => crate::console::say(&text)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Appends a metric of one value for each set of labels.
fn gauge(text: &mut String, name: &str, help: &str, values: impl IntoIterator<Item = (String, u64)>) {
    let mut values = values.into_iter().peekable();
    if values.peek().is_some() {
        // Writing to a string does not fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
    }
    for (labels, value) in values {
        let _ = writeln!(text, "{name}{labels} {value}");
    }
}

/// Returns the metrics of crashes, and of the `most` most frequent signatures.
pub(crate) fn of_fleet(fleet: &Fleet, bugs: &Bugs, most: usize) -> String {
    of_crashes(&fleet.crashes) + &signatures::of_signatures(&Report::new(fleet, bugs), most)
}

/// Reads facts. The crashes are in the order of their times, each once.
pub(crate) fn of_facts(paths: &[PathBuf]) -> Fleet {
    let mut fleet = Fleet::default();
    for path in paths {
        match from_facts(path) {
            Ok(facts) => fleet.crashes.push(crash(facts)),
            Err(error) => fleet.unreadable.push(pagehaul_present::sentence(error.chain())),
        }
    }
    // Two dumps of a crash are one.
    fleet.crashes.sort_by(|a, b| (a.time, &a.id).cmp(&(b.time, &b.id)));
    fleet.crashes.dedup_by(|a, b| a.id == b.id);
    fleet
}

fn crash(facts: Facts) -> Crash {
    let mut crash = Crash {
        id: facts.id.crash_id,
        release: facts.release,
        host: facts.host,
        time: facts.crash_time.and_then(|time| plausible(i64::try_from(time).ok()?)),
        ..Crash::default()
    };
    if let Some(found) = facts.crash {
        crash.kind = Some(found.signature.kind.name().to_owned());
        crash.sig = Some(found.signature.sig);
        crash.coarse = found.signature.sig_coarse;
        crash.frames = found.signature.frames;
        crash.title = Some(found.title);
    }
    crash
}

fn of_crashes(crashes: &[Crash]) -> String {
    let mut text = String::new();
    let kind = |crash: &Crash| crash.kind.clone().unwrap_or_else(|| "unknown".to_owned());
    let mut kinds: BTreeMap<String, u64> = BTreeMap::new();
    for crash in crashes {
        *kinds.entry(kind(crash)).or_default() += 1;
    }
    let kinds = kinds.into_iter().map(|(kind, count)| (format!("{{kind=\"{}\"}}", escape(&kind)), count));
    gauge(&mut text, "pagehaul_crashes", "Crashes with facts, by kind.", kinds);
    let last = crashes.iter().max_by_key(|crash| crash.time);
    let time = last.and_then(|crash| u64::try_from(crash.time?).ok()).map(|time| (String::new(), time));
    gauge(&mut text, "pagehaul_last_crash_timestamp_seconds", "Time of the last crash.", time);
    let info = last.map(|crash| {
        let of = |text: &Option<String>| escape(text.as_deref().unwrap_or_default());
        let kind = escape(&kind(crash));
        let labels = format!("sig=\"{}\",kind=\"{kind}\",release=\"{}\"", of(&crash.sig), of(&crash.release));
        (format!("{{{labels}}}"), 1)
    });
    gauge(&mut text, "pagehaul_last_crash_info", "Signature, kind and kernel of the last crash.", info);
    text
}

fn of_vmalloc(usage: &Usage) -> String {
    let mut text = String::new();
    let unpurged = usage.kind(AreaKind::Unpurged);
    for (name, help, value) in [
        ("pagehaul_vmalloc_unpurged_areas", "Areas that are freed but not purged.", unpurged.areas),
        ("pagehaul_vmalloc_unpurged_bytes", "Address space that is freed but not purged.", unpurged.bytes),
    ] {
        gauge(&mut text, name, help, [(String::new(), value)]);
    }
    text
}

/// Escapes the value of a label. A title is what a kernel wrote: control characters would reach the terminal that shows it.
fn escape(text: &str) -> String {
    pagehaul_present::printable(text).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_escaped() {
        assert_eq!(escape("6.1\"\\"), "6.1\\\"\\\\");
    }

    #[test]
    fn label_values_have_no_control_characters() {
        assert!(!escape("\x1b[31m\x07\u{9b}\r\n").contains(char::is_control));
    }

    #[test]
    fn without_crashes_there_are_no_metrics_of_them() {
        assert_eq!(of_crashes(&[]), "");
        assert_eq!(signatures::of_signatures(&Report::new(&Fleet::default(), &Bugs::default()), 20), "");
    }
}
