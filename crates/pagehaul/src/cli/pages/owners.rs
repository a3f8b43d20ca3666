//! `pagehaul pages --owners`.

use anyhow::Context;
use pagehaul_inspect::Machine;
use pagehaul_kernel::{Kernel, ReadVirtual, VirtualMemory};
use pagehaul_owners::{Balance, Effort, balance};
use pagehaul_vmcore::Source;

use crate::cli::completeness;
use crate::cli::redact::{Names, Redaction, task_names};

/// Finds the owners of all pages of a dump, and redacts them.
pub(super) fn find(
    source: &Source,
    kernel: &Kernel,
    effort: Effort,
    redaction: Option<&Redaction>,
) -> anyhow::Result<Balance> {
    let place = || source.path().display().to_string();
    let memory = source.memory();
    let virtual_memory = VirtualMemory::new(kernel.space(), memory);
    let machine = match Machine::open(kernel.space(), &virtual_memory, memory.notes()) {
        // Struct pages tell many kinds of pages without them. A whole dump without symbols is of a kernel that has none.
        Err(why) if completeness::has_lost(source) && !completeness::has_failed() => {
            Machine::without_symbols(kernel.space(), &virtual_memory, memory.notes(), &why)
        }
        opened => opened.with_context(place)?,
    };
    let mut balance = balance(&machine, kernel, memory, effort).with_context(place)?;
    // A dump whose header says that it is complete can have damaged pages, also of struct pages.
    let lost = virtual_memory.take_lost().describe();
    balance.incomplete = completeness::has_lost(source) || lost.is_some();
    balance.is_whole &= !balance.incomplete;
    balance.missing.splice(0..0, machine.warnings().iter().cloned());
    balance.missing.extend(lost.map(|why| format!("owners: {why}")));
    let mut warnings = completeness::warnings(source);
    if let Some(redaction) = redaction {
        redaction.owners(&mut balance, &Names::of_tasks(&task_names(memory)));
        let hidden = redaction.name("path", &place());
        warnings.iter_mut().for_each(|why| *why = why.replace(&place(), &hidden));
    }
    balance.missing.splice(0..0, warnings);
    Ok(balance)
}
