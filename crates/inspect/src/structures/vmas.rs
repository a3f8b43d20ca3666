//! Memory mappings of a process.

use pagehaul_btf::{Fault, Object};
use serde::Serialize;

use super::paths::file_name;
use crate::hex::Hex;
use crate::machine::Machine;

/// Mappings of one process. The kernel's own limit (`vm.max_map_count`) is 65,530 by default.
const MOST: usize = 1 << 20;
/// Letters of `VM_READ`, `VM_WRITE`, `VM_EXEC` and `VM_SHARED` (include/linux/mm.h).
const FLAGS: [(u64, [char; 2]); 4] = [(1, ['r', '-']), (2, ['w', '-']), (4, ['x', '-']), (8, ['s', 'p'])];

/// A memory mapping (`struct vm_area_struct`).
#[derive(Debug, Clone, Serialize)]
pub struct Vma {
    /// First address.
    pub start: Hex,
    /// Address behind the last one.
    pub end: Hex,
    /// Permissions, as in `/proc/PID/maps`: `rw-p`.
    pub flags: String,
    /// Path of the mapped file, `[heap]` or `[stack]`; empty for other anonymous memory.
    pub name: String,
}

/// Reads the mappings of a `struct mm_struct`, in order of their addresses, and why some may be missing.
pub(crate) fn vmas(machine: &Machine<'_>, mm: &Object<'_>) -> Result<(Vec<Vma>, Option<String>), Fault> {
    // 763ecb035029 (6.1) removed the list of the mappings; d4af56c5c7c6 put them into a maple tree.
    let (areas, broken) = match mm.get("mm_mt") {
        Ok(tree) => {
            let walk = tree.maple_tree()?;
            let areas =
                walk.items.iter().map(|entry| machine.space().object(entry.pointer, "vm_area_struct"));
            (areas.collect::<Result<Vec<_>, Fault>>()?, walk.broken)
        }
        Err(_) => listed(mm)?,
    };
    let mut broken = broken;
    let mut found = Vec::new();
    for area in areas {
        match describe(machine, mm, &area) {
            Ok(vma) => found.push(vma),
            Err(why) => {
                broken.get_or_insert_with(|| format!("the mapping at {:#x}: {why}", area.address()));
            }
        }
    }
    Ok((found, broken))
}

fn listed<'a>(mm: &Object<'a>) -> Result<(Vec<Object<'a>>, Option<String>), Fault> {
    let mut found: Vec<Object<'a>> = Vec::new();
    let mut last = 0;
    let mut next = mm.get("mmap")?;
    while next.pointer()? != 0 {
        let area = next.target()?;
        // Addresses rise, so a list that leads back ends here.
        let start = area.number("vm_start")?;
        if (start < last || found.len() >= MOST) && !found.is_empty() {
            return Ok((found, Some(format!("the list of mappings is broken at {:#x}", area.address()))));
        }
        last = area.number("vm_end")?.max(start + 1);
        found.push(area);
        next = area.get("vm_next")?;
    }
    Ok((found, None))
}

fn describe(machine: &Machine<'_>, mm: &Object<'_>, area: &Object<'_>) -> Result<Vma, Fault> {
    let (start, end) = (area.number("vm_start")?, area.number("vm_end")?);
    let flags = area.number("vm_flags")?;
    let file = area.get("vm_file").and_then(|file| file.pointer()).unwrap_or(0);
    let holds = |first: &str, last: &str| -> Result<bool, Fault> {
        Ok(start <= mm.number(last)? && end >= mm.number(first)?)
    };
    // As `show_map_vma` (fs/proc/task_mmu.c).
    let name = if file != 0 {
        file_name(machine, file).unwrap_or_else(|_| format!("file {file:#x}"))
    } else if holds("start_brk", "brk").unwrap_or(false) {
        "[heap]".into()
    } else if holds("start_stack", "start_stack").unwrap_or(false) {
        "[stack]".into()
    } else {
        String::new()
    };
    let flags = FLAGS.iter().map(|(flag, [set, clear])| if flags & flag != 0 { *set } else { *clear });
    Ok(Vma { start: Hex(start), end: Hex(end), flags: flags.collect(), name })
}
