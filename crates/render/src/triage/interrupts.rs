//! Interrupts and softirqs.

use pagehaul_inspect::{Interrupt, Interrupts};
use pagehaul_present::Table;
use pagehaul_present::number::count;

use super::lines::{FEW, Lines as _, known, whys};

pub(super) fn interrupts(found: &Interrupts, out: &mut String) {
    put!(out, "\nInterrupts: {}", known(found.all.len(), &found.broken));
    let mut table = Table::new(["IRQ", "count", "CPUs", "controller", "drivers", "irq_desc"]).left([2, 3, 4]);
    table.rows(found.all.iter().map(|interrupt| {
        [
            interrupt.number.to_string(),
            count(interrupt.total()),
            busiest(interrupt),
            interrupt.chip.clone().unwrap_or_default(),
            drivers(interrupt),
            interrupt.address.to_string(),
        ]
    }));
    if !found.all.is_empty() {
        out.put_table(&table);
    }
    softirqs(found, out);
    whys(&found.broken, out);
}

/// The CPUs on which it came most often.
fn busiest(interrupt: &Interrupt) -> String {
    let mut cpus: Vec<_> = interrupt.by_cpu.iter().collect();
    cpus.sort_by_key(|(cpu, count)| (std::cmp::Reverse(**count), **cpu));
    let mut parts: Vec<String> =
        cpus.iter().take(FEW).map(|(cpu, times)| format!("{cpu}: {}", count(**times))).collect();
    if cpus.len() > FEW {
        parts.push(format!("{} more", count((cpus.len() - FEW) as u64)));
    }
    parts.join(", ")
}

fn drivers(interrupt: &Interrupt) -> String {
    let names = interrupt.actions.join(", ");
    if interrupt.disabled { format!("{names} (disabled)") } else { names }
}

fn softirqs(found: &Interrupts, out: &mut String) {
    let Some(first) = found.cpus.first() else { return };
    let names: Vec<&String> = first.softirqs.keys().collect();
    let heading = ["CPU".to_owned(), "interrupts".to_owned()].into_iter();
    let heading = heading.chain(names.iter().map(|name| (*name).clone())).chain(["pending".to_owned()]);
    let mut table = Table::new(heading).left([2 + names.len()]);
    for cpu in &found.cpus {
        let counts =
            names.iter().map(|name| cpu.softirqs.get(*name).copied().map_or_else(String::new, count));
        let pending = cpu.pending.as_ref().map_or_else(|| "not known".to_owned(), |names| names.join(" "));
        let start = [cpu.cpu.to_string(), count(cpu.interrupts)].into_iter();
        table.row(start.chain(counts).chain([pending]));
    }
    put!(out, "\nSoftirqs by CPU");
    out.put_table(&table);
}
