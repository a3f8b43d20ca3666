//! Where the tables of a crash are, and which of its dumps they come of.

use std::cmp::{Ordering, Reverse};
use std::path::{Path, PathBuf};

use pagehaul_facts::{Facts, SCHEMA_VERSION};

use crate::lock::Lock;
use crate::manifest::Row;
use crate::names::MANY_PREFIX;
use crate::read::{TableFile, parquet_files};
use crate::stage::Stage;
use crate::table::{Key, Table, Values};
use crate::tables::DumpFile;
use crate::written::Written;

/// Why a dump makes no tables where those of another are.
const HAS_MORE: &str = "the tables of another dump of this crash stay: it has more";
pub(crate) const IS_DAMAGED: &str = "the tables of another dump of this crash stay: this one is damaged";

const IS_EQUAL: &str =
    "the tables of another dump of this crash stay: it has as much, and its file is larger";

/// Whether this is why a dump makes no tables where those of another are.
pub(crate) fn others_stay(reason: &str) -> bool {
    [HAS_MORE, IS_DAMAGED, IS_EQUAL].contains(&reason)
}

/// What tables are made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    pub(crate) quality: Quality,
    /// Bytes of the files.
    pub(crate) size: Option<u64>,
    pub(crate) stage: Stage,
    /// Whether the dump is damaged where it was read so far.
    pub(crate) damaged: bool,
    /// Whether they replace those of an equal dump, whichever comes first.
    pub(crate) takes: bool,
}

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

    /// Whether the tables that are there come of a better dump of this crash. `row` says so.
    pub(crate) fn is_better(&self, origin: Origin, row: &mut Row) -> bool {
        let Some((there, size)) = Quality::there(&self.directory("dumps"), &self.key.id) else {
            return false;
        };
        let reason = match there.cmp(&origin.quality) {
            Ordering::Greater => HAS_MORE,
            Ordering::Equal if origin.damaged && self.is_intact(origin.stage, true) => IS_DAMAGED,
            // Both may be written again and again: without an order, the last would win.
            Ordering::Equal if !origin.takes && size > origin.size && self.is_intact(origin.stage, false) => {
                IS_EQUAL
            }
            _ => return false,
        };
        row.lacks(origin.stage.tables(), reason);
        true
    }

    /// Whether the tables that are there come of a dump of this crash that has as much.
    pub(crate) fn has_equal(&self, quality: Quality) -> bool {
        Quality::there(&self.directory("dumps"), &self.key.id).is_some_and(|(there, _)| there == quality)
    }

    /// Whether there are tables of a stage, and none came of a dump that is damaged there. A file of many crashes does not tell:
    /// `among_many` says whether its rows count as such.
    fn is_intact(&self, stage: Stage, among_many: bool) -> bool {
        let id = &self.key.id;
        let mut found = false;
        for table in stage.tables() {
            let month = self.directory(table);
            match TableFile::open(&month.join(format!("{id}.parquet")), table) {
                Ok(file) if file.is_damaged() => return false,
                Ok(_) => found = true,
                Err(_) => found |= among_many && many(&month).iter().any(|path| has_rows(path, table, id)),
            }
        }
        found
    }

    /// Writes the tables that have rows and are asked for, unless a better dump of the crash wrote its own meanwhile.
    pub(crate) fn put(
        &self,
        tables: impl IntoIterator<Item = Table>,
        origin: Option<Origin>,
        row: &mut Row,
    ) -> anyhow::Result<()> {
        let mut written = Vec::new();
        let single = |table: &str| self.directory(table).join(format!("{}.parquet", self.key.id));
        for mut table in tables {
            table.damaged = origin.is_some_and(|origin| origin.damaged);
            let wanted = self.only.is_empty() || self.only.iter().any(|name| name == table.name);
            if table.rows > 0 && wanted {
                let made = (table.name.to_owned(), table.rows);
                let is_there =
                    many(&self.directory(table.name)).iter().any(|path| has_all(path, &self.key, &table));
                let file = Written::new(&single(table.name), |out| Ok(table.write(out)?))?;
                written.push((made, is_there, file));
            }
        }
        // From the decision to the last name: dumps of one crash are extracted at the same time.
        let _lock = Lock::names(self.to);
        if let Some(origin) = origin
            && self.is_better(origin, row)
        {
            return Ok(());
        }
        for (made, is_there, file) in written {
            // Until files are compacted again, readers that know nothing of their names would count the rows twice.
            if !is_there || single(&made.0).exists() {
                file.name()?;
            }
            row.tables.push(made);
        }
        Ok(())
    }
}

/// What decides between two dumps of a crash: one that is truncated or has fewer pages must not replace the tables of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Quality {
    crash: bool,
    complete: bool,
    dump: bool,
    /// A higher level leaves out more. ELF files do not say it.
    level: Reverse<u32>,
    says_level: bool,
}

impl Quality {
    pub(crate) fn of(facts: &Facts, file: &DumpFile) -> Self {
        Self {
            crash: facts.crash.is_some(),
            complete: file.complete != Some(false),
            dump: file.format != "facts",
            level: Reverse(file.level.unwrap_or(0)),
            says_level: file.level.is_some(),
        }
    }

    /// Reads it and the size from the files of the table `dumps` of a month: that of the crash, or one of many crashes. `None` if there
    /// is none or it is damaged: then it may be replaced.
    pub(crate) fn there(month: &Path, id: &str) -> Option<(Self, Option<u64>)> {
        let single = month.join(format!("{id}.parquet"));
        if single.exists() {
            return Self::in_file(&single, id);
        }
        many(month).iter().find_map(|path| Self::in_file(path, id))
    }

    fn in_file(path: &Path, id: &str) -> Option<(Self, Option<u64>)> {
        let file = TableFile::open(path, "dumps").ok()?;
        file.groups_with("crash_id", id).find_map(|group| {
            let names = ["crash_id", "kind", "complete", "format", "level", "size_bytes"];
            let [ids, kind, complete, format, level, size] = file.read(group, names).ok()?;
            let row = (0..ids.len()).find(|row| ids.text_at(*row) == Some(id))?;
            let level = level.number_at(row).and_then(|level| u32::try_from(level).ok());
            let found = Self {
                crash: kind.text_at(row).is_some(),
                complete: complete.number_at(row) != Some(0),
                dump: format.text_at(row) != Some("facts"),
                level: Reverse(level.unwrap_or(0)),
                says_level: level.is_some(),
            };
            Some((found, size.number_at(row).and_then(|size| u64::try_from(size).ok())))
        })
    }
}

/// Returns the files of many crashes of a month.
fn many(month: &Path) -> Vec<PathBuf> {
    let mut files = parquet_files(month).unwrap_or_default();
    files.retain(|path| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(MANY_PREFIX.as_bytes()))
    });
    files
}

/// Whether a file of many crashes has all rows of a table, in their order, and no others of its crash.
fn has_all(path: &Path, key: &Key, table: &Table) -> bool {
    let Ok(file) = TableFile::open(path, table.name) else { return false };
    let mut found: Vec<_> = file.columns.iter().map(|(name, values)| (name, values.empty())).collect();
    for group in file.groups_with(key.column, &key.id) {
        let Ok([ids]) = file.read(group, [key.column]) else { return false };
        let is_own = |row: &usize| ids.text_at(*row) == Some(&key.id);
        let Some(start) = (0..ids.len()).find(is_own) else { continue };
        let end = (start..ids.len()).find(|row| !is_own(row)).unwrap_or(ids.len());
        let Ok(columns) = file.read_all(group) else { return false };
        for ((_, to), from) in found.iter_mut().zip(&columns) {
            to.append(from, start..end);
        }
    }
    let nulls = |values: &Values| {
        let mut nulls = values.empty();
        nulls.pad(values.len());
        nulls
    };
    // Columns that the file has and the table has not are those of another version.
    found.iter().all(|(name, values)| match table.columns.iter().find(|(known, _)| known == name) {
        Some((_, new)) => new == values,
        None => *values == nulls(values),
    }) && table.columns.iter().all(|(name, _)| found.iter().any(|(known, _)| known.as_str() == *name))
}

/// Whether a file has rows of a crash.
fn has_rows(path: &Path, table: &str, id: &str) -> bool {
    let Ok(file) = TableFile::open(path, table) else { return false };
    file.groups_with("crash_id", id).any(|group| {
        let ids = file.read(group, ["crash_id"]);
        ids.is_ok_and(|[ids]| (0..ids.len()).any(|row| ids.text_at(row) == Some(id)))
    })
}

/// `2026-11`, in UTC.
fn month(time: Option<u64>) -> String {
    let time = time.and_then(|time| jiff::Timestamp::from_second(i64::try_from(time).ok()?).ok());
    time.map_or_else(|| "unknown".to_owned(), |time| time.strftime("%Y-%m").to_string())
}
