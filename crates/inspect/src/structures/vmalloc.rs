//! The vmalloc space: areas by caller, and the backlog of areas that are freed but not purged.

use std::collections::HashMap;

use pagehaul_btf::{Fault, Object};
use pagehaul_machine::PageCount;
use serde::Serialize;

use crate::machine::Machine;

/// Nodes of areas (one for each CPU, at most 128).
const MAX_NODES: u64 = 1024;

/// Areas of one caller.
#[derive(Debug, Clone, Serialize)]
pub struct VmallocCaller {
    /// Function that allocated them.
    pub caller: String,
    /// Areas.
    pub areas: u64,
    /// Bytes, guard pages included.
    pub bytes: u64,
}

/// The vmalloc space.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Vmalloc {
    /// Areas.
    pub areas: u64,
    /// Bytes, guard pages included.
    pub bytes: u64,
    /// Pages of areas that are freed but not purged (`vmap_lazy_nr`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backlog_pages: Option<PageCount>,
    /// Callers, the largest first.
    pub callers: Vec<VmallocCaller>,
    /// Why some may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
}

/// Returns all areas (`struct vmap_area`), and why some may be missing.
pub fn vmap_areas<'a>(machine: &'a Machine<'_>) -> Result<(Vec<Object<'a>>, Option<String>), Fault> {
    let mut roots = Vec::new();
    // d093602919ad (6.9) split the tree into nodes.
    match machine.u64("vmap_nodes") {
        Ok(nodes) => {
            let count = u64::from(machine.u32("nr_vmap_nodes")?).clamp(1, MAX_NODES);
            let first = machine.space().object(nodes, "vmap_node")?;
            for index in 0..count {
                roots.push(first.index(index)?.get("busy.root")?);
            }
        }
        Err(Fault::NoSymbol(_)) => roots.push(machine.variable("vmap_area_root", "rb_root")?),
        Err(why) => return Err(why),
    }
    let (mut areas, mut broken) = (Vec::new(), None);
    for root in roots {
        let walk = root.tree("vmap_area", "rb_node")?;
        broken = broken.or(walk.broken);
        areas.extend(walk.items);
    }
    Ok((areas, broken))
}

/// Returns the name of the function that allocated an area.
pub fn caller_name(machine: &Machine<'_>, address: u64) -> String {
    // On x86_64 before 6.15 the symbols of per-CPU variables begin at address 0: it is no caller's.
    if address == 0 {
        return "vm_map_ram or freed".to_owned();
    }
    machine.symbols().name(address).map_or_else(|| format!("{address:#x}"), |name| name.readable())
}

/// Reads all areas.
pub fn vmalloc(machine: &Machine<'_>) -> Result<Vmalloc, Fault> {
    let mut callers: HashMap<Option<u64>, (u64, u64)> = HashMap::new();
    let (areas, broken) = vmap_areas(machine)?;
    let mut result = Vmalloc { broken, ..Vmalloc::default() };
    machine.space().announce(&areas, "vm->caller");
    for area in areas {
        let bounds = area.number("va_end").and_then(|end| Ok((area.number("va_start")?, end)));
        let (start, end) = match bounds {
            Ok(bounds) => bounds,
            Err(why) => {
                result.broken.get_or_insert_with(|| why.to_string());
                continue;
            }
        };
        let bytes = end.saturating_sub(start);
        let caller = match area.get("vm->caller").and_then(|caller| caller.pointer()) {
            Err(why @ Fault::Unreadable(_)) => {
                result.broken.get_or_insert_with(|| format!("the caller of an area: {why}"));
                None
            }
            caller => Some(caller.unwrap_or(0)),
        };
        result.areas += 1;
        result.bytes = result.bytes.saturating_add(bytes);
        let entry = callers.entry(caller).or_default();
        *entry = (entry.0 + 1, entry.1.saturating_add(bytes));
    }
    result.backlog_pages = machine.u64("vmap_lazy_nr").ok().map(PageCount::new);
    let mut by_name: HashMap<String, (u64, u64)> = HashMap::new();
    for (address, (areas, bytes)) in callers {
        let name = address.map_or_else(|| "not known".to_owned(), |address| caller_name(machine, address));
        let entry = by_name.entry(name).or_default();
        *entry = (entry.0 + areas, entry.1.saturating_add(bytes));
    }
    result.callers =
        by_name.into_iter().map(|(caller, (areas, bytes))| VmallocCaller { caller, areas, bytes }).collect();
    result.callers.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.caller.cmp(&b.caller)));
    Ok(result)
}
