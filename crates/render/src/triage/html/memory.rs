//! Memory: a bar of what it is used for, which opens into a map of owners; zones, counters, processes, slab caches, vmalloc.

use maud::{Markup, html};
use pagehaul_inspect::{Next, TriageReport};

use super::words::one_line_cells;
use crate::memory_use::MemoryUse;
use crate::triage::memory;

pub(super) fn memory(report: &TriageReport, of: &MemoryUse) -> Option<(String, Markup)> {
    if of.is_empty() && report.memory.zones.is_empty() && report.memory.counters.is_empty() {
        return Some((String::new(), html! { p { "not known" } }));
    }
    // What a finding is about is open.
    let evidence = report.verdict.iter().any(|finding| matches!(finding.next, Next::Memory | Next::Owners));
    let body = html! {
        @if !of.is_empty() { (of.bar(evidence)) (of.table()) }
        @for (title, table) in memory::tables(report) {
            @if !table.rows.is_empty() { h3 { (title) } (one_line_cells(table)) }
        }
    };
    Some((memory::about(report), body))
}
