//! Super blocks by the type of their file system.

use std::collections::BTreeSet;

use pagehaul_btf::Fault;
use pagehaul_inspect::Machine;

use crate::find::FindError;

/// Types of file systems. Kernels have some 50.
const MAX_TYPES: usize = 4096;

/// Finds the super blocks of file systems of `types`.
pub(crate) fn find(
    machine: &Machine<'_>,
    types: &[String],
    record: &mut Vec<String>,
) -> Result<Vec<u64>, FindError> {
    const WHAT: &str = "the list of super blocks";
    let walk = machine
        .variable("super_blocks", "list_head")
        .and_then(|head| head.list("super_block", "s_list"))
        .map_err(FindError::reading(WHAT))?;
    if let Some(why) = walk.broken {
        return Err(FindError::Broken { what: WHAT.into(), why });
    }
    let mut found = Vec::new();
    for block in walk.items {
        let name = block.get("s_type->name").and_then(|name| name.text());
        found.push((name.map_err(FindError::reading(WHAT))?, block.address()));
    }
    let mut known: BTreeSet<String> = found.iter().map(|(name, _)| name.clone()).collect();
    // Types that are not in use at the moment are no mistake. Where this list cannot be read, those in use are.
    known.extend(registered(machine).unwrap_or_default());
    let mut dropped = Vec::new();
    for name in types {
        if !known.contains(name) {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            return Err(FindError::NotThere(format!(
                "this kernel has no file system type {name}; expected one of {}",
                known.join(", ")
            )));
        }
        let blocks: Vec<u64> = found.iter().filter(|(of, _)| of == name).map(|(_, at)| *at).collect();
        record.push(match blocks.len() {
            0 => format!("drop file system {name}, not in use"),
            1 => format!("drop file system {name}"),
            many => format!("drop file system {name}, {many} of them"),
        });
        dropped.extend(blocks);
    }
    dropped.sort_unstable();
    dropped.dedup();
    Ok(dropped)
}

/// The types of file systems that the kernel has (`/proc/filesystems`).
fn registered(machine: &Machine<'_>) -> Result<Vec<String>, Fault> {
    let space = machine.space();
    let mut next = machine.u64("file_systems")?;
    let mut names = Vec::new();
    while next != 0 && names.len() < MAX_TYPES {
        let kind = space.object(next, "file_system_type")?;
        names.push(kind.get("name")?.text()?);
        next = kind.get("next")?.pointer()?;
    }
    Ok(names)
}
