//! The triage report, as JSON: the same as `pagehaul triage --json --tasks --stacks`.

use pagehaul_inspect::{Machine, Task, TaskStack, TriageReport};
use pagehaul_kernel::{AddressSpace, KernelLog, VirtualMemory};
use pagehaul_vmcore::Source;
use pyo3::PyResult;
use serde::Serialize;

use crate::errors::kernel_error;

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    report: &'a TriageReport,
    tasks: &'a [Task],
    #[serde(skip_serializing_if = "Option::is_none")]
    stacks: Option<Vec<TaskStack>>,
}

/// Makes the report. Runs without the GIL.
pub(crate) fn triage(source: &Source, stacks: bool) -> PyResult<String> {
    let memory = source.memory();
    let space = AddressSpace::discover(memory).map_err(kernel_error)?;
    let virtual_memory = VirtualMemory::new(&space, memory);
    let log = KernelLog::read_unerased(memory);
    let machine = match Machine::open(&space, &virtual_memory, memory.notes()) {
        // As `pagehaul triage` does.
        Err(why) if log.is_ok() || source.lacks_pages() => {
            Machine::without_symbols(&space, &virtual_memory, memory.notes(), &why)
        }
        opened => opened.map_err(kernel_error)?,
    };
    let mut report = TriageReport::new(&machine, log.as_ref());
    pagehaul_render::triage::name_commands(&mut report);
    report.missing.extend(source.warnings());
    let stacks = stacks.then(|| report.stacks(&machine));
    json(&Document { report: &report, tasks: &report.tasks.all, stacks })
}

/// Returns JSON of what the package turns into objects.
pub(crate) fn json(value: &impl Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(kernel_error)
}
