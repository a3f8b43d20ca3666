//! The native part of the Python package `pagehaul`; `python/pagehaul` is the rest.
//!
//! # Threads and forks
//! Reads that need the file, and everything that takes longer than a copy from the cache, release the GIL. The few locks and lazily
//! made values here change only while a thread holds the GIL. A fork of a Python program also holds it, so a child never inherits a
//! lock that no thread of it will release. Files are read at explicit offsets: parent and child do not move each other's.

mod cache;
mod dump;
mod errors;
mod explain;
mod opened;
mod page_map;
mod reader;
mod recording;
mod segment;
mod shared;
mod table;

use pyo3::prelude::*;

/// The module `pagehaul._native`.
#[pymodule]
mod _native {
    use pagehaul_kernel::PageClass;
    use pyo3::prelude::*;
    use pyo3::types::PyTuple;

    #[pymodule_export]
    use crate::dump::Dump;
    #[pymodule_export]
    use crate::page_map::PageMap;
    #[pymodule_export]
    use crate::recording::{_latency_json, _reclaim_json};
    #[pymodule_export]
    use crate::segment::SegmentReader;
    #[pymodule_export]
    use crate::table::Table;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let names = PyTuple::new(module.py(), PageClass::ALL.map(PageClass::name))?;
        module.add("PAGE_CLASSES", names)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
