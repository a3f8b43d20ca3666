//! What each page was used for.

use std::sync::Arc;

use arrow_array::ffi::to_ffi;
use arrow_array::{Array, DictionaryArray, StringArray, UInt8Array, types::UInt8Type};
use pagehaul_kernel::{Kernel, PageClass, PageScanner};
use pagehaul_physmem::{PhysMemory, bits};
use pagehaul_pool::map_numbers;
use pyo3::exceptions::{PyIndexError, PyMemoryError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PySlice};

use crate::errors::kernel_error;
use crate::table::arrow_error;

/// The class of each page, one byte a page, by PFN. PAGE_CLASSES has the names.
#[pyclass(frozen, module = "pagehaul._native")]
pub(crate) struct PageMap {
    classes: UInt8Array,
}

impl PageMap {
    /// Reads the struct pages of `memory` with `threads` threads. Runs without the GIL.
    pub(crate) fn read(memory: &dyn PhysMemory, threads: usize) -> PyResult<Self> {
        let kernel = Kernel::discover(memory).map_err(kernel_error)?;
        let end = memory.ranges().end_pfn(kernel.page_size());
        // Headers of a damaged dump may claim more than there is.
        let fits = |pages: &usize| Vec::<u8>::new().try_reserve_exact(*pages).is_ok();
        let pages = usize::try_from(end.number()).ok().filter(fits);
        let pages = pages.ok_or_else(|| {
            PyMemoryError::new_err(format!("the map of {} pages does not fit into memory", end.number()))
        })?;
        // Zeros, so that holes cost address space only.
        let mut classes = vec![PageClass::Absent as u8; pages];
        let worker = || {
            let block = kernel.pages_per_block();
            (
                PageScanner::new(&kernel, memory.view()),
                vec![PageClass::Absent; block],
                vec![0; block.div_ceil(64)],
            )
        };
        let blocks = map_numbers(
            "page map",
            threads,
            kernel.blocks(end),
            worker,
            |(scanner, found, exists), block| {
                let first = kernel.block_pfns(block).start;
                memory.ranges().mark_pages(first, kernel.page_size(), false, exists);
                if exists.iter().all(|word| *word == 0) {
                    return None;
                }
                let scanned = scanner.scan(block, found).map(|_| {
                    let mut bytes = vec![PageClass::Absent as u8; found.len()];
                    for page in bits::ones(exists) {
                        if let (Some(byte), Some(class)) = (bytes.get_mut(page), found.get(page)) {
                            *byte = *class as u8;
                        }
                    }
                    (first, bytes)
                });
                Some(scanned)
            },
        );
        for block in blocks {
            let (first, bytes) = block.map_err(kernel_error)?;
            let rest = classes.get_mut(first.number() as usize..).unwrap_or_default();
            rest.iter_mut().zip(bytes).for_each(|(class, byte)| *class = byte);
        }
        Ok(Self { classes: classes.into() })
    }

    fn name(&self, pfn: isize) -> PyResult<&'static str> {
        let len = self.classes.len();
        let index = if pfn < 0 { len.checked_add_signed(pfn) } else { usize::try_from(pfn).ok() };
        let number = index.filter(|index| *index < len).map(|index| self.classes.value(index));
        let class = number.and_then(|number| PageClass::ALL.get(usize::from(number)));
        class
            .map(|class| class.name())
            .ok_or_else(|| PyIndexError::new_err(format!("no page has the PFN {pfn}")))
    }

    /// Returns the pages of a slice. Without a step they share the memory of this map.
    fn slice(&self, slice: &Bound<'_, PySlice>) -> PyResult<Self> {
        let found = slice.indices(self.classes.len().try_into()?)?;
        if found.step == 1 {
            return Ok(Self { classes: self.classes.slice(found.start.try_into()?, found.slicelength) });
        }
        let values = self.classes.values();
        let pfns = (0..found.slicelength as isize).map(|at| found.start + at * found.step);
        let class = |pfn| usize::try_from(pfn).ok().and_then(|pfn| values.get(pfn).copied());
        Ok(Self { classes: pfns.filter_map(class).collect::<Vec<u8>>().into() })
    }
}

#[pymethods]
impl PageMap {
    fn __len__(&self) -> usize {
        self.classes.len()
    }

    /// Returns the name of the class of the page with this PFN, or the map of the pages of a slice.
    fn __getitem__<'py>(&self, py: Python<'py>, index: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match index.cast::<PySlice>() {
            Ok(slice) => Ok(Bound::new(py, self.slice(slice)?)?.into_any()),
            Err(_) => Ok(self.name(index.extract()?)?.into_pyobject(py)?.into_any()),
        }
    }

    /// Shows the bytes to numpy, without copying.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", (self.classes.len(),))?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("data", (self.classes.values().as_ptr() as usize, true))?;
        Ok(interface)
    }

    /// Exports the map to an Arrow library, as an array of the classes' names (a dictionary), without copying.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        let names = StringArray::from_iter_values(PageClass::ALL.map(PageClass::name));
        let named = DictionaryArray::<UInt8Type>::try_new(self.classes.clone(), Arc::new(names))
            .map_err(arrow_error)?;
        let (array, schema) = to_ffi(&named.to_data()).map_err(arrow_error)?;
        Ok((
            PyCapsule::new_with_value(py, schema, c"arrow_schema")?,
            PyCapsule::new_with_value(py, array, c"arrow_array")?,
        ))
    }

    fn __repr__(&self) -> String {
        format!("<pagehaul.PageMap: {} pages>", self.classes.len())
    }
}
