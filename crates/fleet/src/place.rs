//! Where the tables of a crash are, and which of its dumps they come of.

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use pagehaul_facts::{Facts, SCHEMA_VERSION};
use tempfile::NamedTempFile;

use crate::compact::MANY;
use crate::lock::Lock;
use crate::manifest::Row;
use crate::one::Stage;
use crate::read::{TableFile, parquet_files};
use crate::table::{Key, Table};
use crate::tables::DumpFile;

/// Why a dump makes no tables where those of another are.
pub(crate) const HAS_MORE: &str = "the tables of another dump of this crash stay: it has more";

/// The place of the tables of a crash or of a recording.
pub(crate) struct Place<'a> {
    to: &'a Path,
    /// Names of the tables to make; all if there are none.
    only: &'a [String],
    pub(crate) key: Key,
    month: String,
}

impl<'a> Place<'a> {
    /// Returns the place of what happened at `time`, in seconds since 1970.
    pub(crate) fn new(to: &'a Path, only: &'a [String], key: Key, time: Option<u64>) -> Self {
        Self { to, only, key, month: month(time) }
    }

    fn directory(&self, table: &str) -> PathBuf {
        self.to.join(table).join(format!("v={SCHEMA_VERSION}")).join(format!("month={}", self.month))
    }

    /// Whether the tables that are there come of a dump of this crash that has more than one of `quality`. `row` says so.
    pub(crate) fn has_more(&self, quality: Quality, stage: Stage, row: &mut Row) -> bool {
        let more =
            Quality::there(&self.directory("dumps"), &self.key.id).is_some_and(|there| there > quality);
        if more {
            row.lacks(stage.tables(), HAS_MORE);
        }
        more
    }

    /// Writes the tables that have rows and are asked for, unless another dump of the crash that has more wrote its own meanwhile.
    pub(crate) fn put(
        &self,
        tables: impl IntoIterator<Item = Table>,
        quality: Option<(Quality, Stage)>,
        row: &mut Row,
    ) -> anyhow::Result<()> {
        let mut written = Vec::new();
        for table in tables {
            let wanted = self.only.is_empty() || self.only.iter().any(|name| name == table.name);
            if table.rows > 0 && wanted {
                let path = self.directory(table.name).join(format!("{}.parquet", self.key.id));
                let made = (table.name.to_owned(), table.rows);
                written.push((made, Written::new(&path, |out| Ok(table.write(out)?))?));
            }
        }
        // From the decision to the last name: dumps of one crash are extracted at the same time.
        let _lock = Lock::names(self.to);
        if let Some((quality, stage)) = quality
            && self.has_more(quality, stage, row)
        {
            return Ok(());
        }
        for (made, file) in written {
            file.name()?;
            row.tables.push(made);
        }
        Ok(())
    }
}

/// What decides between two dumps of a crash: a truncated one must not replace the tables of an intact one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quality {
    crash: bool,
    complete: bool,
    dump: bool,
}

impl Quality {
    pub(crate) fn of(facts: &Facts, file: &DumpFile) -> Self {
        Self {
            crash: facts.crash.is_some(),
            complete: file.complete != Some(false),
            dump: file.format != "facts",
        }
    }

    /// Reads it from the files of the table `dumps` of a month: that of the crash, or one of many crashes. `None` if there is none or it
    /// is damaged: then it may be replaced.
    fn there(month: &Path, id: &str) -> Option<Self> {
        let single = month.join(format!("{id}.parquet"));
        if single.exists() {
            return Self::in_file(&single, id);
        }
        let files = parquet_files(month).ok()?.into_iter();
        let mut many = files.filter(|path| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(MANY.as_bytes()))
        });
        many.find_map(|path| Self::in_file(&path, id))
    }

    fn in_file(path: &Path, id: &str) -> Option<Self> {
        let file = TableFile::open(path).ok()?;
        (0..file.groups()).find_map(|group| {
            let [ids, kind, complete, format] =
                file.read(group, ["crash_id", "kind", "complete", "format"]).ok()?;
            let row = (0..ids.len()).find(|row| ids.text_at(*row) == Some(id))?;
            Some(Self {
                crash: kind.text_at(row).is_some(),
                complete: complete.number_at(row) != Some(0),
                dump: format.text_at(row) != Some("facts"),
            })
        })
    }
}

/// `2026-11`, in UTC.
fn month(time: Option<u64>) -> String {
    let time = time.and_then(|time| jiff::Timestamp::from_second(i64::try_from(time).ok()?).ok());
    time.map_or_else(|| "unknown".to_owned(), |time| time.strftime("%Y-%m").to_string())
}

/// A table could not be written, whatever its dump is like.
#[derive(Debug)]
pub(crate) struct Unwritten {
    path: PathBuf,
}

impl std::fmt::Display for Unwritten {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cannot write {}", self.path.display())
    }
}

/// A file that is complete and on the disk, and does not have its name yet.
pub(crate) struct Written {
    file: NamedTempFile,
    path: PathBuf,
}

impl Written {
    /// Writes a file in the directory of `path`.
    pub(crate) fn new(
        path: &Path,
        write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let context = || Unwritten { path: path.to_owned() };
        let directory = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(directory).with_context(context)?;
        let file = NamedTempFile::new_in(directory).with_context(context)?;
        let mut out = BufWriter::new(file);
        write(&mut out).with_context(context)?;
        let file = out.into_inner().map_err(|error| error.into_error()).with_context(context)?;
        file.as_file().sync_data().with_context(context)?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Gives it its name. Readers see all of the old file or all of this.
    pub(crate) fn name(self) -> anyhow::Result<()> {
        let named = self.file.persist(&self.path).map_err(|error| error.error);
        named.map(drop).with_context(|| Unwritten { path: self.path })
    }
}

/// Writes a file. Readers see all of it or nothing, and another run that writes it at the same time does no harm.
pub(crate) fn put(
    path: &Path,
    write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    Written::new(path, write)?.name()
}
