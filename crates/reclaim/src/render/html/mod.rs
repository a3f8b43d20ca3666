//! Reports as one self-contained web page: no network, light and dark.

mod chart;
mod compare;
mod parts;
mod report;

use std::fmt::Write;

use crate::report::{Comparison, Report};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("page.js");

/// A page of one report or several.
pub fn report_page(reports: &[Report]) -> String {
    let title = reports.first().map_or("reclaim", |report| report.label.as_str());
    page(&format!("{title}: page reclaim"), |out| {
        for (at, report) in reports.iter().enumerate() {
            if at > 0 {
                out.write_str("<hr>")?;
            }
            report::write(out, report)?;
        }
        Ok(())
    })
}

/// A page of a comparison, and the charts of its columns.
pub fn comparison_page(comparison: &Comparison, reports: &[Report]) -> String {
    let labels: Vec<&str> = comparison.columns.iter().map(|column| column.label.as_str()).collect();
    page(&format!("{}: page reclaim compared", labels.join(", ")), |out| {
        compare::write(out, comparison, reports)
    })
}

fn page(title: &str, body: impl FnOnce(&mut String) -> std::fmt::Result) -> String {
    let mut out = String::with_capacity(64 << 10);
    // Writing to a string cannot fail.
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n",
        escape(title)
    );
    let _ = body(&mut out);
    let _ = write!(
        out,
        "<footer>Made by pagehaul {}. How each figure is computed: docs/reclaim.md.</footer>\n</main>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    );
    out
}

/// Text that stays text in a page: names come from recordings of others.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_become_markup() {
        assert_eq!(escape("<b a='x' b=\"y\"> & co"), "&lt;b a=&#39;x&#39; b=&quot;y&quot;&gt; &amp; co");
    }
}
