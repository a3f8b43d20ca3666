//! A table in memory, and how it becomes a Parquet file.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::Result;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;

/// zstd's default.
const ZSTD_LEVEL: i32 = 3;

/// The values of a column. Integers are signed: Spark reads UINT_64 as a decimal.
#[derive(Debug)]
pub(crate) enum Values {
    Text(Vec<Option<String>>),
    Int(Vec<Option<i32>>),
    Long(Vec<Option<i64>>),
    /// Microseconds since 1970, UTC: Spark has no nanoseconds.
    Time(Vec<Option<i64>>),
    Bool(Vec<Option<bool>>),
    Texts(Vec<Vec<String>>),
}

impl Values {
    fn schema(&self, name: &str) -> String {
        match self {
            Self::Text(_) => format!("OPTIONAL BYTE_ARRAY {name} (UTF8);"),
            Self::Int(_) => format!("OPTIONAL INT32 {name};"),
            Self::Long(_) => format!("OPTIONAL INT64 {name};"),
            Self::Time(_) => format!("OPTIONAL INT64 {name} (TIMESTAMP(MICROS,true));"),
            Self::Bool(_) => format!("OPTIONAL BOOLEAN {name};"),
            Self::Texts(_) => {
                format!(
                    "OPTIONAL group {name} (LIST) {{ REPEATED group list {{ REQUIRED BYTE_ARRAY element (UTF8); }} }}"
                )
            }
        }
    }

    fn write(self, column: &mut SerializedColumnWriter<'_>) -> Result<()> {
        let bytes = |text: String| ByteArray::from(text.into_bytes());
        match self {
            Self::Text(values) => {
                optional::<ByteArrayType>(column, values.into_iter().map(|text| text.map(bytes)).collect())
            }
            Self::Int(values) => optional::<Int32Type>(column, values),
            Self::Long(values) | Self::Time(values) => optional::<Int64Type>(column, values),
            Self::Bool(values) => optional::<BoolType>(column, values),
            Self::Texts(rows) => {
                // 1: the list is empty; 2: there is an element. 0 begins a row.
                let (mut definition, mut repetition, mut values) = (Vec::new(), Vec::new(), Vec::new());
                for row in rows {
                    if row.is_empty() {
                        definition.push(1);
                        repetition.push(0);
                    }
                    for (at, text) in row.into_iter().enumerate() {
                        definition.push(2);
                        repetition.push(i16::from(at > 0));
                        values.push(bytes(text));
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

fn optional<T: DataType>(column: &mut SerializedColumnWriter<'_>, values: Vec<Option<T::T>>) -> Result<()> {
    let definition: Vec<i16> = values.iter().map(|value| i16::from(value.is_some())).collect();
    let values: Vec<T::T> = values.into_iter().flatten().collect();
    column.typed::<T>().write_batch(&values, Some(&definition), None).map(drop)
}

/// A table.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) rows: usize,
    pub(crate) columns: Vec<(&'static str, Values)>,
}

impl Table {
    /// Writes a Parquet file: the same bytes for the same table.
    pub(crate) fn write(self, out: impl Write + Send) -> Result<()> {
        let fields: String = self.columns.iter().map(|(name, values)| values.schema(name)).collect();
        let schema = parse_message_type(&format!("message {} {{ {fields} }}", self.name))?;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
            // Without the version of the library.
            .set_created_by("pagehaul-fleet".into())
            .build();
        let mut file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties))?;
        let mut group = file.next_row_group()?;
        for (_, values) in self.columns {
            let Some(mut column) = group.next_column()? else { break };
            values.write(&mut column)?;
            column.close()?;
        }
        group.close()?;
        file.close().map(drop)
    }
}
