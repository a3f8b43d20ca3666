//! Reports as web pages.

use maud::{Markup, html};
use pagehaul_present::html::{columns, facts, page, section, tiles};
use pagehaul_present::number::{count, significant};
use pagehaul_present::svg::{self, Axis, Bar, Chart, Line, Series};
use pagehaul_present::time::microseconds;
use pagehaul_present::{Table, Tone};

use super::{figures, tables};
use pagehaul_reclaim::model::Reclaimer;
use pagehaul_reclaim::report::{Comparison, LostReport, ReclaimReport, Stalls, TimelineReport, Verdict};

/// Colours of reclaim, for all charts; styles for what only these pages have.
const STYLE: &str = include_str!("reclaim.css");
const DIRECT: &str = "var(--direct)";
const MEMCG: &str = "var(--memcg)";
const THROTTLED: &str = "var(--throttled)";
const KSWAPD: &str = "var(--kswapd)";

/// Builds a page of one report or several.
pub fn report_page(reports: &[ReclaimReport]) -> String {
    let title = reports.first().map_or("reclaim", |report| report.label.as_str());
    let body = html! {
        @for (at, of) in reports.iter().enumerate() {
            @if at > 0 { hr; }
            (report(of))
        }
    };
    whole_page(&format!("{title}: page reclaim"), &body)
}

/// Builds a page of a comparison, with the charts of its columns.
pub fn comparison_page(comparison: &Comparison, reports: &[ReclaimReport]) -> String {
    let labels: Vec<&str> = comparison.columns.iter().map(|column| column.label.as_str()).collect();
    let columns_facts = comparison.columns.iter().map(|column| {
        let release = column.release.as_deref().unwrap_or("kernel unknown");
        format!("{}: {release}, {}", column.label, figures::runs(column.runs))
    });
    let body = html! {
        h1 { (labels.join(" · ")) }
        (facts(columns_facts))
        p.about { (tables::comparison_key(comparison)) }
        @for column in comparison.columns.iter().filter(|column| column.lost) {
            div.warning { (column.label) ": events were lost; its figures are lower bounds" }
        }
        @for of in &comparison.sections { (section(&of.title, "", tables::comparison(comparison, of))) }
        @for of in reports {
            h1 { (of.label) }
            (timeline(&of.timeline))
            (columns(of.stalls.iter().map(stalls)))
        }
    };
    whole_page(&format!("{}: page reclaim compared", labels.join(", ")), &body)
}

fn whole_page(title: &str, body: &Markup) -> String {
    page(title, &[svg::STYLE, STYLE].concat(), svg::SCRIPT, body)
}

fn report(report: &ReclaimReport) -> Markup {
    let source = &report.source;
    let mut about = figures::machine(source);
    about.push(format!("{}: {} events in {:.2} s", source.format, count(source.events), source.duration_s));
    let result = report.result.as_ref().map(|result| {
        let about = format!("{}; exit status {}", figures::runs(result.exits.len()), result.exits.join(", "));
        section("Command", &about, tables::result(result))
    });
    html! {
        h1 { (report.label) }
        (facts(about))
        @if !source.machine.command.is_empty() { code.command { (source.machine.command.join(" ")) } }
        @for warning in &report.warnings { div.warning { (warning) } }
        (summary(report))
        (timeline(&report.timeline))
        (columns(report.stalls.iter().map(stalls).chain(result)))
        @for of in &report.sections { (section(of.title, "", tables::section(of))) }
        @for of in &report.tables {
            (section(of.title, of.about, html! {
                (tables::data(of))
                @if of.omitted_rows > 0 { p.about { "and " (of.omitted_rows) " more" } }
            }))
        }
        (columns([
            section(
                "Checked against the kernel's counters",
                if report.checks.is_empty() { "The trace does not hold them." } else { "" },
                tables::checks(&report.checks),
            ),
            section("Missing", "", lost(&report.lost)),
        ]))
    }
}

/// The figures to read first.
fn summary(report: &ReclaimReport) -> Markup {
    let mean = |name: &str| report.rows().find(|row| row.name == name).and_then(|row| row.mean());
    let time = |ms: f64| microseconds((ms * 1e3) as u64);
    let mut figures = Vec::new();
    for class in &report.stalls {
        let longest = class.percentiles_ms.last().map_or(0.0, |&(_, longest)| longest);
        let tone =
            if class.reclaimer == Reclaimer::Direct && longest >= 100.0 { Tone::Bad } else { Tone::Plain };
        let stalled = format!("stalled, {} ({} times)", class.name, count(class.count));
        figures.push((Tone::Plain, time(class.total_ms), stalled));
        figures.push((tone, time(longest), format!("longest stall, {}", class.name)));
    }
    if figures.is_empty() {
        figures.push((Tone::Good, "none".into(), "tasks stalled in reclaim".into()));
    }
    for (row, decimals, name) in [
        ("Percentage time in direct reclaim", 2, "of CPU and stall time in direct reclaim"),
        ("Percentage time kswapd awake", 1, "of the time kswapd awake"),
    ] {
        if let Some(percent) = mean(row).filter(|&percent| percent > 0.0) {
            figures.push((Tone::Plain, format!("{percent:.decimals$} %"), name.into()));
        }
    }
    let differs = report.checks.iter().filter(|check| check.verdict == Verdict::Differs).count();
    let checks = report.checks.len();
    match (checks, differs) {
        (0, _) => {}
        (_, 0) => figures.push((
            Tone::Good,
            "agrees".into(),
            format!("with the kernel's counters, {checks} of {checks}"),
        )),
        _ => figures.push((
            Tone::Bad,
            "differs".into(),
            format!("from the kernel's counters in {differs} of {checks}"),
        )),
    }
    if report.lost.any() {
        let lost = report.lost.events.max(report.lost.counted_by_kernel);
        figures.push((Tone::Bad, count(lost), "events lost".into()));
    }
    tiles(figures)
}

fn timeline(timeline: &TimelineReport) -> Markup {
    // Drawn in this order: the most important comes last, and in front.
    let tasks = [
        ("kswapds awake", KSWAPD, &timeline.kswapd),
        ("tasks in reclaim from memory cgroups and nodes", MEMCG, &timeline.memcg),
        ("tasks in direct reclaim", DIRECT, &timeline.direct),
        ("tasks throttled in reclaim", THROTTLED, &timeline.throttled),
    ];
    let speed = [
        ("MiB/s reclaimed by tasks", MEMCG, &timeline.task_mib_s),
        ("MiB/s reclaimed by kswapd", KSWAPD, &timeline.kswapd_mib_s),
    ];
    let about = "How many at a time, on average over each slice. Shaded: runs of the command.";
    html! {
        (chart(timeline, "Tasks in reclaim", about, &tasks, 230.0))
        (chart(timeline, "Memory reclaimed", "In 4 KiB pages.", &speed, 170.0))
    }
}

fn chart(
    timeline: &TimelineReport,
    title: &str,
    about: &str,
    lines: &[(&str, &str, &Vec<f64>)],
    height: f64,
) -> Markup {
    let slice = timeline.slice_s;
    let shown = lines.iter().filter(|(_, _, values)| values.iter().any(|&value| value > 0.0));
    let series: Vec<Series<'_>> = shown
        .map(|(name, color, values)| Series {
            name: (*name).to_owned(),
            color: Some(color),
            line: Line::Filled,
            points: values
                .iter()
                .enumerate()
                .map(|(at, &value)| ((at as f64 + 0.5) * slice, value))
                .collect(),
        })
        .collect();
    if series.is_empty() {
        return html! {};
    }
    let axis = |label| Axis { title: "", logarithmic: false, label };
    let chart = Chart {
        title,
        x: axis(|seconds| format!("{} s", tick(seconds))),
        y: axis(tick),
        series,
        shaded: &timeline.runs,
    };
    section(title, about, chart.figure(height, slice))
}

/// A number without zeros at its end.
fn tick(number: f64) -> String {
    let text = significant(number);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

fn stalls(stalls: &Stalls) -> Markup {
    let bars: Vec<Bar> = stalls
        .histogram
        .iter()
        .map(|bucket| {
            let (from, to) = (microseconds(bucket.from_us), microseconds(bucket.to_us + 1));
            let title = format!("{from} to {to}: {}", count(bucket.count));
            Bar { count: bucket.count, from: short(bucket.from_us), title }
        })
        .collect();
    let end = stalls.histogram.last().map_or(String::new(), |bucket| short(bucket.to_us + 1));
    let color = if stalls.reclaimer == Reclaimer::Direct { DIRECT } else { MEMCG };
    let body = html! {
        div.percentiles {
            @for (name, ms) in tables::percentiles(stalls) { div { span { (name) } (ms) " ms" } }
        }
        @if !bars.is_empty() { (svg::histogram(&bars, &end, color, "duration")) }
    };
    section(&format!("Stalls, {}", stalls.name), &tables::total(stalls), body)
}

/// A power of two of microseconds in a few letters: `512µs`, `8ms`, `1s`.
fn short(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}µs"),
        1_000..1_000_000 => format!("{}ms", us / 1_024),
        _ => format!("{:.0}s", us as f64 / 1e6),
    }
}

fn lost(lost: &LostReport) -> Table {
    let mut table = Table::new([""; 0]);
    table.rows(tables::lost(lost).map(|(name, value)| [name.to_owned(), count(value)]));
    table
}
