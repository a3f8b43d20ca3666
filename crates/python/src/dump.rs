//! A dump.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::available_parallelism;

use pagehaul_census::{Census, Heading, count};
use pagehaul_elfcore::notes;
use pagehaul_facts::{Facts, registers_of};
use pagehaul_kernel::{Caller, Kernel, KernelLog, VmcoreInfo};
use pagehaul_physmem::PhysMemory;
use pagehaul_physmem::file::{is_url, shown};
use pagehaul_vmcore::SourceKind;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType};

use crate::errors::{kernel_error, open_error};
use crate::explain::{json, triage};
use crate::page_map::PageMap;
use crate::segment::SegmentReader;
use crate::shared::Shared;
use crate::table::{Table, numbers, small_numbers, texts};

/// The largest cache of a thread.
const MOST_CACHE: usize = 1 << 30;

/// Names a register, and its value.
type Register = (&'static str, u64);

/// The native part of `pagehaul.Dump`.
#[pyclass(frozen, subclass, module = "pagehaul._native")]
pub(crate) struct Dump {
    shared: Arc<Shared>,
}

impl Dump {
    fn memory(&self) -> &dyn PhysMemory {
        self.shared.opened.source.memory()
    }

    fn census(&self, py: Python<'_>) -> PyResult<Census> {
        py.detach(|| {
            let memory = self.memory();
            let kernel = Kernel::discover(memory).map_err(kernel_error)?;
            count(memory, &kernel, Heading::default(), threads()).map_err(kernel_error)
        })
    }
}

fn threads() -> usize {
    available_parallelism().map_or(1, Into::into)
}

#[pymethods]
impl Dump {
    #[new]
    #[pyo3(signature = (*paths, cache_bytes = 16 << 20))]
    fn new(py: Python<'_>, paths: &Bound<'_, PyTuple>, cache_bytes: usize) -> PyResult<Self> {
        let paths: Vec<PathBuf> = paths.extract()?;
        if paths.is_empty() {
            return Err(PyValueError::new_err("name a dump, or the parts of a split set"));
        }
        if cache_bytes > MOST_CACHE {
            return Err(PyValueError::new_err(format!(
                "cache_bytes is {cache_bytes}; at most {MOST_CACHE} are possible"
            )));
        }
        let shared = py.detach(|| Shared::open(&paths, cache_bytes)).map_err(open_error)?;
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The files. URLs are strings, without their queries, which may hold signatures.
    #[getter]
    fn paths<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let object = |path: &PathBuf| match is_url(path) {
            // pathlib would join the slashes of a URL.
            true => shown(path).into_os_string().into_bound_py_any(py),
            false => path.into_bound_py_any(py),
        };
        self.shared.opened.source.paths().iter().map(object).collect()
    }

    /// The format: "elf", "kdump", "flattened" or "split".
    #[getter]
    fn format(&self) -> &'static str {
        match self.shared.opened.source.kind() {
            SourceKind::Elf(_) => "elf",
            SourceKind::Kdump(_) => "kdump",
            SourceKind::Flattened(_) => "flattened",
            SourceKind::Split(_) => "split",
            SourceKind::Simulated(_) => "simulated",
        }
    }

    /// The dump level, 0 to 31; None for ELF files, which do not have it.
    #[getter]
    fn level(&self) -> Option<u32> {
        self.shared.opened.source.dumps().first().map(|dump| dump.dump_level())
    }

    /// What `uname -m` calls the machine.
    #[getter]
    fn machine(&self) -> String {
        self.memory().platform().name()
    }

    /// Bytes of a page.
    #[getter]
    fn page_size(&self) -> usize {
        self.memory().platform().page_size.bytes()
    }

    /// Bytes of a pointer.
    #[getter]
    fn pointer_size(&self) -> u32 {
        if self.memory().platform().wide { 8 } else { 4 }
    }

    /// "little" or "big".
    #[getter]
    fn byte_order(&self) -> &'static str {
        if self.memory().platform().big_endian { "big" } else { "little" }
    }

    /// What is wrong with the dump as a whole, one sentence each: it is truncated, incomplete, or lacks parts.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.shared.opened.source.warnings()
    }

    /// Ranges of physical memory, excluded pages included: first address, and first address after.
    #[getter]
    fn ranges(&self) -> Vec<(u64, u64)> {
        self.memory().ranges().extents().map(|range| (range.start, range.end)).collect()
    }

    fn _notes<'py>(&self, py: Python<'py>) -> Vec<(String, u32, Bound<'py, PyBytes>)> {
        let note = |note: notes::Note<'_>| {
            (String::from_utf8_lossy(note.name).into_owned(), note.kind, PyBytes::new(py, note.desc))
        };
        notes::iter(self.memory().notes()).map(note).collect()
    }

    /// The text of VMCOREINFO; None if the notes have none.
    #[getter]
    fn vmcoreinfo_text<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        let (_, text) = notes::vmcoreinfo(self.memory().notes())?;
        let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        Some(PyBytes::new(py, text.get(..end).unwrap_or(text)))
    }

    /// The lines of VMCOREINFO: keys and values.
    #[getter]
    fn vmcoreinfo<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let lines = PyDict::new(py);
        if let Some((_, text)) = notes::vmcoreinfo(self.memory().notes()) {
            for (key, value) in VmcoreInfo::parse(text).iter() {
                lines.set_item(key, value)?;
            }
        }
        Ok(lines)
    }

    fn _registers(&self) -> Vec<(usize, u32, Vec<Register>)> {
        let cpus = registers_of(self.memory().notes(), self.memory().platform());
        cpus.into_iter().map(|cpu| (cpu.cpu, cpu.pid, cpu.registers)).collect()
    }

    /// Reads memory at a physical address or, with virtual=True, at a kernel virtual address.
    #[pyo3(signature = (address, size, *, r#virtual = false))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        address: u64,
        size: usize,
        r#virtual: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, size, |buf| {
            let read = match r#virtual {
                true => self.shared.kernel(py, address, buf),
                false => self.shared.physical(py, address, buf),
            };
            Ok(read?)
        })
    }

    /// Returns the physical address of a kernel virtual address.
    fn translate(&self, py: Python<'_>, address: u64) -> PyResult<u64> {
        Ok(self.shared.translate(py, address)?)
    }

    /// Returns whether the kernel's page tables were found, which virtual addresses need.
    fn has_page_tables(&self, py: Python<'_>) -> bool {
        self.shared.has_page_tables(py)
    }

    /// Returns the kernel log: seq, time_ns, level, facility, task, cpu and text of each record.
    fn log(&self, py: Python<'_>) -> PyResult<Table> {
        let log = py.detach(|| KernelLog::read(self.memory())).map_err(kernel_error)?;
        let records = &log.records;
        let task =
            |caller: Option<Caller>| if let Some(Caller::Task(pid)) = caller { Some(pid) } else { None };
        let cpu = |caller: Option<Caller>| if let Some(Caller::Cpu(cpu)) = caller { Some(cpu) } else { None };
        Table::new(vec![
            ("seq", numbers(records.iter().map(|record| record.sequence))),
            ("time_ns", numbers(records.iter().map(|record| Some(record.nanoseconds)))),
            ("level", small_numbers(records.iter().map(|record| Some(record.level.into())))),
            ("facility", small_numbers(records.iter().map(|record| Some(record.facility.into())))),
            ("task", small_numbers(records.iter().map(|record| task(record.caller)))),
            ("cpu", small_numbers(records.iter().map(|record| cpu(record.caller)))),
            ("text", texts(records.iter().map(|record| record.text.as_str()))),
        ])
    }

    /// Returns the class of each page, from the kernel's struct pages.
    fn page_map(&self, py: Python<'_>) -> PyResult<PageMap> {
        py.detach(|| PageMap::read(self.memory(), threads()))
    }

    /// Returns the number of pages of each class, and how many of them the dump holds.
    fn page_classes(&self, py: Python<'_>) -> PyResult<Table> {
        let classes = self.census(py)?.classes;
        Table::new(vec![
            ("class", texts(classes.iter().map(|found| found.class))),
            ("pages", numbers(classes.iter().map(|found| Some(found.pages)))),
            ("in_dump_pages", numbers(classes.iter().map(|found| Some(found.in_dump)))),
        ])
    }

    /// Returns the number of pages of each class in each zone of each node.
    fn zones(&self, py: Python<'_>) -> PyResult<Table> {
        let zones = self.census(py)?.zones;
        let rows: Vec<_> = zones
            .iter()
            .flat_map(|zone| zone.classes.iter().map(move |(class, pages)| (zone, *class, *pages)))
            .collect();
        Table::new(vec![
            ("node", numbers(rows.iter().map(|(zone, ..)| Some(zone.node)))),
            ("zone", texts(rows.iter().map(|(zone, ..)| zone.zone))),
            ("class", texts(rows.iter().map(|(_, class, _)| *class))),
            ("pages", numbers(rows.iter().map(|(.., pages)| Some(*pages)))),
        ])
    }

    fn _facts_json(&self, py: Python<'_>) -> PyResult<String> {
        let extractor = concat!("pagehaul ", env!("CARGO_PKG_VERSION")).to_owned();
        json(&py.detach(|| Facts::read(self.memory(), extractor)))
    }

    fn _triage_json(&self, py: Python<'_>, stacks: bool) -> PyResult<String> {
        py.detach(|| triage(&self.shared.opened.source, stacks))
    }

    fn _segment_reader(&self, fault: Py<PyType>, kernel: bool) -> SegmentReader {
        SegmentReader::new(Arc::clone(&self.shared), kernel, fault)
    }
}
