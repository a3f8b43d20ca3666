//! `pagehaul-fleet compact`.
//!
//! Readers take a crash from the file whose name comes first. The files of one crash (`0123….parquet`) come before those of this
//! command (`many-….parquet`), and old ones of these go first. So at any moment, also if this process is killed, each crash has the
//! rows of its newest file, and all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::hash::Hasher;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;
use pagehaul_facts::SCHEMA_VERSION;
use pagehaul_present::sentence;
use tempfile::NamedTempFile;
use twox_hash::XxHash3_64;

use crate::lock::Lock;
use crate::names::{MANY_PREFIX, key_column};
use crate::read::{TableFile, directories, parquet_files};
use crate::table::{TableWriter, Values};
use crate::written::check_writable;

/// Rows of a row group.
const GROUP_ROWS: usize = 128 << 10;

/// Put the small files of each table and month together
///
/// The rows stay the same. Waits until no `extract` runs on this machine's view of DIR. Readers see each crash once at any moment if they
/// take it from the file whose name comes first, as `report` and `sql` do.
///
/// Exit status: 0, done; 1, files cannot be read or written; 2, the command line is wrong; 3, some files were left as they are.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul-fleet compact tables")]
pub(crate) struct CompactArguments {
    /// Directory of the tables
    directory: PathBuf,
}

pub(crate) fn run(arguments: &CompactArguments) -> anyhow::Result<ExitCode> {
    let done = compact_all(&arguments.directory)?;
    done.left.iter().for_each(|why| crate::console::tell(&format!("pagehaul-fleet: left as it is: {why}")));
    crate::console::say(&format!("{} files, now {}\n", done.before, done.after))?;
    Ok(if done.left.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

/// Files of a directory, or of all directories, before and after.
#[derive(Debug, Default)]
pub struct Compacted {
    before: usize,
    after: usize,
    /// Why files were left as they are.
    pub(crate) left: Vec<String>,
}

/// Compacts all tables.
///
/// # Errors
/// Fails if files cannot be read or written.
pub fn compact_all(tables: &Path) -> anyhow::Result<Compacted> {
    let _lock = Lock::exclusive(tables)?;
    check_writable(tables)?;
    let mut all = Compacted::default();
    for table in directories(tables)? {
        let name = table.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for month in months(&table)? {
            let done = compact(&month, &name)?;
            all.before += done.before;
            all.after += done.after;
            all.left.extend(done.left);
        }
    }
    Ok(all)
}

/// Compacts the directories in which a crash counts twice: its rows are in a file of many crashes, and it was extracted again. Does
/// nothing while another run has the tables; the last one to end does it.
///
/// # Errors
/// Fails if files cannot be read or written.
pub(crate) fn again(tables: &Path) -> anyhow::Result<()> {
    let Some(_lock) = Lock::try_exclusive(tables) else { return Ok(()) };
    for table in directories(tables)? {
        let name = table.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for month in months(&table)? {
            if counts_twice(&month, &name)? {
                compact(&month, &name)?;
            }
        }
    }
    Ok(())
}

/// Whether a crash of the directory has a file of its name, and rows in a file of many crashes.
fn counts_twice(directory: &Path, table: &str) -> anyhow::Result<bool> {
    let paths = parquet_files(directory)?;
    let name = |path: &PathBuf| path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let (many, single): (Vec<_>, Vec<_>) =
        paths.into_iter().partition(|path| name(path).starts_with(MANY_PREFIX));
    let single: BTreeSet<String> = single.iter().map(name).collect();
    if single.is_empty() {
        return Ok(false);
    }
    for path in many {
        // `compact` names a file that cannot be read; so do readers.
        let Ok(file) = TableFile::open(&path, table) else { continue };
        for group in 0..file.groups() {
            let Ok([ids]) = file.read(group, [key_column(table)]) else { continue };
            if (0..ids.len()).filter_map(|row| ids.text_at(row)).any(|id| single.contains(id)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Returns the directories of a table that hold files: one for each month, or the one of the manifest, which has no months.
fn months(table: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let versioned = table.join(format!("v={SCHEMA_VERSION}"));
    let months = directories(&versioned)?;
    Ok(std::iter::once(versioned).filter(|directory| directory.exists()).chain(months).collect())
}

/// Rows of a crash that follow each other in a row group.
struct Piece {
    file: usize,
    group: usize,
    rows: Range<usize>,
}

/// The files of a table and month, and where the rows of each crash are.
#[derive(Default)]
struct Plan {
    files: Vec<PathBuf>,
    columns: Vec<(String, Values)>,
    crashes: BTreeMap<String, Vec<Piece>>,
}

fn compact(directory: &Path, table: &str) -> anyhow::Result<Compacted> {
    let paths = parquet_files(directory)?;
    let mut done = Compacted { before: paths.len(), after: paths.len(), left: Vec::new() };
    if paths.len() < 2 {
        return Ok(done);
    }
    let mut plan = Plan::default();
    for path in paths {
        let added = TableFile::open(&path, table).and_then(|file| {
            plan.add(file, &path, key_column(table)).with_context(|| path.display().to_string())
        });
        if let Err(why) = added {
            done.left.push(sentence(why.chain()));
        }
    }
    if plan.files.len() < 2 {
        return Ok(done);
    }
    done.after = done.left.len() + 1;
    let write = || format!("cannot write to {}", directory.display());
    let mut file = NamedTempFile::new_in(directory).with_context(write)?;
    let mut out = Hashing { out: BufWriter::new(file.as_file_mut()), hash: XxHash3_64::new() };
    plan.write(table, &mut out).with_context(write)?;
    out.flush().with_context(write)?;
    let new = directory.join(format!("{MANY_PREFIX}{:016x}.parquet", out.hash.finish()));
    drop(out);
    file.as_file().sync_data().with_context(write)?;
    file.persist(&new).map_err(|error| error.error).with_context(write)?;
    File::open(directory).and_then(|directory| directory.sync_all()).with_context(write)?;
    // The files of many crashes come last by their names, and go first.
    for path in plan.files.iter().rev().filter(|path| **path != new) {
        fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(done)
}

impl Plan {
    /// Adds a file. A crash that an earlier one has does not count.
    fn add(&mut self, file: TableFile, path: &Path, key: &str) -> anyhow::Result<()> {
        file.check()?;
        for (name, kind) in &file.columns {
            let known = self.columns.iter().find(|(known, _)| known == name);
            ensure!(
                known.is_none_or(|(_, known)| known == kind),
                "column {name} has another type in other files"
            );
        }
        let mut found = Vec::new();
        for group in 0..file.groups() {
            let [ids] = file.read(group, [key])?;
            let mut start = 0;
            while start < ids.len() {
                let id = ids.text_at(start).with_context(|| format!("a row has no {key}"))?;
                let end = (start..ids.len()).find(|row| ids.text_at(*row) != Some(id)).unwrap_or(ids.len());
                found.push((id.to_owned(), Piece { file: self.files.len(), group, rows: start..end }));
                start = end;
            }
        }
        let new: BTreeSet<String> =
            found.iter().map(|(id, _)| id).filter(|id| !self.crashes.contains_key(*id)).cloned().collect();
        for (id, piece) in found {
            if new.contains(&id) {
                self.crashes.entry(id).or_default().push(piece);
            }
        }
        for column in file.columns {
            if !self.columns.iter().any(|(known, _)| *known == column.0) {
                self.columns.push(column);
            }
        }
        self.files.push(path.to_owned());
        Ok(())
    }

    /// Writes all rows, by crash.
    fn write(&self, table: &str, out: &mut (impl Write + Send)) -> anyhow::Result<()> {
        let mut writer = TableWriter::new(out, table, &self.columns)?;
        let mut gathered = self.columns.clone();
        let mut rows = 0;
        // The row group that was read last of each file of many crashes.
        let mut open: BTreeMap<usize, (TableFile, usize, Vec<Values>)> = BTreeMap::new();
        for piece in self.crashes.values().flatten() {
            let path = self.files.get(piece.file).map_or(Path::new(""), PathBuf::as_path);
            let (file, group, mut values) = match open.remove(&piece.file) {
                Some(open) => open,
                None => (TableFile::open(path, table)?, usize::MAX, Vec::new()),
            };
            if group != piece.group {
                values =
                    file.read_all(piece.group).with_context(|| format!("cannot read {}", path.display()))?;
            }
            rows += piece.rows.len();
            for (name, column) in &mut gathered {
                let from =
                    file.columns.iter().position(|(known, _)| known == name).and_then(|at| values.get(at));
                if !from.is_some_and(|from| column.append(from, piece.rows.clone())) {
                    column.pad(rows);
                }
            }
            let many = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(MANY_PREFIX));
            if many {
                open.insert(piece.file, (file, piece.group, values));
            }
            if rows >= GROUP_ROWS {
                writer.write(gathered.iter_mut().map(|(_, column)| column.take()))?;
                rows = 0;
            }
        }
        if rows > 0 {
            writer.write(gathered.into_iter().map(|(_, column)| column))?;
        }
        Ok(writer.finish()?)
    }
}

/// Hashes what is written.
struct Hashing<W> {
    out: W,
    hash: XxHash3_64,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hash.write(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
