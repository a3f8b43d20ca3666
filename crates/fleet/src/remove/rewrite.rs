//! A file without the rows that are removed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use super::selection::Selection;
use crate::names::{MANIFEST, key_column};
use crate::read::TableFile;
use crate::table::TableWriter;
use crate::written::Written;

/// A file that has rows to remove.
pub(crate) struct Rewrite<'a> {
    table: &'a str,
    path: PathBuf,
    file: TableFile,
    /// Whether each row of each row group is removed.
    doomed: Vec<Vec<bool>>,
}

impl<'a> Rewrite<'a> {
    /// Finds the rows. `None` if there are none.
    ///
    /// # Errors
    /// Fails if the file is damaged, or has rows without a key.
    pub(crate) fn plan(table: &'a str, path: &Path, selection: &Selection) -> anyhow::Result<Option<Self>> {
        let file = TableFile::open(path, table)?;
        let doomed = (0..file.groups())
            .map(|group| doomed(table, &file, group, selection))
            .collect::<anyhow::Result<Vec<_>>>()
            .with_context(|| format!("cannot read {}", path.display()))?;
        let any = doomed.iter().flatten().any(|doomed| *doomed);
        Ok(any.then(|| Self { table, path: path.to_owned(), file, doomed }))
    }

    /// Returns the number of rows that are removed.
    pub(crate) fn removed(&self) -> u64 {
        self.doomed.iter().flatten().filter(|doomed| **doomed).count() as u64
    }

    /// Whether no row is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.doomed.iter().flatten().all(|doomed| *doomed)
    }

    /// Replaces the file by one without these rows, or removes it.
    ///
    /// # Errors
    /// Fails if the file cannot be read or written. It is as it was then.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        if self.is_empty() {
            fs::remove_file(&self.path).with_context(|| format!("cannot remove {}", self.path.display()))?;
        } else {
            Written::new(&self.path, |out| self.write(out))?.name()?;
        }
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.with_context(|| format!("cannot write to {}", directory.display()))?;
        if self.is_empty() {
            // A month that has other files stays.
            let _ = fs::remove_dir(directory);
        }
        Ok(())
    }

    fn write(&self, out: &mut (dyn std::io::Write + Send)) -> anyhow::Result<()> {
        let mut writer = TableWriter::new(out, self.table, &self.file.columns)?;
        for (group, doomed) in self.doomed.iter().enumerate() {
            if doomed.iter().all(|doomed| *doomed) {
                continue;
            }
            let values = self.file.read_all(group)?;
            let mut kept = Vec::with_capacity(values.len());
            for column in &values {
                let mut left = column.empty();
                let mut start = 0;
                for run in doomed.chunk_by(|a, b| a == b) {
                    let end = start + run.len();
                    if run.first() == Some(&false) {
                        left.append(column, start..end);
                    }
                    start = end;
                }
                kept.push(left);
            }
            writer.write(kept)?;
        }
        Ok(writer.finish()?)
    }
}

fn doomed(table: &str, file: &TableFile, group: usize, selection: &Selection) -> anyhow::Result<Vec<bool>> {
    if table == MANIFEST {
        let [dumps, crashes, runs] = file.read(group, ["dump_id", "crash_id", "run_id"])?;
        return Ok((0..dumps.len())
            .map(|row| {
                selection.has(crashes.text_at(row))
                    || selection.has(runs.text_at(row))
                    || selection.has_dump(dumps.text_at(row))
            })
            .collect());
    }
    let key = key_column(table);
    let [ids] = file.read(group, [key])?;
    let rows = 0..ids.len();
    rows.map(|row| {
        let id = ids.text_at(row);
        ensure!(id.is_some(), "a row has no {key}");
        Ok(selection.has(id))
    })
    .collect()
}
