//! The report as a web page.

use std::collections::BTreeSet;

use maud::{Markup, html};
use pagehaul_present::html::{columns, facts, page as build, section, tiles};
use pagehaul_present::svg::{self, Bar, COLORS};
use pagehaul_present::{Cell, Table, Tone, number};

use super::group::Group;
use super::summary::Report;
use super::text;

const DAY: i64 = 86_400;
/// Periods of the charts, at most.
const MAX_PERIODS: i64 = 26;
/// Crashes of a signature that are listed, at most.
const MAX_CRASHES: usize = 50;
/// Wide tables: no column is out of sight on a page of 1,400 pixels. Text takes more lines instead.
const STYLE: &str = "
main { max-width: 1900px; }
th, td { padding: 4px 5px; } th { white-space: normal; vertical-align: bottom; }
td.text, td:first-child { white-space: normal; overflow-wrap: anywhere; min-width: 9ch; max-width: none; }
td .heat { min-width: 0; padding: 0 3px; }
td a { white-space: nowrap; } h3 { font-size: 14px; margin: 16px 0 2px; }
";
/// How the cells of a chart get darker.
const HEAT: &str = "#0072b2";

/// Builds the page.
pub(crate) fn page(report: &Report, top: usize) -> String {
    let periods = Periods::of(report);
    let hardware = report.repeated.iter().filter(|host| host.hardware).count();
    let tile = |tone, count: usize, name: &str| (tone, number::count(count as u64), name.to_owned());
    let body = html! {
        h1 { "Crashes of a fleet" }
        (facts([text::heading(report)]))
        (tiles([
            tile(Tone::Plain, report.crashes, "crashes"),
            tile(Tone::Plain, report.signatures.len(), if report.since.is_some() { "new signatures" } else { "signatures" }),
            tile(Tone::Plain, report.hosts, "hosts"),
            tile(if hardware > 0 { Tone::Bad } else { Tone::Plain }, hardware, "hosts with suspicious hardware"),
        ]))
        (columns([
            section("Crashes over time", &periods.as_ref().map_or_else(String::new, Periods::about), html! {
                @if let Some(periods) = &periods { (periods.histogram(&report.signatures)) }
            }),
            section("Kernels", "\"first here\" counts signatures that no older kernel has.", text::kernels(report, top)),
        ]))
        (section("Signatures",
            "Medians of the machines at death: free pages (of all, also those that the kernel reserves), tasks in state D. \"below min\" counts crashes with a zone below its min \
             watermark.",
            text::signatures(&report.signatures, top)))
        @if let Some(periods) = &periods {
            (section("Signatures over time", &periods.about(), periods.heat(&report.signatures, top)))
        }
        @if let Some(comparison) = &report.comparison {
            (section("Kernels compared", &text::about(comparison), text::changes(comparison, top)))
            @if !comparison.left_out.is_empty() {
                (section("Left out of the comparison", "", text::left_out(comparison, top)))
            }
        }
        @if let Some(rates) = &report.rates {
            (section("Crashes per 1,000 machine-hours",
                &format!("{}. Intervals are exact, of 95 %.", text::about_rates(rates)), text::rates(rates, top)))
            @if !rates.concentrated.is_empty() {
                (section("More in one group than in the rest", "By more than chance, corrected for the number of pairs.",
                    text::concentrated(rates, top)))
            }
            @if !rates.without_hours.is_empty() {
                (section("Not counted", "Crashes of machines without machine-hours.", text::without_hours(rates, top)))
            }
        }
        @if !report.regressions.is_empty() {
            (section("Fixed, and back", "Crashes of kernels that have the fix.", text::regressions(report, top)))
        }
        @if !report.perhaps_same.is_empty() {
            (section("Perhaps the same", "Signatures that may be of one bug: decide, and write it to the file of bugs.",
                text::perhaps_same(report, top)))
        }
        (bugs(&report.signatures, top))
        @if !report.repeated.is_empty() {
            (section("Hosts with several crashes",
                "Different signatures on one host, or one that no other host has, point to its hardware.", text::hosts(report, top)))
        }
        (memory(&report.signatures, top))
        (crashes(&report.signatures, top))
        @if !text::notes(report, top).is_empty() {
            (section("Notes", "", html! { @for note in text::notes(report, top) { p { (note) } } }))
        }
        @if !report.unreadable.is_empty() {
            (section("Unreadable files", "", html! { @for why in &report.unreadable { p { (why) } } }))
        }
    };
    build("Crashes of a fleet", &format!("{}{STYLE}", svg::STYLE), "", &body)
}

/// The crashes of each signature, to which the table of signatures leads.
fn crashes(groups: &[Group], top: usize) -> Markup {
    let list = |group: &Group| {
        let more = group.members.len().saturating_sub(MAX_CRASHES);
        html! {
            h3 id=(text::place(group)) { (group.title) " " code { (group.sig) } }
            (text::crashes(group, MAX_CRASHES))
            @if more > 0 {
                p.about { "and " (number::count(more as u64)) " older: pagehaul-fleet sql TABLES \"SELECT * FROM dumps WHERE sig = '"
                    (group.sig) "'\"" }
            }
        }
    };
    html! {
        @if !groups.is_empty() {
            (section("Crashes", "The newest of each signature, and the dumps that the manifest knows.",
                html! { @for group in groups.iter().take(top) { (list(group)) } }))
        }
    }
}

/// Bugs with crashes. Only links to web pages become links.
fn bugs(groups: &[Group], top: usize) -> Markup {
    let known: Vec<_> =
        groups.iter().filter_map(|group| Some((group, group.bug.as_ref()?))).take(top).collect();
    let is_web = |link: &str| link.starts_with("https://") || link.starts_with("http://");
    html! {
        @if !known.is_empty() {
            (section("Bugs", "", html! {
                @for (group, bug) in &known {
                    p {
                        @match &bug.link {
                            Some(link) if is_web(link) => { a href=(link) { (bug.id) } },
                            _ => { (bug.id) },
                        }
                        ": " (group.title) ", " (bug.state) ", " (number::counted(group.signatures.len() as u64, "signature"))
                    }
                }
            }))
        }
    }
}

/// Memory at death: percentages by signature and page class.
fn memory(groups: &[Group], top: usize) -> Markup {
    let known: Vec<&Group> = groups.iter().filter(|group| group.at_death.crashes > 0).take(top).collect();
    let classes: BTreeSet<&String> = known.iter().flat_map(|group| group.at_death.classes.keys()).collect();
    let mut table =
        Table::new(std::iter::once("signature").chain(classes.iter().map(|class| class.as_str())));
    for group in &known {
        let share = |class: &&String| {
            let percent = group.at_death.classes.get(*class).copied().unwrap_or(0.0);
            heat(format!("{percent:.1}"), percent / 100.0)
        };
        table.row(std::iter::once(Cell::from(group.title.as_str())).chain(classes.iter().map(share)));
    }
    html! {
        @if !known.is_empty() {
            (section("Memory at death", "Median percentage of memory by page class.", table))
        }
    }
}

fn heat(text: String, share: f64) -> Cell {
    let background = format!("color-mix(in srgb, {HEAT} {:.0}%, transparent)", share.clamp(0.0, 1.0) * 60.0);
    Cell { background: (share > 0.0).then_some(background), ..Cell::from(text) }
}

/// Equal parts of the time from the first to the last crash.
struct Periods {
    /// Seconds since 1970 at midnight.
    start: i64,
    days: i64,
    count: usize,
}

impl Periods {
    fn of(report: &Report) -> Option<Self> {
        let first = report.signatures.iter().filter_map(|group| group.first_seen).min()?;
        let last = report.signatures.iter().filter_map(|group| group.last_seen).max()?;
        let start = first.div_euclid(DAY) * DAY;
        let days = (last - start) / DAY + 1;
        let length = [1, 7, 30, 91].into_iter().find(|length| days <= MAX_PERIODS * length);
        let length = length.unwrap_or(days / MAX_PERIODS + 1);
        Some(Self { start, days: length, count: (days.saturating_sub(1) / length + 1) as usize })
    }

    fn about(&self) -> String {
        match self.days {
            1 => "By day, UTC.".to_owned(),
            days => format!("By {days} days, UTC."),
        }
    }

    fn name(&self, at: usize) -> String {
        let seconds = self.start + at as i64 * self.days * DAY;
        let time = jiff::Timestamp::from_second(seconds).map(|time| time.strftime("%m-%d").to_string());
        time.unwrap_or_default()
    }

    fn counts<'a>(&self, groups: impl Iterator<Item = &'a Group>) -> Vec<u64> {
        let mut counts = vec![0; self.count];
        for time in groups.flat_map(|group| &group.times) {
            if let Some(count) = counts.get_mut(((time - self.start) / (self.days * DAY)) as usize) {
                *count += 1;
            }
        }
        counts
    }

    fn histogram(&self, groups: &[Group]) -> Markup {
        let bar = |(at, count)| {
            let from = self.name(at);
            Bar { title: format!("{from}: {}", number::count(count)), from, count }
        };
        let bars: Vec<Bar> = self.counts(groups.iter()).into_iter().enumerate().map(bar).collect();
        svg::histogram(&bars, &self.name(self.count), COLORS[0], "first day")
    }

    /// Signatures by period.
    fn heat(&self, groups: &[Group], top: usize) -> Table {
        let mut table =
            Table::new(std::iter::once(String::new()).chain((0..self.count).map(|at| self.name(at))));
        let rows: Vec<(&Group, Vec<u64>)> =
            groups.iter().take(top).map(|group| (group, self.counts(std::iter::once(group)))).collect();
        let most = rows.iter().flat_map(|(_, counts)| counts).copied().max().unwrap_or(0).max(1);
        for (group, counts) in rows {
            let cell = |count: u64| {
                let text = if count == 0 { String::new() } else { count.to_string() };
                heat(text, count as f64 / most as f64)
            };
            table.row(std::iter::once(Cell::from(group.title.as_str())).chain(counts.into_iter().map(cell)));
        }
        table
    }
}
