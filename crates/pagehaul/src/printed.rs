//! Output of commands: text or JSON.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::io::{self, BufWriter, Write};

use anyhow::{Context, bail};
use pagehaul_present::{printable, printable_json, printable_lines};
use serde::Serialize;

use crate::{pager, standard_output};

/// The reader of standard output closed it: `| head`.
#[derive(Debug)]
pub(crate) struct Closed;

impl Display for Closed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("standard output was closed")
    }
}

impl std::error::Error for Closed {}

/// Escapes text before it reaches a terminal.
struct Escaped<W> {
    out: W,
    escape: fn(&str) -> Cow<'_, str>,
}

impl<W: Write> Write for Escaped<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write_all((self.escape)(&String::from_utf8_lossy(bytes)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes text to standard output. The print macros panic where it cannot be written to.
pub(crate) fn out(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    escaped(printable_lines, write)
}

fn escaped(
    escape: fn(&str) -> Cow<'_, str>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> anyhow::Result<()> {
    if standard_output::is_closed() {
        bail!("standard output is closed; redirect it");
    }
    pager::begin();
    let mut out = Escaped { out: BufWriter::new(io::stdout().lock()), escape };
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
        written => written.context("cannot write to standard output"),
    }
}

/// Writes a line to standard error, if that can be written to.
pub(crate) fn tell(text: fmt::Arguments<'_>) {
    tell_printable(&printable(&text.to_string()));
}

/// Writes lines to standard error, if that can be written to.
pub(crate) fn tell_lines(text: &str) {
    tell_printable(&printable_lines(text));
}

fn tell_printable(text: &str) {
    // The pager has the screen.
    if !pager::keep(text) {
        let _ = writeln!(io::stderr(), "{text}");
    }
}

/// Writes a line to standard output.
pub(crate) fn line(text: impl Display) -> anyhow::Result<()> {
    out(|out| writeln!(out, "{text}"))
}

/// Writes text that has its own ends of lines.
pub(crate) fn text(text: &str) -> anyhow::Result<()> {
    out(|out| out.write_all(text.as_bytes()))
}

/// Writes a report for people. On a terminal its lines are broken between words, and it has colours.
pub(crate) fn report(report: &str) -> anyhow::Result<()> {
    let width = standard_output::terminal_width();
    if standard_output::takes_colours() {
        let painted = pagehaul_present::paint(&printable_lines(report), width);
        return escaped(|text| Cow::Borrowed(text), |out| out.write_all(painted.as_bytes()));
    }
    match width {
        Some(width) => text(&pagehaul_present::wrap(report, width)),
        None => text(report),
    }
}

/// Writes JSON, for people to read as well.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    escaped(printable_json, |out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        writeln!(out)
    })
}

/// Writes JSON as a line.
#[cfg(any(feature = "census", feature = "stalls"))]
pub(crate) fn json_line(value: &impl Serialize) -> anyhow::Result<()> {
    escaped(printable_json, |out| {
        serde_json::to_writer(&mut *out, value)?;
        writeln!(out)
    })
}

/// A reader that has seen enough is not an error, for commands whose exit status has more to say.
pub(crate) fn unless_closed(written: anyhow::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.is::<Closed>() => Ok(()),
        written => written,
    }
}

/// The report with figures of this process.
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

/// Prints `report` as `manner` asks; `render` makes the text for people. The output exists by
/// then, so a failure to print is reported and does not change the exit status.
pub(crate) fn print<R: Serialize>(
    report: &R,
    peak: Option<u64>,
    manner: Manner,
    render: impl FnOnce() -> String,
) {
    let printed = if manner.json {
        json(&Printed { report, peak_anonymous_bytes: peak })
    } else if manner.quiet {
        Ok(())
    } else if manner.output_taken {
        tell_lines(render().trim_end());
        Ok(())
    } else {
        text(&render())
    };
    if let Err(error) = unless_closed(printed) {
        tell!("pagehaul: the report is lost: {}", pagehaul_present::sentence(error.chain()));
    }
}
