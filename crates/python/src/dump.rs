//! A dump.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::available_parallelism;

use pagehaul_census::{Census, Heading, count};
use pagehaul_elfcore::notes;
use pagehaul_facts::{Facts, registers_of};
use pagehaul_kernel::{Caller, Kernel, KernelLog, VmcoreInfo};
use pagehaul_physmem::file::{is_url, shown};
use pagehaul_vmcore::SourceKind;
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType};

use crate::errors::{address, kernel_error, open_error};
use crate::explain::{json, triage};
use crate::opened::Opened;
use crate::page_map::PageMap;
use crate::segment::SegmentReader;
use crate::shared::Shared;
use crate::table::{Table, numbers, small_numbers, texts};

/// The largest cache of a thread.
const MAX_CACHE: usize = 1 << 30;

/// Owner, type and contents of an ELF note.
type Note<'py> = (String, u32, Bound<'py, PyBytes>);
/// Names a register, and its value.
type Register = (&'static str, u64);

/// The native part of `pagehaul.Dump`.
#[pyclass(frozen, subclass, module = "pagehaul._native")]
pub(crate) struct Dump {
    shared: Arc<Shared>,
}

impl Dump {
    /// Fails if the dump is closed.
    fn opened(&self) -> PyResult<Arc<Opened>> {
        Ok(self.shared.opened()?)
    }

    fn census(&self, py: Python<'_>) -> PyResult<Census> {
        let opened = self.opened()?;
        py.detach(|| {
            let memory = opened.source.memory();
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
        if cache_bytes > MAX_CACHE {
            return Err(PyValueError::new_err(format!(
                "cache_bytes is {cache_bytes}; at most {MAX_CACHE} are possible"
            )));
        }
        let shared =
            py.detach(|| Shared::open(&paths, cache_bytes)).map_err(|why| open_error(why, &paths))?;
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
        self.shared.paths().iter().map(object).collect()
    }

    /// Whether the dump is closed.
    #[getter]
    fn closed(&self) -> bool {
        self.shared.is_closed()
    }

    /// Closes the files.
    fn close(&self, py: Python<'_>) {
        self.shared.close(py);
    }

    /// The format: "elf", "kdump", "flattened", "split" or "image".
    #[getter]
    fn format(&self) -> PyResult<&'static str> {
        Ok(match self.opened()?.source.kind() {
            SourceKind::Elf(_) => "elf",
            SourceKind::Kdump(_) => "kdump",
            SourceKind::Flattened(_) => "flattened",
            SourceKind::Split(_) => "split",
            SourceKind::Image(_) => "image",
            SourceKind::Simulated(_) => "simulated",
        })
    }

    /// The dump level, 0 to 31; None for ELF files, which do not have it.
    #[getter]
    fn level(&self) -> PyResult<Option<u32>> {
        Ok(self.opened()?.source.dumps().first().map(|dump| dump.dump_level()))
    }

    /// What `uname -m` calls the machine.
    #[getter]
    fn machine(&self) -> PyResult<String> {
        Ok(self.opened()?.source.memory().platform().name())
    }

    /// Bytes of a page.
    #[getter]
    fn page_size(&self) -> PyResult<usize> {
        Ok(self.opened()?.source.memory().platform().page_size.bytes())
    }

    /// Bytes of a pointer.
    #[getter]
    fn pointer_size(&self) -> PyResult<u32> {
        Ok(if self.opened()?.source.memory().platform().wide { 8 } else { 4 })
    }

    /// "little" or "big".
    #[getter]
    fn byte_order(&self) -> PyResult<&'static str> {
        Ok(if self.opened()?.source.memory().platform().big_endian { "big" } else { "little" })
    }

    /// What is wrong with the dump as a whole, one sentence each: it is truncated, incomplete, or lacks parts.
    #[getter]
    fn warnings(&self) -> PyResult<Vec<String>> {
        Ok(self.opened()?.source.warnings())
    }

    /// Ranges of physical memory, excluded pages included: first address, and first address after.
    #[getter]
    fn ranges(&self) -> PyResult<Vec<(u64, u64)>> {
        let opened = self.opened()?;
        Ok(opened.source.memory().ranges().extents().map(|range| (range.start, range.end)).collect())
    }

    fn _notes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Note<'py>>> {
        let opened = self.opened()?;
        let note = |note: notes::Note<'_>| {
            (String::from_utf8_lossy(note.name).into_owned(), note.kind, PyBytes::new(py, note.desc))
        };
        Ok(notes::iter(opened.source.memory().notes()).map(note).collect())
    }

    /// The text of VMCOREINFO; None if the notes have none.
    #[getter]
    fn vmcoreinfo_text<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let opened = self.opened()?;
        let Some((_, text)) = notes::vmcoreinfo(opened.source.memory().notes()) else { return Ok(None) };
        let end = text.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
        Ok(Some(PyBytes::new(py, text.get(..end).unwrap_or(text))))
    }

    /// The lines of VMCOREINFO: keys and values.
    #[getter]
    fn vmcoreinfo<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (opened, lines) = (self.opened()?, PyDict::new(py));
        if let Some((_, text)) = notes::vmcoreinfo(opened.source.memory().notes()) {
            for (key, value) in VmcoreInfo::parse(text).iter() {
                lines.set_item(key, value)?;
            }
        }
        Ok(lines)
    }

    /// The ID of the crash.
    #[getter]
    fn crash_id(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.opened()?.crash_id(py))
    }

    fn _registers(&self) -> PyResult<Vec<(usize, u32, Vec<Register>)>> {
        let opened = self.opened()?;
        let memory = opened.source.memory();
        let cpus = registers_of(memory.notes(), memory.platform());
        Ok(cpus.into_iter().map(|cpu| (cpu.cpu, cpu.pid, cpu.registers)).collect())
    }

    /// Reads memory at a physical address, or with physical=False at a kernel virtual address.
    #[pyo3(signature = (address, size, *, physical))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        address: &Bound<'py, PyAny>,
        size: usize,
        physical: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let address = self::address(address)?;
        PyBytes::new_with(py, size, |buf| {
            let read = match physical {
                true => self.shared.physical(py, address, buf),
                false => self.shared.kernel(py, address, buf),
            };
            Ok(read?)
        })
    }

    /// Returns the physical address of a kernel virtual address.
    fn translate(&self, py: Python<'_>, address: &Bound<'_, PyAny>) -> PyResult<u64> {
        Ok(self.shared.translate(py, self::address(address)?)?)
    }

    /// Returns whether the kernel's page tables were found, which virtual addresses need.
    fn has_page_tables(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.opened()?.space(py).is_ok())
    }

    /// Returns the kernel log: seq, time_ns, level, facility, task, cpu and text of each record.
    fn log(&self, py: Python<'_>) -> PyResult<Table> {
        let opened = self.opened()?;
        let log = py.detach(|| KernelLog::read(opened.source.memory())).map_err(kernel_error)?;
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
        let opened = self.opened()?;
        py.detach(|| PageMap::read(opened.source.memory(), threads()))
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
        let opened = self.opened()?;
        json(&py.detach(|| Facts::read(opened.source.memory(), extractor)))
    }

    fn _triage_json(&self, py: Python<'_>, stacks: bool) -> PyResult<String> {
        let opened = self.opened()?;
        py.detach(|| triage(&opened.source, stacks))
    }

    fn _segment_reader(&self, fault: Py<PyType>, kernel: bool) -> SegmentReader {
        SegmentReader::new(Arc::clone(&self.shared), kernel, fault)
    }
}
