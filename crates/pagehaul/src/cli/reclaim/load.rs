//! Reads recordings into reports.

use std::path::Path;

use anyhow::{Result, bail};
use pagehaul_reclaim::{Report, analyse};
use pagehaul_trace::TraceFile;

/// The report of one file.
pub(super) fn report(path: &Path, label: &str) -> Result<Report> {
    let mut recording = TraceFile::open(path)?;
    Ok(analyse(&mut recording, &path.display().to_string(), label)?)
}

/// The report of a column: `[NAME=]FILE[,FILE]`. A file whose own name has a `=` or a comma is taken as it is.
pub(super) fn column(text: &str) -> Result<Report> {
    let (label, files) = files(text);
    let stem = Path::new(files.first().copied().unwrap_or_default()).file_stem();
    let stem = stem.map_or_else(|| text.to_owned(), |stem| stem.to_string_lossy().into_owned());
    let label = label.map_or(stem, str::to_owned);
    let reports = files.iter().map(|file| report(Path::new(file), &label)).collect::<Result<Vec<_>>>()?;
    match Report::group(&label, reports) {
        Some(report) => Ok(report),
        None => bail!("{text:?} names no file"),
    }
}

/// The name and the files of a column.
pub(super) fn files(text: &str) -> (Option<&str>, Vec<&str>) {
    let (label, files) = match text.split_once('=') {
        Some((label, files)) if !Path::new(text).exists() => (Some(label), files),
        _ => (None, text),
    };
    let files = if Path::new(files).exists() { vec![files] } else { files.split(',').collect() };
    (label, files)
}
