//! What a command says at its end: a text for people, or JSON.

use anyhow::Context;
use serde::Serialize;

/// The report and what only this program knows.
#[derive(Serialize)]
struct Printed<'a, R> {
    #[serde(flatten)]
    report: &'a R,
    /// Bytes of anonymous memory in use at most, sampled.
    #[serde(skip_serializing_if = "Option::is_none")]
    peak_anonymous_bytes: Option<u64>,
}

/// Where a report goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Manner {
    pub(crate) json: bool,
    pub(crate) quiet: bool,
    /// Standard output is taken by what was made.
    pub(crate) output_taken: bool,
}

/// Prints `report` as `manner` asks; `render` makes the text for people.
pub(crate) fn print<R: Serialize>(
    report: &R,
    peak: Option<u64>,
    manner: Manner,
    render: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    if manner.json {
        let printed = Printed { report, peak_anonymous_bytes: peak };
        println!("{}", serde_json::to_string_pretty(&printed).context("cannot make the report")?);
    } else if !manner.quiet {
        let text = render();
        if manner.output_taken {
            eprint!("{text}");
        } else {
            print!("{text}");
        }
    }
    Ok(())
}
