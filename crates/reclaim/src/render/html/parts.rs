//! Pieces of pages.

use std::fmt::{Result, Write};

use super::escape;
use crate::render::numbers::{count, datum, figure, number};
use crate::report::{Check, Datum, LostReport, Section, Table, Verdict};
use crate::stats::Summary;

pub(super) fn tile(out: &mut String, class: &str, value: &str, name: &str) -> Result {
    writeln!(out, "<div class=\"tile {class}\"><b>{}</b><span>{}</span></div>", escape(value), escape(name))
}

pub(super) fn table(out: &mut String, table: &Table) -> Result {
    write!(out, "<section><h2>{}</h2><p class=\"about\">{}</p>", table.title, table.about)?;
    out.write_str("<div class=\"scroll\"><table><thead><tr>")?;
    for column in &table.columns {
        write!(out, "<th{}>{}</th>", if column.number { " class=\"n\"" } else { "" }, column.name)?;
    }
    out.write_str("</tr></thead><tbody>")?;
    for row in &table.rows {
        out.write_str("<tr>")?;
        for (cell, column) in row.iter().zip(&table.columns) {
            let class = match (column.number, cell) {
                (true, Datum::None) => " class=\"n none\"",
                (true, _) => " class=\"n\"",
                _ => "",
            };
            write!(out, "<td{class}>{}</td>", escape(&datum(cell)))?;
        }
        out.write_str("</tr>")?;
    }
    out.write_str("</tbody></table></div>")?;
    if table.left_out > 0 {
        write!(out, "<p class=\"about\">and {} more</p>", table.left_out)?;
    }
    writeln!(out, "</section>")
}

pub(super) fn section(out: &mut String, section: &Section) -> Result {
    let spread = section.rows.iter().any(|row| row.values.len() > 1);
    write!(out, "<section><h2>{}</h2><div class=\"scroll\"><table>", section.title)?;
    if spread {
        out.write_str("<thead><tr><th></th><th class=\"n\">mean</th><th class=\"n\">stddev</th><th class=\"n\">min</th><th class=\"n\">max</th><th></th></tr></thead>")?;
    }
    out.write_str("<tbody>")?;
    for row in &section.rows {
        write!(out, "<tr><td>{}</td>", escape(&row.name))?;
        match Summary::of(&row.values) {
            Some(Summary { mean, stddev, min, max, .. }) => {
                write!(out, "<td class=\"n\">{}</td>", figure(mean, row.unit))?;
                if spread {
                    let cells = [number(stddev), figure(min, row.unit), figure(max, row.unit)];
                    cells.iter().try_for_each(|cell| write!(out, "<td class=\"n\">{cell}</td>"))?;
                }
            }
            None => {
                out.write_str("<td class=\"n none\">n/a</td>")?;
                if spread {
                    out.write_str("<td></td><td></td><td></td>")?;
                }
            }
        }
        write!(out, "<td class=\"note\">{}</td></tr>", escape(row.note.as_deref().unwrap_or_default()))?;
    }
    writeln!(out, "</tbody></table></div></section>")
}

pub(super) fn checks(out: &mut String, checks: &[Check]) -> Result {
    out.write_str("<section><h2>Checked against the kernel's counters</h2>")?;
    if checks.is_empty() {
        return writeln!(out, "<p class=\"about\">The trace does not hold them.</p></section>");
    }
    out.write_str("<div class=\"scroll\"><table><thead><tr><th></th><th class=\"n\">trace</th><th class=\"n\">counted</th><th></th><th>by</th></tr></thead><tbody>")?;
    for check in checks {
        let (class, word) = match check.verdict {
            Verdict::Equal => ("good", "agrees"),
            Verdict::Close => ("soft", "close"),
            Verdict::Differs => ("bad", "differs"),
        };
        let note = check.note.filter(|_| check.verdict != Verdict::Equal);
        let note = note.map_or(String::new(), |note| format!(": {note}"));
        write!(
            out,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"verdict {class}\">{word}</td><td class=\"note\">{}{note}</td></tr>",
            escape(check.what),
            number(check.trace),
            number(check.counted),
            escape(&check.counters)
        )?;
    }
    writeln!(out, "</tbody></table></div></section>")
}

pub(super) fn lost(out: &mut String, lost: &LostReport) -> Result {
    let rows = [
        ("events missing in the buffers", lost.events),
        ("events the kernel counted as lost", lost.counted_by_kernel),
        ("gaps of unknown length", lost.gaps),
        ("damaged parts of the file", lost.damaged),
        ("events of unknown kinds", lost.unknown_events),
        ("unfinished stretches", lost.unfinished),
        ("begins or ends without the other", lost.unmatched),
        ("stretches with lost events inside", lost.uncertain),
    ];
    out.write_str("<section><h2>What is missing</h2><table><tbody>")?;
    for (name, value) in rows {
        write!(out, "<tr><td>{name}</td><td class=\"n\">{}</td></tr>", count(value))?;
    }
    writeln!(out, "</tbody></table></section>")
}
