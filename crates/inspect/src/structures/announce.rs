//! Long lists of a dump on a server, announced: their nodes, which lead one to the next, cost no request each.
//!
//! Everything here may fail: what was not announced is fetched when it is read.

use pagehaul_btf::{Fault, Object};

use crate::machine::Machine;

/// Announces all tasks, which the table of thread IDs lists. Since 95846ecf9dac (4.15) it is a radix tree.
pub(crate) fn tasks(machine: &Machine<'_>) {
    if !machine.memory().is_remote() {
        return;
    }
    let _ = find_tasks(machine);
}

fn find_tasks(machine: &Machine<'_>) -> Result<(), Fault> {
    let space = machine.space();
    let ids = machine.variable("init_pid_ns", "pid_namespace")?.get("idr.idr_rt")?.xarray()?.items;
    let ids = ids.into_iter().map(|(_, id)| space.object(id, "pid")).collect::<Result<Vec<_>, _>>()?;
    space.will_need(&ids);
    // PIDTYPE_PID is the first kind.
    let link = space.offset_of("task_struct", "pid_links")?;
    let task = |id: &Object<'_>| {
        let first = id.get("tasks")?.index(0)?.get("first")?.pointer()?;
        space.object(first.wrapping_sub(link), "task_struct")
    };
    let tasks: Vec<_> = ids.iter().filter_map(|id| task(id).ok()).collect();
    space.will_need(&tasks);
    space.announce(&tasks, "signal->thread_head");
    Ok(())
}

/// Announces names and nodes of slab caches.
pub(crate) fn caches(machine: &Machine<'_>, caches: &[Object<'_>]) {
    if !machine.memory().is_remote() {
        return;
    }
    let space = machine.space();
    let names = space.announce(caches, "name");
    let name = |name: &Object<'_>| name.pointer().ok().map(|start| start..start.saturating_add(64));
    machine.memory().will_need(&names.iter().filter_map(name).collect::<Vec<_>>());
    let nodes: Vec<_> = caches.iter().filter_map(|cache| first_node(cache).ok()).collect();
    space.announce(&nodes, "->");
}

fn first_node<'a>(cache: &Object<'a>) -> Result<Object<'a>, Fault> {
    match cache.get("per_node") {
        Ok(all) => all.index(0)?.get("node"),
        Err(_) => cache.get("node")?.index(0),
    }
}
