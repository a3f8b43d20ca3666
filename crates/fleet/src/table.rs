//! A table in memory, and its Parquet file.

use std::io::Write;
use std::ops::Range;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;

/// Marks the file of a crash whose dump is damaged where the table was read. `compact` does not keep it.
pub(crate) const DAMAGED: &str = "pagehaul.damaged";
/// zstd's default.
const ZSTD_LEVEL: i32 = 3;

/// The values of a column. Integers are signed: Spark reads UINT_64 as a decimal.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Texts in UTF-8.
    Text(Vec<Option<ByteArray>>),
    /// Numbers of 32 bits.
    Int(Vec<Option<i32>>),
    /// Numbers of 64 bits.
    Long(Vec<Option<i64>>),
    /// Microseconds since 1970, UTC: Spark has no nanoseconds.
    Time(Vec<Option<i64>>),
    /// Yes or no.
    Bool(Vec<Option<bool>>),
    /// Floating-point numbers.
    Double(Vec<Option<f64>>),
    /// Lists of texts.
    Texts(Vec<Option<Vec<ByteArray>>>),
}

/// Does the same with the vectors of one or two columns of the same kind.
macro_rules! each {
    ($values:expr, $rows:ident => $done:expr) => {
        match $values {
            Values::Text($rows) => $done,
            Values::Int($rows) => $done,
            Values::Long($rows) | Values::Time($rows) => $done,
            Values::Bool($rows) => $done,
            Values::Double($rows) => $done,
            Values::Texts($rows) => $done,
        }
    };
}

impl Values {
    /// Collects a column of texts.
    pub fn text<T: Into<String>>(rows: impl IntoIterator<Item = Option<T>>) -> Self {
        Self::Text(rows.into_iter().map(|text| text.map(|text| bytes(text.into()))).collect())
    }

    /// Collects a column of lists.
    pub fn texts(rows: impl IntoIterator<Item = Vec<String>>) -> Self {
        Self::Texts(rows.into_iter().map(|row| Some(row.into_iter().map(bytes).collect())).collect())
    }

    /// Collects a column of 32 bits. What does not fit is null.
    pub fn int<T: TryInto<i32>>(rows: impl IntoIterator<Item = Option<T>>) -> Self {
        Self::Int(rows.into_iter().map(|value| value?.try_into().ok()).collect())
    }

    /// Collects a column of 64 bits. What does not fit is null.
    pub fn long<T: TryInto<i64>>(rows: impl IntoIterator<Item = Option<T>>) -> Self {
        Self::Long(rows.into_iter().map(|value| value?.try_into().ok()).collect())
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        each!(self, rows => rows.len())
    }

    /// Returns a column of the same kind without rows.
    pub(crate) fn empty(&self) -> Self {
        match self {
            Self::Text(_) => Self::Text(Vec::new()),
            Self::Int(_) => Self::Int(Vec::new()),
            Self::Long(_) => Self::Long(Vec::new()),
            Self::Time(_) => Self::Time(Vec::new()),
            Self::Bool(_) => Self::Bool(Vec::new()),
            Self::Double(_) => Self::Double(Vec::new()),
            Self::Texts(_) => Self::Texts(Vec::new()),
        }
    }

    /// Takes all rows.
    pub(crate) fn take(&mut self) -> Self {
        let empty = self.empty();
        std::mem::replace(self, empty)
    }

    /// Appends nulls until there are `rows` rows.
    pub(crate) fn pad(&mut self, rows: usize) {
        each!(self, values => values.resize(rows, None));
    }

    /// Appends rows of another column. Returns `false` and appends nothing if it is of another kind.
    pub(crate) fn append(&mut self, other: &Self, range: Range<usize>) -> bool {
        macro_rules! append {
            ($($kind:ident),*) => {
                match (self, other) {
                    $((Self::$kind(to), Self::$kind(from)) => {
                        to.extend_from_slice(from.get(range).unwrap_or_default());
                        true
                    })*
                    _ => false,
                }
            };
        }
        append!(Text, Int, Long, Time, Bool, Double, Texts)
    }

    /// Returns the text of a row.
    pub(crate) fn text_at(&self, row: usize) -> Option<&str> {
        let Self::Text(rows) = self else { return None };
        rows.get(row)?.as_ref()?.as_utf8().ok()
    }

    /// Returns the list of a row.
    pub(crate) fn texts_at(&self, row: usize) -> Vec<String> {
        let Self::Texts(rows) = self else { return Vec::new() };
        let list = rows.get(row).and_then(Option::as_deref).unwrap_or_default();
        list.iter().filter_map(|text| text.as_utf8().ok().map(str::to_owned)).collect()
    }

    /// Returns the number of a row.
    pub(crate) fn number_at(&self, row: usize) -> Option<i64> {
        match self {
            Self::Int(rows) => rows.get(row).copied().flatten().map(i64::from),
            Self::Long(rows) | Self::Time(rows) => rows.get(row).copied().flatten(),
            Self::Bool(rows) => rows.get(row).copied().flatten().map(i64::from),
            _ => None,
        }
    }

    fn schema(&self, name: &str) -> String {
        match self {
            Self::Text(_) => format!("OPTIONAL BYTE_ARRAY {name} (UTF8);"),
            Self::Int(_) => format!("OPTIONAL INT32 {name};"),
            Self::Long(_) => format!("OPTIONAL INT64 {name};"),
            Self::Time(_) => format!("OPTIONAL INT64 {name} (TIMESTAMP(MICROS,true));"),
            Self::Bool(_) => format!("OPTIONAL BOOLEAN {name};"),
            Self::Double(_) => format!("OPTIONAL DOUBLE {name};"),
            Self::Texts(_) => {
                let element = "REPEATED group list { REQUIRED BYTE_ARRAY element (UTF8); }";
                format!("OPTIONAL group {name} (LIST) {{ {element} }}")
            }
        }
    }

    fn write(self, column: &mut SerializedColumnWriter<'_>) -> Result<()> {
        match self {
            Self::Text(values) => optional::<ByteArrayType>(column, values),
            Self::Int(values) => optional::<Int32Type>(column, values),
            Self::Long(values) | Self::Time(values) => optional::<Int64Type>(column, values),
            Self::Bool(values) => optional::<BoolType>(column, values),
            Self::Double(values) => optional::<DoubleType>(column, values),
            Self::Texts(rows) => {
                // 0: no list; 1: the list is empty; 2: there is an element. Repetition 0 begins a row.
                let (mut definition, mut repetition, mut values) = (Vec::new(), Vec::new(), Vec::new());
                for row in rows {
                    let list = row.as_deref().unwrap_or_default();
                    if list.is_empty() {
                        definition.push(i16::from(row.is_some()));
                        repetition.push(0);
                    }
                    for (at, text) in list.iter().enumerate() {
                        definition.push(2);
                        repetition.push(i16::from(at > 0));
                        values.push(text.clone());
                    }
                }
                column
                    .typed::<ByteArrayType>()
                    .write_batch(&values, Some(&definition), Some(&repetition))
                    .map(drop)
            }
        }
    }
}

fn bytes(text: String) -> ByteArray {
    ByteArray::from(text.into_bytes())
}

fn optional<T: DataType>(column: &mut SerializedColumnWriter<'_>, values: Vec<Option<T::T>>) -> Result<()> {
    let definition: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    column.typed::<T>().write_batch(&values, Some(&definition), None).map(drop)
}

/// A table.
#[derive(Debug)]
pub struct Table {
    /// Its directory.
    pub name: &'static str,
    /// Number of rows.
    pub rows: usize,
    /// Whether its dump is damaged where it was read: the file says so.
    pub damaged: bool,
    /// Names and values.
    pub columns: Vec<(&'static str, Values)>,
}

impl Table {
    /// Creates a table with the columns that all tables have, and `columns`, which have the same number of rows.
    pub fn new(
        name: &'static str,
        key: &Key,
        columns: impl IntoIterator<Item = (&'static str, Values)>,
    ) -> Self {
        let columns: Vec<_> = columns.into_iter().collect();
        let rows = columns.first().map_or(0, |(_, values)| values.len());
        let same = |text: &str| Values::Text(vec![Some(ByteArray::from(text)); rows]);
        let first = [
            (key.column, same(&key.id)),
            ("schema_version", Values::Int(vec![i32::try_from(key.schema_version).ok(); rows])),
            ("extractor", same(&key.extractor)),
        ];
        Self { name, rows, damaged: false, columns: first.into_iter().chain(columns).collect() }
    }

    /// Writes a Parquet file: the same bytes for the same table.
    ///
    /// # Errors
    /// Fails if it cannot be written.
    pub fn write(self, out: impl Write + Send) -> Result<()> {
        let schema: Vec<_> = self.columns.iter().map(|(name, values)| (*name, values.empty())).collect();
        let mut file = TableWriter::new(out, self.name, &schema)?;
        if self.damaged {
            file.file.append_key_value_metadata(KeyValue::new(DAMAGED.to_owned(), "true".to_owned()));
        }
        file.write(self.columns.into_iter().map(|(_, values)| values))?;
        file.finish()
    }
}

/// What begins every row.
#[derive(Debug, Clone)]
pub struct Key {
    /// `crash_id`, or `run_id` of a recording.
    pub column: &'static str,
    /// Identifies the crash or recording.
    pub id: String,
    /// Version of docs/schema.md.
    pub schema_version: u32,
    /// Program that made the table, with its version.
    pub extractor: String,
}

/// Writes the Parquet file of a table, a row group at a time.
pub(crate) struct TableWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
}

impl<W: Write + Send> TableWriter<W> {
    /// Creates a file with these columns, of which only names and kinds count.
    pub(crate) fn new<N: AsRef<str>>(out: W, name: &str, columns: &[(N, Values)]) -> Result<Self> {
        Self::compressed(out, name, columns, Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
    }

    /// As [`new`](Self::new), with another codec.
    pub(crate) fn compressed<N: AsRef<str>>(
        out: W,
        name: &str,
        columns: &[(N, Values)],
        codec: Compression,
    ) -> Result<Self> {
        let fields: String = columns.iter().map(|(name, values)| values.schema(name.as_ref())).collect();
        let schema = parse_message_type(&format!("message {name} {{ {fields} }}"))?;
        let properties = WriterProperties::builder()
            .set_compression(codec)
            // Without the version of the library.
            .set_created_by("pagehaul-fleet".into())
            .build();
        Ok(Self { file: SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))? })
    }

    /// Writes a row group.
    pub(crate) fn write(&mut self, columns: impl IntoIterator<Item = Values>) -> Result<()> {
        let mut group = self.file.next_row_group()?;
        for values in columns {
            let Some(mut column) = group.next_column()? else { break };
            values.write(&mut column)?;
            column.close()?;
        }
        group.close().map(drop)
    }

    /// Writes the end of the file.
    pub(crate) fn finish(self) -> Result<()> {
        self.file.close().map(drop)
    }
}
