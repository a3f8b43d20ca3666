//! `pagehaul-fleet metrics`: the text format of Prometheus, for node_exporter's textfile collector.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use pagehaul_facts::Facts;
use pagehaul_vmalloc::{AreaKind, Usage};

use crate::one::from_facts;
use crate::place::put;

/// Write metrics of a machine for node_exporter's textfile collector
///
/// FACTS are what `capture --facts` wrote next to each dump of this machine. Metrics: pagehaul_crashes by kind,
/// pagehaul_last_crash_timestamp_seconds, pagehaul_last_crash_info with signature, kind and kernel; with --vmalloc, the areas and bytes that
/// are freed but not purged. Files that cannot be read are named, and pagehaul_unreadable_facts counts them.
///
/// Exit status: 0, the metrics were written; 1, they cannot be; 2, the command line is wrong.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul-fleet metrics /var/crash/*/dump.facts.json.zst
  pagehaul-fleet metrics --vmalloc -o /var/lib/prometheus/node-exporter/pagehaul.prom /var/crash/*/*.facts.json.zst")]
pub(crate) struct MetricsArguments {
    /// Facts of crashes
    facts: Vec<PathBuf>,
    /// Add the state of the running kernel's vmalloc space (/proc/vmallocinfo). Needs root
    #[arg(long)]
    vmalloc: bool,
    /// File to write, at once and readable for all [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: &MetricsArguments) -> anyhow::Result<ExitCode> {
    let mut crashes = Vec::new();
    let mut unreadable = 0;
    for path in &arguments.facts {
        match from_facts(path) {
            Ok(facts) => crashes.push(facts),
            Err(error) => {
                unreadable += 1;
                crate::tell(&format!("pagehaul-fleet: {}", pagehaul_present::sentence(error.chain())));
            }
        }
    }
    let mut text = of_crashes(crashes, unreadable);
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
        None => crate::say(&text)?,
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

fn of_crashes(mut crashes: Vec<Facts>, unreadable: u64) -> String {
    let mut text = String::new();
    // Two dumps of a crash are one.
    crashes.sort_by(|a, b| (a.crash_time, &a.id.crash_id).cmp(&(b.crash_time, &b.id.crash_id)));
    crashes.dedup_by(|a, b| a.id.crash_id == b.id.crash_id);
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for facts in &crashes {
        let kind = facts.crash.as_ref().map_or("unknown", |crash| crash.signature.kind.name());
        *kinds.entry(kind).or_default() += 1;
    }
    let kinds = kinds.into_iter().map(|(kind, count)| (format!("{{kind=\"{kind}\"}}"), count));
    gauge(&mut text, "pagehaul_crashes", "Crashes with facts, by kind.", kinds);
    let last = crashes.last();
    let time = last.and_then(|facts| facts.crash_time).map(|time| (String::new(), time));
    gauge(&mut text, "pagehaul_last_crash_timestamp_seconds", "Time of the last crash.", time);
    let info = last.map(|facts| {
        let crash = facts.crash.as_ref();
        let sig = crash.map_or("", |crash| crash.signature.sig.as_str());
        let kind = crash.map_or("unknown", |crash| crash.signature.kind.name());
        let release = escape(facts.release.as_deref().unwrap_or_default());
        (format!("{{sig=\"{}\",kind=\"{kind}\",release=\"{release}\"}}", escape(sig)), 1)
    });
    gauge(&mut text, "pagehaul_last_crash_info", "Signature, kind and kernel of the last crash.", info);
    let count = [(String::new(), unreadable)];
    gauge(&mut text, "pagehaul_unreadable_facts", "Facts that cannot be read.", count);
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

/// Escapes the value of a label.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values_are_escaped() {
        assert_eq!(escape("6.1\"\\\n"), "6.1\\\"\\\\\\n");
    }

    #[test]
    fn without_crashes_only_the_count_is_there() {
        let text = of_crashes(Vec::new(), 2);
        assert!(text.ends_with("pagehaul_unreadable_facts 2\n") && !text.contains("last_crash"), "{text}");
    }
}
