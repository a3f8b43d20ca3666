//! Tables that Arrow libraries take without copying.

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Int8Type, Int16Type, Int32Type, Int64Type};
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchIterator, cast::AsArray};
use arrow_schema::ffi::FFI_ArrowSchema;
use arrow_schema::{ArrowError, DataType};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList};

/// Turns an error of the Arrow library into an exception.
pub(crate) fn arrow_error(error: ArrowError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A table. `pyarrow.table(t)`, `polars.DataFrame(t)` and DuckDB take it as it is.
#[pyclass(frozen, module = "pagehaul._native")]
pub(crate) struct Table {
    batch: RecordBatch,
}

impl Table {
    pub(crate) fn new(columns: Vec<(&str, ArrayRef)>) -> PyResult<Self> {
        let columns = columns.into_iter().map(|(name, column)| (name, column, true));
        Ok(Self { batch: RecordBatch::try_from_iter_with_nullable(columns).map_err(arrow_error)? })
    }

    fn value(&self, py: Python<'_>, column: &ArrayRef, row: usize) -> PyResult<Py<PyAny>> {
        if column.is_null(row) {
            return Ok(py.None());
        }
        let number = |value: i64| Ok(value.into_pyobject(py)?.into_any().unbind());
        match column.data_type() {
            DataType::Int8 => number(column.as_primitive::<Int8Type>().value(row).into()),
            DataType::Int16 => number(column.as_primitive::<Int16Type>().value(row).into()),
            DataType::Int32 => number(column.as_primitive::<Int32Type>().value(row).into()),
            DataType::Int64 => number(column.as_primitive::<Int64Type>().value(row)),
            DataType::Utf8 => Ok(column.as_string::<i32>().value(row).into_pyobject(py)?.into_any().unbind()),
            other => Err(PyValueError::new_err(format!("rows() has no values of the type {other}"))),
        }
    }
}

#[pymethods]
impl Table {
    /// Names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// Returns a dict for each row, for programs without an Arrow library.
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let rows = PyList::empty(py);
        let schema = self.batch.schema();
        for row in 0..self.batch.num_rows() {
            let values = PyDict::new(py);
            for (field, column) in schema.fields().iter().zip(self.batch.columns()) {
                values.set_item(field.name(), self.value(py, column, row)?)?;
            }
            rows.append(values)?;
        }
        Ok(rows)
    }

    /// Exports the table to an Arrow library. It has one type only, so a requested schema changes nothing.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(batches)), c"arrow_array_stream")
    }

    /// Exports the types of the columns to an Arrow library.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*self.batch.schema()).map_err(arrow_error)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    fn __repr__(&self) -> String {
        format!("<pagehaul.Table: {} rows of {}>", self.batch.num_rows(), self.columns().join(", "))
    }
}

/// Returns a column of texts.
pub(crate) fn texts<'a>(values: impl Iterator<Item = &'a str>) -> ArrayRef {
    Arc::new(values.map(Some).collect::<arrow_array::StringArray>())
}

/// Returns a column of numbers. Those above 2^63, which no count reaches, are null.
pub(crate) fn numbers(values: impl Iterator<Item = Option<u64>>) -> ArrayRef {
    let values = values.map(|value| value.and_then(|value| i64::try_from(value).ok()));
    Arc::new(values.collect::<arrow_array::Int64Array>())
}

/// Returns a column of small numbers.
pub(crate) fn small_numbers(values: impl Iterator<Item = Option<u32>>) -> ArrayRef {
    let values = values.map(|value| value.and_then(|value| i32::try_from(value).ok()));
    Arc::new(values.collect::<arrow_array::Int32Array>())
}
