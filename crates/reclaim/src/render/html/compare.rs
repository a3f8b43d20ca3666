//! A comparison.

use std::fmt::{Result, Write};

use super::{escape, report};
use crate::render::numbers::{figure, number};
use crate::report::{Better, Change, Comparison, ComparisonRow, Report};

pub(super) fn write(out: &mut String, comparison: &Comparison, reports: &[Report]) -> Result {
    let labels: Vec<String> = comparison.columns.iter().map(|column| escape(&column.label)).collect();
    writeln!(out, "<h1>{}</h1><div class=\"chips\">", labels.join(" · "))?;
    for column in &comparison.columns {
        let release = column.release.as_deref().unwrap_or("kernel unknown");
        let runs = if column.runs == 1 { "1 run".to_owned() } else { format!("{} runs", column.runs) };
        write!(out, "<span><b>{}</b>: {}, {runs}</span>", escape(&column.label), escape(release))?;
    }
    out.write_str("</div>")?;
    let several = comparison.columns.iter().all(|column| column.runs > 1);
    let how = if several {
        "Changes are of means against the first column. In brackets: the interval that holds the true difference with 95 % \
         confidence (Welch). Coloured where zero is not in it; ~ where the runs do not tell."
    } else {
        "Changes are against the first column. Single runs do not tell whether a change is real: record with --repeat."
    };
    writeln!(out, "<p class=\"about\">{how}</p>")?;
    for column in comparison.columns.iter().filter(|column| column.lost) {
        writeln!(
            out,
            "<div class=\"remark\">{}: events were lost; its figures are lower bounds</div>",
            escape(&column.label)
        )?;
    }
    for section in &comparison.sections {
        write!(
            out,
            "<section><h2>{}</h2><div class=\"scroll\"><table><thead><tr><th></th>",
            escape(&section.title)
        )?;
        for label in &labels {
            write!(out, "<th class=\"n\">{label}</th><th></th>")?;
        }
        out.write_str("</tr></thead><tbody>")?;
        for row in &section.rows {
            write!(out, "<tr><td>{}</td>", escape(&row.name))?;
            for (at, change) in row.changes.iter().enumerate() {
                cell(out, row, change, at == 0)?;
            }
            out.write_str("</tr>")?;
        }
        writeln!(out, "</tbody></table></div></section>")?;
    }
    for of in reports {
        writeln!(out, "<h1>{}</h1>", escape(&of.label))?;
        report::timeline(out, &of.timeline)?;
        out.write_str("<div class=\"pair\">")?;
        of.stalls.iter().try_for_each(|class| report::stalls(out, class))?;
        writeln!(out, "</div>")?;
    }
    Ok(())
}

fn cell(out: &mut String, row: &ComparisonRow, change: &Change, first: bool) -> Result {
    let Some(summary) = change.summary else {
        let why = escape(change.note.as_deref().unwrap_or_default());
        return write!(out, "<td class=\"n none\" title=\"{why}\">n/a</td><td></td>");
    };
    write!(out, "<td class=\"n\">{}</td><td>", figure(summary.mean, row.unit))?;
    if first {
        return out.write_str("</td>");
    }
    let percent = change.percent.map_or_else(|| "new".to_owned(), |percent| format!("{percent:+.2}%"));
    let difference = change.difference.filter(|difference| difference.difference != 0.0);
    let class = match (difference, row.better) {
        (Some(difference), Better::Lower | Better::Higher) if difference.real => {
            if (difference.difference < 0.0) == (row.better == Better::Lower) { "good" } else { "bad" }
        }
        _ => "soft",
    };
    write!(out, "<span class=\"mark {class}\">{percent}</span>")?;
    if let Some(difference) = difference {
        let doubt = if difference.real { "" } else { "~ " };
        write!(
            out,
            "<span class=\"interval\">{doubt}[{}, {}]</span>",
            number(difference.low),
            number(difference.high)
        )?;
    }
    out.write_str("</td>")
}
