//! Modules.

use pagehaul_inspect::{Part, TriageReport};
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, count};

use super::lines::{Lines as _, at_least};

/// Follows the modules that were read before the list turned out to be damaged.
const NOT_ALL_MODULES: &str = "the others could not be read";

pub(super) fn modules(report: &TriageReport, out: &mut String, full: bool) {
    let modules = &report.modules;
    if !report.modules_known || modules.is_empty() && !report.gaps.is_whole(Part::Modules) {
        put!(out, "\nModules: not known");
        return;
    }
    if full {
        out.push('\n');
        out.put_table(&table(report));
        if report.gaps.is_partial(Part::Modules) {
            put!(out, "  {NOT_ALL_MODULES}");
        }
        return;
    }
    let on_stack = |name: &str| report.cause.iter().any(|frame| frame.module.as_deref() == Some(name));
    let odd: Vec<String> = modules
        .iter()
        .filter(|module| !module.taints.is_empty())
        .map(|module| {
            let blamed = if on_stack(&module.name) { ", on the stack that died" } else { "" };
            format!("{} ({}{blamed})", module.name, module.taints)
        })
        .collect();
    let partial = report.gaps.is_partial(Part::Modules);
    let odd = match odd.is_empty() {
        // One of those that are not known may taint it.
        true if partial => NOT_ALL_MODULES.into(),
        true => "none taints the kernel".into(),
        false => odd.join(", "),
    };
    put!(out, "\nModules: {}{}; {odd}", at_least(report, Part::Modules), count(modules.len() as u64));
}

pub(super) fn table(report: &TriageReport) -> Table {
    let mut table = Table::new(["module", "base", "size", "taints"]).left([0, 1, 3]);
    for module in &report.modules {
        table.row([module.name.clone(), module.base.to_string(), bytes(module.size), module.taints.clone()]);
    }
    table
}
