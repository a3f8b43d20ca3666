//! Reads recordings into reports.

use std::path::Path;

use anyhow::{Result, bail};
use pagehaul_reclaim::{ReclaimReport, analyse};
use pagehaul_trace::{Input, TraceFile};

/// The report of one file.
pub(super) fn report(path: &Path, input: Input, label: &str) -> Result<ReclaimReport> {
    let mut recording = TraceFile::from_input(input)?;
    Ok(analyse(&mut recording, &path.display().to_string(), label)?)
}

/// A column of a comparison: its label and its open files.
pub(super) struct Column<'a> {
    label: String,
    pub(super) files: Vec<(&'a Path, Input)>,
}

impl<'a> Column<'a> {
    /// Opens `[NAME=]FILE[,FILE]`. A file whose own name has a `=` or a comma is taken as it is.
    pub(super) fn open(text: &'a str) -> Result<Self> {
        let (label, files) = match text.split_once('=') {
            Some((label, files)) if !Path::new(text).exists() => (Some(label), files),
            _ => (None, text),
        };
        let files = if Path::new(files).exists() { vec![files] } else { files.split(',').collect() };
        let stem = Path::new(files.first().copied().unwrap_or_default()).file_stem();
        let stem = stem.map_or_else(|| text.to_owned(), |stem| stem.to_string_lossy().into_owned());
        let files = files.into_iter().map(Path::new).map(|path| Ok((path, Input::open(path)?)));
        Ok(Self { label: label.map_or(stem, str::to_owned), files: files.collect::<Result<_>>()? })
    }

    pub(super) fn report(self) -> Result<ReclaimReport> {
        let reports = self.files.into_iter().map(|(path, input)| report(path, input, &self.label));
        match ReclaimReport::group(&self.label, reports.collect::<Result<Vec<_>>>()?) {
            Some(report) => Ok(report),
            None => bail!("column {:?} names no file", self.label),
        }
    }
}
