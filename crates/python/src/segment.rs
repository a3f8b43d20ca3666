//! Memory for drgn.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

use crate::errors::ReadFailure;
use crate::shared::Shared;

/// The `read_fn` of `drgn.Program.add_memory_segment()`. drgn calls it for every read, so it is native.
#[pyclass(frozen, module = "pagehaul._native")]
pub(crate) struct SegmentReader {
    shared: Arc<Shared>,
    kernel: bool,
    /// drgn.FaultError: drgn takes any other exception for a failure of the whole operation, as a closed dump is.
    fault: Py<PyType>,
}

impl SegmentReader {
    pub(crate) fn new(shared: Arc<Shared>, kernel: bool, fault: Py<PyType>) -> Self {
        Self { shared, kernel, fault }
    }
}

#[pymethods]
impl SegmentReader {
    fn __call__<'py>(
        &self,
        py: Python<'py>,
        address: u64,
        count: usize,
        _offset: u64,
        _physical: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, count, |buf| {
            let read = match self.kernel {
                true => self.shared.kernel(py, address, buf),
                false => self.shared.physical(py, address, buf),
            };
            read.map_err(|failure| match failure {
                ReadFailure::Closed(_) => failure.into(),
                _ => PyErr::from_type(self.fault.bind(py).clone(), (failure.to_string(), address)),
            })
        })
    }
}
