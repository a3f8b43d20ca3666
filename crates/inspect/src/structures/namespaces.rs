//! Namespaces that tasks are in.

use std::collections::HashMap;

use pagehaul_btf::{Fault, Object};

use super::tasks::{Task, Tasks};
use crate::machine::Machine;

/// Reasons that are kept.
const MAX_BROKEN: usize = 16;

/// A namespace.
pub(crate) struct Namespace<'a> {
    /// Its structure.
    pub(crate) object: Object<'a>,
    /// Its inode number.
    pub(crate) number: u64,
    /// The first task in it.
    pub(crate) first: &'a Task,
    /// Tasks in it.
    pub(crate) tasks: u64,
}

/// Returns the namespaces of one kind (a member of `struct nsproxy`), that of the first task first, and adds to `broken` why
/// some may be missing.
pub(crate) fn namespaces<'a>(
    machine: &'a Machine<'_>,
    tasks: &'a Tasks,
    kind: &str,
    broken: &mut Vec<String>,
) -> Vec<Namespace<'a>> {
    let mut found: Vec<Namespace<'a>> = Vec::new();
    let mut places: HashMap<u64, usize> = HashMap::new();
    // A task that is not in the list may be in another namespace.
    broken.extend(tasks.broken.iter().cloned());
    if tasks.all.is_empty() {
        broken.push("namespaces: no task could be read".to_owned());
    }
    for first in &tasks.all {
        match namespace(machine, first, kind) {
            Ok(None) => {}
            Ok(Some((object, number))) => {
                let place = *places.entry(object.address()).or_insert(found.len());
                match found.get_mut(place) {
                    Some(known) => known.tasks += 1,
                    None => found.push(Namespace { object, number, first, tasks: 1 }),
                }
            }
            Err(why) if broken.len() < MAX_BROKEN => {
                broken.push(format!("namespaces of {}: {why}", first.label()));
            }
            Err(_) => {}
        }
    }
    found
}

/// None of a task that has ended.
fn namespace<'a>(
    machine: &'a Machine<'_>,
    task: &Task,
    kind: &str,
) -> Result<Option<(Object<'a>, u64)>, Fault> {
    let proxy = machine.space().object(task.address.0, "task_struct")?.get("nsproxy")?;
    if proxy.pointer()? == 0 {
        return Ok(None);
    }
    let found = proxy.target()?.get(kind)?;
    if found.pointer()? == 0 {
        return Ok(None);
    }
    let found = found.target()?;
    Ok(Some((found, found.number("ns.inum")?)))
}
