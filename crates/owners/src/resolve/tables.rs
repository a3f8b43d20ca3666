//! Page tables by process.

use std::collections::HashMap;

use pagehaul_btf::Fault;
use pagehaul_inspect::{Machine, Tasks};

use super::processes::Processes;

/// Returns how many page tables each process has (`mm.pgtables_bytes`, af5b0f6a09e4, 4.15), without its page directory, and of how many
/// processes that could not be read.
pub(crate) fn tables_by_process(
    machine: &Machine<'_>,
    tasks: &Tasks,
    processes: &mut Processes<'_>,
) -> (HashMap<String, u64>, u64) {
    let page = machine.page_size().bytes().max(1) as u64;
    let mut found: HashMap<u64, u64> = HashMap::new();
    let mut unread = 0;
    for task in tasks.all.iter().filter(|task| task.mm.0 != 0) {
        found.entry(task.mm.0).or_insert_with(|| {
            let mm = machine.space().object(task.mm.0, "mm_struct");
            // An atomic counter, until 4.20 one of them (`nr_ptes`).
            let bytes = mm.and_then(|mm| mm.number("pgtables_bytes.counter"));
            unread += u64::from(matches!(bytes, Err(Fault::Unreadable(_))));
            bytes.unwrap_or(0) / page
        });
    }
    let mut by_name: HashMap<String, u64> = HashMap::new();
    for (mm, pages) in found.into_iter().filter(|(_, pages)| *pages > 0) {
        let sum = by_name.entry(processes.name(mm)).or_default();
        *sum = sum.saturating_add(pages);
    }
    (by_name, unread)
}
