//! The report as text, and the tables that text and web page share.

use pagehaul_present::{Cell, Table, Tone};

use super::compare::{Comparison, Verdict};
use super::summary::{Group, Report};

/// Kernels of a signature that are named.
const MOST_KERNELS: usize = 3;

/// Builds the report.
pub(super) fn text(report: &Report, top: usize) -> String {
    let mut out = heading(report) + "\n\n";
    if let Some(since) = report.since {
        out += &format!("signatures first seen since {}: {}\n", time(Some(since)), report.signatures.len());
    }
    let mut part = |title: &str, table: &Table| {
        if !table.rows.is_empty() {
            out += &format!("{title}{table}\n");
        }
    };
    part("", &signatures(&report.signatures, top));
    if let Some(comparison) = &report.comparison {
        part(&format!("{}\n", about(comparison)), &changes(comparison, top));
        part("left out of the comparison\n", &left_out(comparison, top));
    }
    part("kernels\n", &kernels(report, top));
    part("hosts with several crashes\n", &hosts(report, top));
    for why in &report.unreadable {
        out += &format!("unreadable: {why}\n");
    }
    pagehaul_present::printable_lines(&out).into_owned()
}

/// One sentence of totals.
pub(super) fn heading(report: &Report) -> String {
    let all: usize = report.signatures.len();
    let signatures = if report.since.is_some() { String::new() } else { format!(", {all} signatures") };
    format!(
        "{} crashes on {} hosts{signatures}; {} requested, {} without a crash in the log",
        report.crashes, report.hosts, report.requested, report.without_signature
    )
}

fn time(time: Option<i64>) -> String {
    let time = time.and_then(|time| jiff::Timestamp::from_second(time).ok());
    time.map_or_else(|| "-".into(), |time| time.strftime("%Y-%m-%d %H:%M").to_string())
}

/// Where the web page lists the crashes of a signature.
pub(super) fn place(group: &Group) -> String {
    format!("sig-{}", group.sig)
}

/// The crashes of a signature, the newest first.
pub(super) fn crashes(group: &Group, most: usize) -> Table {
    let mut table = Table::new(["time (UTC)", "host", "kernel", "crash", "dumps"]).left([0, 1, 2, 3, 4]);
    table.rows(group.members.iter().take(most).map(|crash| {
        let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let dumps = if crash.dumps.is_empty() { "-".to_owned() } else { crash.dumps.join(" ") };
        [time(crash.time), known(&crash.host), known(&crash.release), crash.id.clone(), dumps]
    }));
    table
}

/// Signatures, with the state of their machines where it is known.
pub(super) fn signatures(groups: &[Group], top: usize) -> Table {
    let header = [
        "crashes",
        "signature",
        "title",
        "first seen (UTC)",
        "last seen",
        "kernels",
        "hosts",
        "free",
        "below min",
        "blocked",
    ];
    let mut table = Table::new(header).left([1, 2, 3, 4, 5]);
    for group in groups.iter().take(top) {
        let mut kernels: Vec<&str> = group.kernels.keys().map(String::as_str).take(MOST_KERNELS).collect();
        let more = format!("and {} more", group.kernels.len().saturating_sub(MOST_KERNELS));
        if group.kernels.len() > MOST_KERNELS {
            kernels.push(&more);
        }
        let hosts = match group.hosts.len() {
            hosts if group.hardware => Cell::new(format!("{hosts} (hardware?)"), Tone::Bad),
            hosts => hosts.to_string().into(),
        };
        let state = &group.at_death;
        let known = |text: Option<String>| text.map_or_else(|| Cell::new("-", Tone::Soft), Cell::from);
        table.row([
            group.crashes.to_string().into(),
            Cell { place: Some(place(group)), ..Cell::from(group.sig.as_str()) },
            group.title.as_str().into(),
            time(group.first_seen).into(),
            time(group.last_seen).into(),
            kernels.join(" ").into(),
            hosts,
            known(state.classes.get("free").map(|percent| format!("{percent:.1} %"))),
            known(state.below_min.map(|count| count.to_string())),
            known(state.blocked_tasks.map(|count| count.to_string())),
        ]);
    }
    table
}

pub(super) fn about(comparison: &Comparison) -> String {
    let Comparison { old, new, old_crashes, new_crashes, left_out, .. } = comparison;
    let left_out = match left_out.len() {
        0 => String::new(),
        count => format!("; {count} left out, which were requested or have no crash in the log"),
    };
    format!("kernel {old} ({old_crashes} crashes) and {new} ({new_crashes} crashes){left_out}")
}

/// Signatures of two kernels, without those that did not change.
pub(super) fn changes(comparison: &Comparison, top: usize) -> Table {
    let header = ["", "signature", "title", &comparison.old, &comparison.new, "p"];
    let mut table = Table::new(header).left([0, 1, 2]);
    let changed = comparison.signatures.iter().filter(|change| change.verdict != Verdict::Same);
    for change in changed.take(top) {
        let tone = if change.verdict == Verdict::Regression { Tone::Bad } else { Tone::Plain };
        let p = if change.p < 0.0001 { "< 0.0001".to_owned() } else { format!("{:.4}", change.p) };
        table.row([
            Cell::new(change.verdict.name(), tone),
            change.sig.as_str().into(),
            change.title.as_str().into(),
            change.old_crashes.to_string().into(),
            change.new_crashes.to_string().into(),
            p.into(),
        ]);
    }
    table
}

/// Crashes of the two kernels that do not count, and why.
pub(super) fn left_out(comparison: &Comparison, top: usize) -> Table {
    let mut table = Table::new(["crash", "kernel", "why", "title"]).left([0, 1, 2, 3]);
    table.rows(comparison.left_out.iter().take(top).map(|crash| {
        [crash.crash_id.as_str(), crash.release.as_str(), crash.why.text(), crash.title.as_str()]
    }));
    table
}

/// The newest kernels.
pub(super) fn kernels(report: &Report, top: usize) -> Table {
    let mut table = Table::new(["kernel", "crashes", "signatures", "first here"]);
    table.rows(report.kernels.iter().rev().take(top).map(|kernel| {
        let counts = [kernel.crashes, kernel.signatures, kernel.first_here].map(|count| count.to_string());
        std::iter::once(kernel.release.clone()).chain(counts)
    }));
    table
}

/// Hosts with several crashes.
pub(super) fn hosts(report: &Report, top: usize) -> Table {
    let mut table = Table::new(["host", "crashes", "signatures", ""]).left([0, 3]);
    table.rows(report.repeated.iter().take(top).map(|host| {
        let note = if host.hardware { "hardware?" } else { "" };
        let counts = [host.crashes, host.signatures].map(|count| Cell::from(count.to_string()));
        let [crashes, signatures] = counts;
        [Cell::from(host.host.as_str()), crashes, signatures, Cell::new(note, Tone::Bad)]
    }));
    table
}
