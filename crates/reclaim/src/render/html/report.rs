//! One report.

use std::fmt::{Result, Write};

use super::chart::{self, Series};
use super::{escape, parts};
use crate::model::Class;
use crate::render::numbers::{count, number};
use crate::report::{CommandResult, Report, StallClass, TimelineReport, Verdict};
use crate::stats::Summary;

pub(super) fn write(out: &mut String, report: &Report) -> Result {
    head(out, report)?;
    tiles(out, report)?;
    timeline(out, &report.timeline)?;
    out.write_str("<div class=\"pair\">")?;
    report.stalls.iter().try_for_each(|class| stalls(out, class))?;
    if let Some(result) = &report.result {
        self::result(out, result)?;
    }
    out.write_str("</div>")?;
    report.sections.iter().try_for_each(|section| parts::section(out, section))?;
    report.tables.iter().try_for_each(|table| parts::table(out, table))?;
    out.write_str("<div class=\"pair\">")?;
    parts::checks(out, &report.checks)?;
    parts::lost(out, &report.lost)?;
    out.write_str("</div>")
}

fn head(out: &mut String, report: &Report) -> Result {
    let source = &report.source;
    writeln!(out, "<h1>{}</h1><div class=\"chips\">", escape(&report.label))?;
    let mut chips = Vec::new();
    chips.extend(source.release.as_ref().map(|release| format!("Linux {release}")));
    chips.extend(source.hostname.clone());
    chips.extend(source.machine.clone());
    chips.extend(source.cpus.map(|cpus| format!("{cpus} CPUs")));
    chips.extend(
        source.mglru.map(|mglru| if mglru { "MGLRU".into() } else { "active and inactive lists".into() }),
    );
    chips.push(format!("{}: {} events in {:.2} s", source.format, count(source.events), source.duration_s));
    chips.iter().try_for_each(|chip| write!(out, "<span>{}</span>", escape(chip)))?;
    out.write_str("</div>")?;
    if !source.command.is_empty() {
        writeln!(out, "<code class=\"command\">{}</code>", escape(&source.command.join(" ")))?;
    }
    report
        .remarks
        .iter()
        .try_for_each(|remark| writeln!(out, "<div class=\"remark\">{}</div>", escape(remark)))
}

/// The figures to look at first.
fn tiles(out: &mut String, report: &Report) -> Result {
    let row = |name: &str| {
        let rows = report.sections.iter().flat_map(|section| &section.rows);
        rows.into_iter().find(|row| row.name == name).and_then(|row| row.mean())
    };
    out.write_str("<div class=\"tiles\">")?;
    let ms = |ms: f64| {
        if ms >= 1000.0 { format!("{} s", number(ms / 1000.0)) } else { format!("{} ms", number(ms)) }
    };
    let mut any = false;
    for class in &report.stalls {
        any = true;
        let worst = class.percentiles_ms.last().map_or(0.0, |&(_, worst)| worst);
        let alarm = if class.class == Class::Direct && worst >= 100.0 { "bad" } else { "" };
        parts::tile(
            out,
            "",
            &ms(class.total_ms),
            &format!("stalled, {} ({} times)", class.name, count(class.count)),
        )?;
        parts::tile(out, alarm, &ms(worst), &format!("longest stall, {}", class.name))?;
    }
    if !any {
        parts::tile(out, "good", "none", "tasks stalled in reclaim")?;
    }
    if let Some(percent) = row("Percentage time in direct reclaim").filter(|&percent| percent > 0.0) {
        parts::tile(out, "", &format!("{percent:.2} %"), "of CPU and stall time in direct reclaim")?;
    }
    if let Some(percent) = row("Percentage time kswapd awake").filter(|&percent| percent > 0.0) {
        parts::tile(out, "", &format!("{percent:.1} %"), "of the time kswapd awake")?;
    }
    let differs = report.checks.iter().filter(|check| check.verdict == Verdict::Differs).count();
    let checks = report.checks.len();
    match (checks, differs) {
        (0, _) => {}
        (_, 0) => {
            parts::tile(out, "good", "agrees", &format!("with the kernel's counters, {checks} of {checks}"))?
        }
        _ => parts::tile(
            out,
            "bad",
            "differs",
            &format!("from the kernel's counters in {differs} of {checks}"),
        )?,
    }
    if report.lost.any() {
        let lost = report.lost.events.max(report.lost.counted_by_kernel);
        parts::tile(out, "bad", &count(lost), "events lost")?;
    }
    writeln!(out, "</div>")
}

pub(super) fn timeline(out: &mut String, timeline: &TimelineReport) -> Result {
    // Drawn in this order: what matters most comes last, and in front.
    let waiting = [
        Series { name: "kswapds awake", class: "kswapd", values: &timeline.kswapd },
        Series {
            name: "tasks in reclaim of control groups and nodes",
            class: "memcg",
            values: &timeline.memcg,
        },
        Series { name: "tasks in direct reclaim", class: "direct", values: &timeline.direct },
        Series { name: "tasks throttled in reclaim", class: "throttled", values: &timeline.throttled },
    ];
    let speed = [
        Series { name: "MiB/s reclaimed by tasks", class: "memcg", values: &timeline.task_mib_s },
        Series { name: "MiB/s reclaimed by kswapd", class: "kswapd", values: &timeline.kswapd_mib_s },
    ];
    let (slice, runs) = (timeline.slice_s, &timeline.runs);
    for (title, about, series, height) in [
        (
            "Who waited, and when",
            "How many at a time, on average over each slice. Shaded: runs of the command.",
            &waiting[..],
            230.0,
        ),
        ("Memory reclaimed", "In 4 KiB pages.", &speed[..], 170.0),
    ] {
        if series.iter().all(|one| one.values.iter().all(|&value| value == 0.0)) {
            continue;
        }
        write!(out, "<section><h2>{title}</h2><p class=\"about\">{about}</p>")?;
        chart::timeline(out, series, slice, runs, height)?;
        writeln!(out, "</section>")?;
    }
    Ok(())
}

pub(super) fn stalls(out: &mut String, class: &StallClass) -> Result {
    write!(out, "<section><h2>Stalls, {}</h2>", class.name)?;
    write!(
        out,
        "<p class=\"about\">{} stretches of reclaim, {} ms together</p>",
        count(class.count),
        number(class.total_ms)
    )?;
    out.write_str("<div class=\"percentiles\">")?;
    for &(percent, ms) in &class.percentiles_ms {
        let name = if percent >= 100.0 { "max".to_owned() } else { format!("p{percent}") };
        write!(out, "<div><span>{name}</span>{} ms</div>", number(ms))?;
    }
    out.write_str("</div>")?;
    chart::histogram(out, &class.histogram, if class.class == Class::Direct { "direct" } else { "memcg" })?;
    writeln!(out, "</section>")
}

fn result(out: &mut String, result: &CommandResult) -> Result {
    let runs = result.exits.len();
    write!(
        out,
        "<section><h2>The command's own result</h2><p class=\"about\">{runs} {}; exit status {}</p>",
        if runs == 1 { "run" } else { "runs" },
        escape(&result.exits.join(", "))
    )?;
    out.write_str("<table><thead><tr><th></th><th class=\"n\">min</th><th class=\"n\">mean</th><th class=\"n\">stddev</th><th class=\"n\">max</th></tr></thead><tbody>")?;
    for (name, values) in result.figures() {
        let Some(Summary { mean, stddev, min, max, .. }) = Summary::of(values) else { continue };
        write!(
            out,
            "<tr><td>{name}</td><td class=\"n\">{min:.2}</td><td class=\"n\">{mean:.2}</td><td class=\"n\">{stddev:.2}</td><td class=\"n\">{max:.2}</td></tr>"
        )?;
    }
    writeln!(out, "</tbody></table></section>")
}
