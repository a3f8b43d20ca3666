//! The report as text, and the tables that text and web page share.

use pagehaul_present::{Cell, Table, Tone};

use pagehaul_present::number::counted;

use super::compare::{Comparison, Verdict};
use super::group::{Group, KnownBug};
use super::interval::Interval;
use super::propose::Named;
use super::rates::{By, Rates};
use super::summary::Report;

/// Kernels of a signature that are named.
const MAX_KERNELS: usize = 3;

/// Builds the report.
pub(crate) fn text(report: &Report, top: usize) -> String {
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
    if let Some(rates) = &report.rates {
        part(&format!("rates per 1,000 machine-hours: {}\n", about_rates(rates)), &self::rates(rates, top));
        part("more in one group than in the rest\n", &concentrated(rates, top));
        part("not counted: no machine-hours\n", &without_hours(rates, top));
    }
    part("fixed, and back\n", &regressions(report, top));
    part("perhaps the same\n", &perhaps_same(report, top));
    part("bugs\n", &bugs(&report.signatures, top));
    part("kernels\n", &kernels(report, top));
    part("hosts with several crashes\n", &hosts(report, top));
    for note in notes(report, top) {
        out += &format!("{note}\n");
    }
    for why in &report.unreadable {
        out += &format!("unreadable: {why}\n");
    }
    pagehaul_present::printable_lines(&out).into_owned()
}

/// One sentence of totals.
pub(super) fn heading(report: &Report) -> String {
    let all = counted(report.signatures.len() as u64, "signature");
    let signatures = if report.since.is_some() { String::new() } else { format!(", {all}") };
    let crashes = match report.crashes {
        1 => "1 crash".to_owned(),
        crashes => format!("{} crashes", pagehaul_present::number::count(crashes as u64)),
    };
    let hosts = counted(report.hosts as u64, "host");
    let unread = match report.log_unread {
        0 => String::new(),
        count => format!(", {count} whose log was lost or erased"),
    };
    format!(
        "{crashes} on {hosts}{signatures}; {} requested, {} without a crash in the log{unread}",
        report.requested, report.without_signature
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
    let known_bugs = groups.iter().any(|group| group.bug.is_some());
    let mut header = vec!["crashes", "signature", "title"];
    header.extend(known_bugs.then_some("bug"));
    header.extend([
        "first seen (UTC)",
        "last seen",
        "kernels",
        "hosts",
        "free of all pages",
        "below min",
        "blocked",
    ]);
    let mut table = Table::new(header).left(1..6 + usize::from(known_bugs));
    for group in groups.iter().take(top) {
        let mut kernels: Vec<&str> = group.kernels.keys().map(String::as_str).take(MAX_KERNELS).collect();
        let more = format!("and {} more", group.kernels.len().saturating_sub(MAX_KERNELS));
        if group.kernels.len() > MAX_KERNELS {
            kernels.push(&more);
        }
        let hosts = match group.hosts.len() {
            hosts if group.hardware => Cell::new(format!("{hosts} (hardware?)"), Tone::Bad),
            hosts => hosts.to_string().into(),
        };
        let state = &group.at_death;
        let known = |text: Option<String>| text.map_or_else(|| Cell::new("-", Tone::Soft), Cell::from);
        let sig = match group.signatures.len() {
            0 | 1 => group.sig.clone(),
            all => format!("{} +{}", group.sig, all - 1),
        };
        let mut row: Vec<Cell> = vec![
            group.crashes.to_string().into(),
            Cell { place: Some(place(group)), ..Cell::from(sig) },
            group.title.as_str().into(),
        ];
        if known_bugs {
            row.push(group.bug.as_ref().map_or_else(|| Cell::new("-", Tone::Soft), bug_cell));
        }
        row.extend([
            time(group.first_seen).into(),
            time(group.last_seen).into(),
            kernels.join(" ").into(),
            hosts,
            known(state.classes.get("free").map(|percent| format!("{percent:.1} %"))),
            known(state.below_min.map(|count| count.to_string())),
            known(state.blocked_tasks.map(|count| count.to_string())),
        ]);
        table.row(row);
    }
    table
}

pub(super) fn about(comparison: &Comparison) -> String {
    let Comparison { old, new, old_crashes, new_crashes, left_out, .. } = comparison;
    let left_out = match left_out.len() {
        0 => String::new(),
        count => format!(
            "; {count} left out, which were requested, or have no crash in the log that could be read"
        ),
    };
    if *new_crashes == 0 {
        return format!("kernel {old} ({old_crashes} crashes); no crash of kernel {new}{left_out}");
    }
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

fn bug_cell(bug: &KnownBug) -> Cell {
    match bug.regressions {
        0 => format!("{} {}", bug.id, bug.state).into(),
        _ => Cell::new(format!("{} {}, REGRESSION", bug.id, bug.state), Tone::Bad),
    }
}

/// Bugs with crashes.
fn bugs(groups: &[Group], top: usize) -> Table {
    let mut table = Table::new(["bug", "crashes", "signatures", "state", "link"]).left([0, 3, 4]);
    let known = groups.iter().filter_map(|group| Some((group, group.bug.as_ref()?)));
    table.rows(known.take(top).map(|(group, bug)| {
        let link = bug.link.clone().unwrap_or_default();
        [
            bug.id.clone(),
            group.crashes.to_string(),
            group.signatures.len().to_string(),
            bug.state.clone(),
            link,
        ]
    }));
    table
}

/// Fixed bugs that kernels with the fix crashed of.
pub(super) fn regressions(report: &Report, top: usize) -> Table {
    let mut table =
        Table::new(["bug", "title", "state", "kernel", "crashes", "first seen (UTC)"]).left([0, 1, 2, 3, 5]);
    for found in report.regressions.iter().take(top) {
        table.row([
            Cell::new(found.bug.as_str(), Tone::Bad),
            found.title.as_str().into(),
            found.state.as_str().into(),
            found.release.as_str().into(),
            found.crashes.to_string().into(),
            time(found.first_seen).into(),
        ]);
    }
    table
}

/// Pairs of signatures that are perhaps one bug.
pub(super) fn perhaps_same(report: &Report, top: usize) -> Table {
    let mut table =
        Table::new(["crashes", "signature", "title", "and", "title", "because"]).left([1, 2, 3, 4, 5]);
    let name = |named: &Named| named.bug.clone().unwrap_or_else(|| named.sig.clone());
    for pair in report.perhaps_same.iter().take(top) {
        let because = match (&pair.sig_coarse, pair.similarity) {
            (Some(coarse), _) => format!("same coarse signature, {coarse}"),
            (None, part) => format!("{:.0} % of the functions, by weight", 100.0 * part.unwrap_or_default()),
        };
        table.row([
            pair.crashes.to_string(),
            name(&pair.first),
            pair.first.title.clone(),
            name(&pair.second),
            pair.second.title.clone(),
            because,
        ]);
    }
    table
}

/// What rates count.
pub(super) fn about_rates(rates: &Rates) -> String {
    let crashes = pagehaul_present::number::count(rates.crashes);
    let hours = figure(rates.machine_hours);
    let period = match (rates.since, rates.until) {
        (None, None) => String::new(),
        (since, None) => format!(" since {}", time(since)),
        (since, until) => format!(" from {} to {}", time(since), time(until)),
    };
    format!("{crashes} crashes in {hours} machine-hours{period}")
}

/// Rates of groups of machines.
pub(super) fn rates(rates: &Rates, top: usize) -> Table {
    let header = [
        "by",
        "machines",
        "crashes",
        "machine-hours",
        "rate",
        "95 % interval",
        "times the rest",
        "95 % interval",
        "",
    ];
    let mut table = Table::new(header).left([0, 1, 5, 7, 8]);
    for by in [By::All, By::Kernel, By::Fleet, By::Class, By::Group] {
        let groups: Vec<_> = rates.groups.iter().filter(|group| group.by == by).collect();
        for group in groups.iter().take(top) {
            let higher = if group.is_higher() { Cell::new("higher", Tone::Bad) } else { Cell::default() };
            let dash = || Cell::new("-", Tone::Soft);
            table.row([
                Cell::from(by.name()),
                group.name.as_str().into(),
                group.crashes.to_string().into(),
                figure(group.machine_hours).into(),
                value(&group.rate).into(),
                limits(&group.rate).into(),
                group.ratio.as_ref().map_or_else(dash, |ratio| value(ratio).into()),
                group.ratio.as_ref().map_or_else(dash, |ratio| limits(ratio).into()),
                higher,
            ]);
        }
        if groups.len() > top {
            let more = format!("and {} more", groups.len() - top);
            let mut row = vec![Cell::from(by.name()), Cell::new(more, Tone::Soft)];
            row.resize(9, Cell::default());
            table.row(row);
        }
    }
    table
}

/// Signatures that one group of machines has more often than the rest.
pub(super) fn concentrated(rates: &Rates, top: usize) -> Table {
    let header =
        ["signature", "title", "machines", "crashes", "elsewhere", "times the rest", "95 % interval"];
    let mut table = Table::new(header).left([0, 1, 2, 6]);
    for found in rates.concentrated.iter().take(top) {
        table.row([
            Cell::from(found.bug.as_deref().unwrap_or(&found.sig)),
            found.title.as_str().into(),
            format!("{} {}", found.by.name(), found.name).into(),
            found.crashes.to_string().into(),
            found.elsewhere.to_string().into(),
            Cell::new(value(&found.ratio), Tone::Bad),
            limits(&found.ratio).into(),
        ]);
    }
    table
}

/// Crashes that rates do not count.
pub(super) fn without_hours(rates: &Rates, top: usize) -> Table {
    let mut table = Table::new(["kernel", "fleet", "class", "crashes"]).left([0, 1, 2]);
    let text = |part: &Option<String>| part.clone().unwrap_or_else(|| "-".to_owned());
    let mut rows: Vec<_> = rates.without_hours.iter().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.crashes));
    table.rows(rows.iter().take(top).map(|row| {
        [
            row.machines.release.clone(),
            text(&row.machines.fleet),
            text(&row.machines.class),
            row.crashes.to_string(),
        ]
    }));
    if rows.len() > top {
        let more = rows.iter().skip(top).map(|row| row.crashes).sum::<u64>().to_string();
        table.row([format!("and {} more", rows.len() - top), String::new(), String::new(), more]);
    }
    table
}

/// What is in one file and not in the other, and what is not counted.
pub(super) fn notes(report: &Report, top: usize) -> Vec<String> {
    let mut notes = Vec::new();
    let mut list = |what: &str, names: &[String]| {
        if !names.is_empty() {
            let more = names.len().saturating_sub(top);
            let more = if more > 0 { format!("; and {more} more") } else { String::new() };
            let names = names.iter().take(top).map(String::as_str).collect::<Vec<_>>().join("; ");
            notes.push(format!("{what}: {names}{more}"));
        }
    };
    list("signatures of bugs that no crash has", &report.unseen);
    if let Some(rates) = &report.rates {
        let hosts: Vec<String> = rates
            .unknown_hosts
            .iter()
            .map(|(host, crashes)| {
                format!("{} ({crashes})", if host.is_empty() { "without a name" } else { host })
            })
            .collect();
        list("crashes of hosts that the file of hosts lacks, which only rates of kernels count", &hosts);
        list("groups that one file lacks", &rates.unknown_groups);
        if rates.unknown_hosts_not_counted > 0 {
            let count = rates.unknown_hosts_not_counted;
            notes.push(format!("crashes of these hosts that no rate counts, as the machine-hours of their kernel are unknown: {count}"));
        }
        if rates.outside_period > 0 {
            let count = rates.outside_period;
            notes.push(format!(
                "crashes outside of the period, or without a time, which rates do not count: {count}"
            ));
        }
    }
    notes
}

fn value(interval: &Interval) -> String {
    interval.value.map_or_else(|| "∞".to_owned(), figure)
}

fn limits(interval: &Interval) -> String {
    let high = interval.high.map_or_else(|| "∞".to_owned(), figure);
    format!("{} – {high}", figure(interval.low))
}

/// A number with three significant digits, also a small one.
pub(super) fn figure(value: f64) -> String {
    if value == 0.0 || value.abs() >= 0.1 {
        return pagehaul_present::number::significant(value);
    }
    let decimals = (2.0 - value.abs().log10().floor()).clamp(3.0, 12.0) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (1234.5, "1,234"),
            (12.34, "12.3"),
            (0.25, "0.250"),
            (0.0123, "0.0123"),
            (0.000_456_7, "0.000457"),
        ] {
            assert_eq!(figure(value), text);
        }
        assert_eq!(figure(1e-30), "0.000000000000");
    }
}
