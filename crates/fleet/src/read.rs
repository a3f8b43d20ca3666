//! Reads tables: the files of one, and the columns of a file.

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::Once;

use anyhow::{Context, bail, ensure};
use pagehaul_facts::SCHEMA_VERSION;
use pagehaul_physmem::file::open_regular;
use parquet::basic::{ConvertedType, LogicalType, TimeUnit, Type as Physical};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescriptor;

use crate::columns;
use crate::limits::{MAX_VALUES, check_pages, check_schema};
use crate::names::key_column;
use crate::table::{DAMAGED, Values};

/// Returns the Parquet files of a table in the order of their names, in which the file of one crash comes before those of `compact`.
/// An absent table has none.
///
/// # Errors
/// Fails if a directory cannot be read.
pub fn files(tables: &Path, table: &str) -> anyhow::Result<Vec<PathBuf>> {
    let directory = tables.join(table).join(format!("v={SCHEMA_VERSION}"));
    let mut files = Vec::new();
    match collect(&directory, &mut files) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && !directory.exists() => {}
        found => found.with_context(|| format!("cannot read {}", directory.display()))?,
    }
    files.sort_unstable();
    Ok(files)
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "parquet") {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the Parquet files of a directory, by name.
///
/// # Errors
/// Fails if the directory cannot be read.
pub(crate) fn parquet_files(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let context = || format!("cannot read {}", directory.display());
    let entries = fs::read_dir(directory).with_context(context)?;
    let mut paths =
        entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>().with_context(context)?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "parquet"));
    paths.sort_unstable();
    Ok(paths)
}

/// Returns the directories in a directory, by name; none if it is absent.
///
/// # Errors
/// Fails if it cannot be read.
pub(crate) fn directories(parent: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let context = || format!("cannot read {}", parent.display());
    if !parent.exists() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(parent).with_context(context)? {
        let entry = entry.with_context(context)?;
        if entry.file_type().with_context(context)?.is_dir() {
            found.push(entry.path());
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// A Parquet file.
pub(crate) struct TableFile {
    table: String,
    file: File,
    reader: SerializedFileReader<File>,
    /// Names of the columns, with an empty column of the same kind.
    pub(crate) columns: Vec<(String, Values)>,
}

impl TableFile {
    /// Opens a file of a table, whose sizes are checked first.
    ///
    /// # Errors
    /// Fails if it is not a Parquet file, or has columns that no table has.
    pub(crate) fn open(path: &Path, table: &str) -> anyhow::Result<Self> {
        let context = || format!("cannot read {}", path.display());
        let file = open_regular(path).with_context(context)?;
        check_schema(&file).with_context(context)?;
        let again = file.try_clone().with_context(context)?;
        let reader = guarded(|| Ok(SerializedFileReader::new(again)?)).with_context(context)?;
        let schema = reader.metadata().file_metadata().schema_descr();
        let columns = schema.columns().iter().map(|column| {
            let name = column.path().parts().first().cloned().unwrap_or_default();
            // Other programs give a column of nulls no type.
            let known = columns::of(table).find(|known| is_untyped(column) && known.name == name);
            let kind = known.map(|known| known.kind.empty()).or_else(|| kind(column));
            let kind = kind.with_context(|| format!("column {name} has a type that no table has"))?;
            Ok((name, kind))
        });
        let columns = columns.collect::<anyhow::Result<_>>().with_context(context)?;
        Ok(Self { table: table.to_owned(), file, reader, columns })
    }

    /// Returns the number of row groups.
    pub(crate) fn groups(&self) -> usize {
        self.reader.num_row_groups()
    }

    /// Returns the row groups that may have rows with this text in a column, by their statistics.
    pub(crate) fn groups_with<'a>(&'a self, column: &str, text: &'a str) -> impl Iterator<Item = usize> + 'a {
        let at = self.columns.iter().position(|(known, _)| known == column);
        (0..self.groups()).filter(move |group| {
            let chunks = self.reader.metadata().row_group(*group).columns();
            let statistics = at.and_then(|at| chunks.get(at)?.statistics());
            let least = statistics.and_then(Statistics::min_bytes_opt);
            let most = statistics.and_then(Statistics::max_bytes_opt);
            least.is_none_or(|least| least <= text.as_bytes())
                && most.is_none_or(|most| most >= text.as_bytes())
        })
    }

    /// Whether it came of a dump that is damaged where it was read.
    pub(crate) fn is_damaged(&self) -> bool {
        let notes = self.reader.metadata().file_metadata().key_value_metadata();
        notes.is_some_and(|notes| notes.iter().any(|note| note.key == DAMAGED))
    }

    /// Reads these columns of a row group, or nulls for a column that the file lacks because it is of an older version.
    ///
    /// # Errors
    /// Fails if the file is damaged, of a newer version, or has columns that are not as docs/schema.md says.
    pub(crate) fn read<const N: usize>(&self, group: usize, names: [&str; N]) -> anyhow::Result<[Values; N]> {
        let group = self.group(group)?;
        self.check_version(group.as_ref())?;
        let mut found = names.map(|_| Values::Bool(Vec::new()));
        for (values, name) in found.iter_mut().zip(names) {
            let column = columns::of(&self.table).find(|column| column.name == name);
            let at = self.place(name);
            if let Some(column) = column {
                column.check(at.and_then(|at| Some(&self.columns.get(at)?.1)))?;
            }
            match at {
                Some(at) => *values = guarded(|| self.column(group.as_ref(), at))?,
                None => values.pad(rows(group.as_ref())?),
            }
            if let Some(column) = column {
                column.check_values(values)?;
            }
            let is_key = name == key_column(&self.table);
            ensure!(
                !is_key || (0..values.len()).all(|row| values.text_at(row).is_some()),
                "a row has no {name}"
            );
        }
        Ok(found)
    }

    /// Checks all columns that this program reads: what is written again must not be taken for right later.
    ///
    /// # Errors
    /// Fails if one is not as docs/schema.md says.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        for column in columns::of(&self.table) {
            let at = self.place(column.name);
            column.check(at.and_then(|at| Some(&self.columns.get(at)?.1)))?;
            for group in (0..self.groups()).filter(|_| column.has_limits()) {
                self.read(group, [column.name])?;
            }
        }
        Ok(())
    }

    /// What a newer version means is not known.
    fn check_version(&self, group: &dyn RowGroupReader) -> anyhow::Result<()> {
        let Some(at) = self.place("schema_version") else { return Ok(()) };
        let versions = guarded(|| self.column(group, at))?;
        let newest = (0..versions.len()).filter_map(|row| versions.number_at(row)).max();
        let newest = newest.filter(|version| *version > i64::from(SCHEMA_VERSION));
        ensure!(
            newest.is_none(),
            "column schema_version: expected at most {SCHEMA_VERSION}, found {}: a newer program made it",
            newest.unwrap_or_default()
        );
        Ok(())
    }

    fn place(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|(known, _)| known == name)
    }

    /// Reads all columns of a row group.
    ///
    /// # Errors
    /// Fails if the file is damaged.
    pub(crate) fn read_all(&self, group: usize) -> anyhow::Result<Vec<Values>> {
        let group = self.group(group)?;
        (0..self.columns.len()).map(|at| guarded(|| self.column(group.as_ref(), at))).collect()
    }

    fn group(&self, number: usize) -> anyhow::Result<Box<dyn RowGroupReader + '_>> {
        guarded(|| Ok(self.reader.get_row_group(number)?))
    }

    fn column(&self, group: &dyn RowGroupReader, at: usize) -> anyhow::Result<Values> {
        let rows = rows(group)?;
        let Some((name, kind)) = self.columns.get(at) else { bail!("the file has no column {at}") };
        let chunk = group.metadata().column(at);
        let start = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
        ensure!(start >= 0 && chunk.compressed_size() >= 0, "column {name} has a negative offset or size");
        let size = chunk.compressed_size().cast_unsigned();
        check_pages(&self.file, start.cast_unsigned(), size).with_context(|| format!("column {name}"))?;
        let descriptor = chunk.column_descr();
        if is_untyped(descriptor) {
            let mut nulls = kind.empty();
            nulls.pad(rows);
            return Ok(nulls);
        }
        let values = match (kind, group.get_column_reader(at)?) {
            (Values::Text(_), ColumnReader::ByteArrayColumnReader(column)) => {
                Values::Text(optional(column, rows)?)
            }
            (Values::Texts(_), ColumnReader::ByteArrayColumnReader(column)) => {
                let most = chunk.column_descr().max_def_level();
                Values::Texts(lists(column, rows, most)?)
            }
            (Values::Int(_), ColumnReader::Int32ColumnReader(column)) => Values::Int(optional(column, rows)?),
            (Values::Long(_), ColumnReader::Int64ColumnReader(column)) => {
                Values::Long(optional(column, rows)?)
            }
            (Values::Time(_), ColumnReader::Int64ColumnReader(column)) => {
                let times = optional(column, rows)?;
                Values::Time(times.into_iter().map(|time| micros(time?, descriptor)).collect())
            }
            (Values::Bool(_), ColumnReader::BoolColumnReader(column)) => {
                Values::Bool(optional(column, rows)?)
            }
            (Values::Double(_), ColumnReader::DoubleColumnReader(column)) => {
                Values::Double(optional(column, rows)?)
            }
            _ => bail!("column {name} has another type than the file says"),
        };
        ensure!(values.len() == rows, "column {name} has {} of {rows} rows", values.len());
        Ok(values)
    }
}

/// Turns a panic of the Parquet library, which takes some damaged files for its own mistakes, into an error without a message.
fn guarded<T>(read: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    thread_local! {
        static QUIET: Cell<bool> = const { Cell::new(false) };
    }
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !QUIET.get() {
                hook(panic);
            }
        }));
    });
    let before = QUIET.replace(true);
    let result = panic::catch_unwind(AssertUnwindSafe(read));
    QUIET.set(before);
    result.unwrap_or_else(|_| bail!("the file is damaged"))
}

fn rows(group: &dyn RowGroupReader) -> anyhow::Result<usize> {
    let rows = group.metadata().num_rows();
    ensure!((0..=MAX_VALUES).contains(&rows), "a row group has {rows} rows; the limit is {MAX_VALUES}");
    Ok(rows as usize)
}

/// The kind of a column, from its type.
fn kind(column: &ColumnDescriptor) -> Option<Values> {
    let text = column.converted_type() == ConvertedType::UTF8
        || matches!(column.logical_type_ref(), Some(LogicalType::String));
    let time = unit(column).is_some();
    Some(match (column.physical_type(), column.max_rep_level(), column.max_def_level()) {
        (Physical::BYTE_ARRAY, 0, 0..=1) if text => Values::Text(Vec::new()),
        (Physical::BYTE_ARRAY, 1, 2..=3) if text => Values::Texts(Vec::new()),
        (Physical::INT32, 0, 0..=1) => Values::Int(Vec::new()),
        (Physical::INT64, 0, 0..=1) if time => Values::Time(Vec::new()),
        (Physical::INT64, 0, 0..=1) => Values::Long(Vec::new()),
        (Physical::BOOLEAN, 0, 0..=1) => Values::Bool(Vec::new()),
        (Physical::DOUBLE, 0, 0..=1) => Values::Double(Vec::new()),
        _ => return None,
    })
}

/// Whether it has only nulls, and no type.
fn is_untyped(column: &ColumnDescriptor) -> bool {
    matches!(column.logical_type_ref(), Some(LogicalType::Unknown)) && column.max_rep_level() == 0
}

/// The unit of a column of times.
fn unit(column: &ColumnDescriptor) -> Option<TimeUnit> {
    match (column.logical_type_ref(), column.converted_type()) {
        (Some(LogicalType::Timestamp(time)), _) => Some(time.unit),
        (_, ConvertedType::TIMESTAMP_MICROS) => Some(TimeUnit::MICROS),
        (_, ConvertedType::TIMESTAMP_MILLIS) => Some(TimeUnit::MILLIS),
        _ => None,
    }
}

/// A time in microseconds. What does not fit is null.
fn micros(time: i64, column: &ColumnDescriptor) -> Option<i64> {
    match unit(column) {
        Some(TimeUnit::MILLIS) => time.checked_mul(1_000),
        Some(TimeUnit::NANOS) => Some(time.div_euclid(1_000)),
        _ => Some(time),
    }
}

fn optional<T: DataType>(mut column: ColumnReaderImpl<T>, rows: usize) -> anyhow::Result<Vec<Option<T::T>>> {
    let (mut definition, mut values) = (Vec::new(), Vec::new());
    while column.read_records(rows, Some(&mut definition), None, &mut values)?.0 > 0 {}
    if definition.is_empty() {
        // A required column has no levels.
        return Ok(values.into_iter().map(Some).collect());
    }
    let mut values = values.into_iter();
    Ok(definition.into_iter().map(|level| if level > 0 { values.next() } else { None }).collect())
}

fn lists(
    mut column: ColumnReaderImpl<parquet::data_type::ByteArrayType>,
    rows: usize,
    most: i16,
) -> anyhow::Result<Vec<Option<Vec<ByteArray>>>> {
    let (mut definition, mut repetition, mut values) = (Vec::new(), Vec::new(), Vec::new());
    while column.read_records(rows, Some(&mut definition), Some(&mut repetition), &mut values)?.0 > 0 {}
    let mut values = values.into_iter();
    let mut lists: Vec<Option<Vec<ByteArray>>> = Vec::new();
    for (level, repeated) in definition.into_iter().zip(repetition) {
        if repeated == 0 {
            lists.push((level > 0).then(Vec::new));
        }
        if level == most
            && let Some(Some(list)) = lists.last_mut()
        {
            list.extend(values.next());
        }
    }
    Ok(lists)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Key, Table, TableWriter};
    use parquet::basic::Compression;
    use proptest::prelude::*;

    fn table() -> Table {
        let key = Key { column: "crash_id", id: "c".into(), schema_version: 1, extractor: "test".into() };
        let columns = [
            ("text", Values::text([Some("a"), None, Some("")])),
            ("int", Values::int([Some(-1), None, Some(7)])),
            ("long", Values::long([Some(1_u64), Some(u64::MAX), Some(2)])),
            ("time", Values::Time(vec![None, Some(5), None])),
            ("flag", Values::Bool(vec![Some(true), None, Some(false)])),
            ("double", Values::Double(vec![Some(0.5), None, Some(-1e300)])),
            ("list", Values::Texts(vec![None, Some(Vec::new()), Some(vec!["x".into(), "y".into()])])),
        ];
        Table::new("t", &key, columns)
    }

    fn read_all(bytes: &[u8]) -> anyhow::Result<Vec<(String, Values)>> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("t.parquet");
        fs::write(&path, bytes)?;
        let file = TableFile::open(&path, "t")?;
        let mut all = Vec::new();
        for group in 0..file.groups() {
            let names = file.columns.iter().map(|(name, _)| name.clone());
            all.extend(names.zip(file.read_all(group)?));
        }
        Ok(all)
    }

    fn bytes() -> Vec<u8> {
        let mut bytes = Vec::new();
        table().write(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let written: Vec<_> =
            table().columns.into_iter().map(|(name, values)| (name.to_owned(), values)).collect();
        assert_eq!(read_all(&bytes()).unwrap(), written);
    }

    #[test]
    fn tables_that_other_programs_wrote_again_are_read() {
        let table = table();
        let mut bytes = Vec::new();
        let mut writer =
            TableWriter::compressed(&mut bytes, "t", &table.columns, Compression::SNAPPY).unwrap();
        writer.write(table.columns.iter().map(|(_, values)| values.clone())).unwrap();
        writer.finish().unwrap();
        let written: Vec<_> =
            table.columns.into_iter().map(|(name, values)| (name.to_owned(), values)).collect();
        assert_eq!(read_all(&bytes).unwrap(), written);
    }

    #[test]
    fn every_damaged_byte_is_an_error_or_another_value() {
        let bytes = bytes();
        for at in 0..bytes.len() {
            for byte in [0, 185, 255] {
                let mut damaged = bytes.clone();
                damaged[at] = byte;
                let _ = read_all(&damaged);
            }
        }
    }

    #[test]
    fn a_page_that_claims_2_gib_is_refused_before_they_are_allocated() {
        let bytes = bytes();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.parquet");
        fs::write(&path, &bytes).unwrap();
        let file = TableFile::open(&path, "t").unwrap();
        let column = file.reader.metadata().row_group(0).columns().last().unwrap();
        let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset()) as usize;
        // The type of the page, then its size: numbers of 32 bits, the last byte of which is below 0x80.
        assert!(bytes[start] == 0x15 && bytes[start + 2] == 0x15);
        let size = start + 3;
        let length = bytes[size..].iter().position(|byte| *byte < 0x80).unwrap() + 1;
        let hostile = [&bytes[..size], &[0xfe, 0xff, 0xff, 0xff, 0x0f], &bytes[size + length..]].concat();
        let error = format!("{:#}", read_all(&hostile).unwrap_err());
        assert!(error.ends_with("column list: a page takes more than 128 MiB"), "{error}");
    }

    proptest! {
        #[test]
        fn damaged_files_are_errors(at in 0_usize..1 << 20, byte: u8, cut in prop::option::of(0_usize..1 << 20)) {
            let mut bytes = bytes();
            let length = bytes.len();
            bytes[at % length] = byte;
            bytes.truncate(cut.map_or(length, |cut| cut % length));
            let _ = read_all(&bytes);
        }
    }
}
