//! Names of user tasks and of the host. Those of kernel threads are the kernel's own words.

use std::collections::BTreeSet;

use pagehaul_btf::{Fault, Object};
use pagehaul_elfcore::notes;
use pagehaul_inspect::{Machine, tasks};

use crate::collect::Collector;
use crate::log;

pub(crate) fn find(machine: &Machine<'_>, out: &mut Collector<'_>) {
    let outcome = of_tasks(machine, out);
    out.outcome("names of tasks", outcome);
    log::names(machine, out);
    let outcome = of_host(machine, out);
    out.outcome("names of the host", outcome);
}

fn of_tasks(machine: &Machine<'_>, out: &mut Collector<'_>) -> Result<(), Fault> {
    let tasks = tasks(machine)?;
    tasks.broken.into_iter().for_each(|why| out.gap(format!("names of tasks: {why}")));
    for task in tasks.all.iter().filter(|task| !task.kernel_thread) {
        let object = machine.space().object(task.address.0, "task_struct")?;
        erase_text(out, notes::TASK_NAMES, &object.get("comm")?);
    }
    Ok(())
}

fn of_host(machine: &Machine<'_>, out: &mut Collector<'_>) -> Result<(), Fault> {
    let mut namespaces = BTreeSet::from([machine.symbol("init_uts_ns")?]);
    for task in tasks(machine)?.all {
        let object = machine.space().object(task.address.0, "task_struct")?;
        // A task that has ended has none.
        namespaces.extend(object.get("nsproxy->uts_ns").and_then(|names| names.pointer()).ok());
    }
    for namespace in namespaces {
        let name = machine.space().object(namespace, "uts_namespace")?.get("name")?;
        erase_text(out, notes::HOST, &name.get("nodename")?);
        erase_text(out, "uts_namespace.name.domainname", &name.get("domainname")?);
    }
    Ok(())
}

/// Erases all of an array of characters but the last, which ends the longest text.
fn erase_text(out: &mut Collector<'_>, what: &str, text: &Object<'_>) {
    out.erase(what, text.address(), text.len().saturating_sub(1));
}
