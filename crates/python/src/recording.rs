//! Reports of trace files: page reclaim and latencies.

use std::path::{Path, PathBuf};

use pagehaul_latency::{EventName, Key, LatencyError, LatencyReport, Options, Unit, trace_file};
use pagehaul_physmem::file::{Sequential, is_url, shown};
use pagehaul_reclaim::analyse;
use pagehaul_trace::{Input, TraceFile};
use pagehaul_vmcore::open_file;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors::{TraceError, open_error};
use crate::explain::json;

fn open(path: &Path) -> PyResult<TraceFile> {
    let input = if is_url(path) {
        let file = open_file(path).map_err(|why| open_error(why, &[path]))?;
        Input::copy(&mut Sequential::new(file), &shown(path))
    } else {
        Input::open(path)
    };
    input.and_then(TraceFile::from_input).map_err(|why| open_error(why, &[path]))
}

/// Returns the reclaim report of a recording, a `trace.dat` or a text trace, as JSON.
#[pyfunction]
pub(crate) fn _reclaim_json(py: Python<'_>, path: PathBuf, label: Option<String>) -> PyResult<String> {
    py.detach(|| {
        let shown = shown(&path);
        let stem = || shown.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let label = label.unwrap_or_else(stem);
        let report = analyse(&mut open(&path)?, &shown.display().to_string(), &label);
        json(&report.map_err(|why| TraceError::new_err(why.to_string()))?)
    })
}

/// Returns the latencies of functions, or between two events, of a trace file as JSON.
#[pyfunction]
pub(crate) fn _latency_json(
    py: Python<'_>,
    path: PathBuf,
    functions: Vec<String>,
    between: Option<(String, String)>,
    key: &str,
    by_function: bool,
) -> PyResult<String> {
    let wrong = |why: String| PyValueError::new_err(why);
    let between = match between {
        Some((start, end)) => Some((name(&start)?, name(&end)?)),
        None => None,
    };
    let key: Key = key.parse().map_err(wrong)?;
    py.detach(|| {
        let options =
            Options { unit: Unit::Nanoseconds, step: None, by_function, pids: Vec::new(), buffer_kb: 0 };
        let mut trace = open(&path)?;
        let mut found: Option<LatencyReport> = None;
        let take = |_, report| {
            found = Some(report);
            Ok::<(), LatencyError>(())
        };
        let all = trace_file::Intervals::default();
        let measured = match &between {
            Some((start, end)) => {
                trace_file::measure_pair(&mut trace, (start, end, &key), &options, all, take)
            }
            None => {
                let symbols = trace.info().symbols.clone();
                trace_file::measure_functions(&mut trace, (&functions, symbols), &options, all, take)
            }
        };
        measured.map_err(|why| TraceError::new_err(format!("{}: {why}", shown(&path).display())))?;
        json(&found)
    })
}

fn name(text: &str) -> PyResult<EventName> {
    text.parse().map_err(PyValueError::new_err)
}
