//! Memory cgroups by path, with all below them.

use std::collections::HashSet;

use pagehaul_btf::{Fault, Object};
use pagehaul_capture::CgroupRules;
use pagehaul_inspect::Machine;

use crate::find::FindError;

/// Cgroups that are read. The kernel has at most 65,535 that are not removed (MEM_CGROUP_ID_MAX); removed ones stay while something is
/// charged to them.
const MAX_GROUPS: usize = 1 << 20;
/// Names in a message.
const MAX_NAMED: usize = 8;

/// Finds the cgroups at `paths`, and how pages name theirs.
pub(crate) fn find(
    machine: &Machine<'_>,
    paths: &[String],
    record: &mut Vec<String>,
) -> Result<CgroupRules, FindError> {
    let none = "this kernel has no memory cgroups (CONFIG_MEMCG), so it does not know which pages are whose";
    let Ok(root) = machine.u64("root_mem_cgroup") else { return Err(FindError::NotThere(none.into())) };
    if root == 0 {
        let off = "memory cgroups are off in this kernel (cgroup_disable=memory), so it does not know which pages are whose";
        return Err(FindError::NotThere(off.into()));
    }
    let space = machine.space();
    let charged_to = space
        .offset_of("page", "memcg_data")
        // bcfe06bf2622 (5.11) renamed it.
        .or_else(|_| space.offset_of("page", "mem_cgroup"))
        .or_else(|_| space.offset_of("folio", "memcg_data"))
        .map_err(FindError::reading("what struct pages are charged to"))?;
    // Kernels that have it charge pages of user space to a `struct obj_cgroup` (7.2).
    let through = match space.has("mem_cgroup_per_node", "objcg") {
        true => {
            Some(space.offset_of("obj_cgroup", "memcg").map_err(FindError::reading("the type obj_cgroup"))?)
        }
        false => None,
    };
    let root = space.object(root, "mem_cgroup").map_err(FindError::reading("the root cgroup"))?;
    let mut groups = HashSet::new();
    for path in paths {
        if path.trim().is_empty() {
            // An unset variable of a shell, most likely.
            let empty =
                "the path of a cgroup is empty; expected one as in /proc/PID/cgroup, or / for all cgroups";
            return Err(FindError::NotThere(empty.into()));
        }
        let named = at_path(&root, path)?;
        let removed = named.len().saturating_sub(1);
        for group in named {
            add_tree(group, path, &mut groups)?;
        }
        let also = match removed {
            0 => String::new(),
            removed => format!(", {removed} removed with the same name"),
        };
        record.push(format!("keep cgroup {path}{also}"));
    }
    let mut groups: Vec<u64> = groups.into_iter().collect();
    groups.sort_unstable();
    Ok(CgroupRules { charged_to: charged_to as usize, through, groups })
}

/// Returns the cgroups with this path: one that exists, and removed ones, to which pages are still charged.
fn at_path<'a>(root: &Object<'a>, path: &str) -> Result<Vec<Object<'a>>, FindError> {
    let mut here = vec![*root];
    let mut done = String::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        let mut next = Vec::new();
        let mut others = Vec::new();
        for group in &here {
            for child in children(group, &done)? {
                match name(&child) {
                    Ok(name) if name == part => next.push(child),
                    Ok(name) => others.push(name),
                    Err(source) => {
                        let what = format!("the name of a cgroup in {}/", done);
                        return Err(FindError::Structure { what, source });
                    }
                }
            }
        }
        if next.is_empty() {
            others.sort_unstable();
            others.dedup();
            let more = if others.len() > MAX_NAMED { ", …" } else { "" };
            others.truncate(MAX_NAMED);
            let there = match others.is_empty() {
                true => format!("{}/ has none below it", done),
                false => format!("{}/ has {}{more}", done, others.join(", ")),
            };
            return Err(FindError::NotThere(format!(
                "no cgroup with a memory controller is {done}/{part}: {there}; expected a path as in /proc/PID/cgroup"
            )));
        }
        done = format!("{done}/{part}");
        here = next;
    }
    Ok(here)
}

/// Adds a cgroup and all below it.
fn add_tree(top: Object<'_>, path: &str, groups: &mut HashSet<u64>) -> Result<(), FindError> {
    let mut left = vec![top];
    while let Some(group) = left.pop() {
        if !groups.insert(group.address()) {
            continue;
        }
        if groups.len() > MAX_GROUPS {
            let why = format!("it has more than {MAX_GROUPS} cgroups");
            return Err(FindError::Broken { what: format!("the tree of cgroups below {path}"), why });
        }
        left.extend(children(&group, path)?);
    }
    Ok(())
}

fn children<'a>(group: &Object<'a>, path: &str) -> Result<Vec<Object<'a>>, FindError> {
    let what = || format!("the cgroups below {path}/");
    let walk = group
        .get("css.children")
        .and_then(|children| children.list("cgroup_subsys_state", "sibling"))
        .map_err(FindError::reading(what()))?;
    if let Some(why) = walk.broken {
        return Err(FindError::Broken { what: what(), why });
    }
    let children = walk.items.iter().map(|css| css.container("mem_cgroup", "css"));
    children.collect::<Result<_, Fault>>().map_err(FindError::reading(what()))
}

/// The name of a cgroup in the directory of its parent.
fn name(group: &Object<'_>) -> Result<String, Fault> {
    group.get("css.cgroup")?.target()?.get("kn")?.target()?.get("name")?.text()
}
