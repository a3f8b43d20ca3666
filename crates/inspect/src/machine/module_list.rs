//! The list of loaded modules, read with their symbols.

use std::ops::Range;

use pagehaul_btf::{Fault, Object};
use pagehaul_symbols::ModuleSymbols;

use super::Machine;
use super::module::{Loaded, LoadedModules, Module, ModuleUnwind};
use super::taints::taint_letters;
use crate::hex::Hex;

/// Symbols of all modules. The largest graphics drivers have 50,000.
const MAX_SYMBOLS: u64 = 1 << 20;
/// Bytes of an ELF symbol.
const SYMBOL_BYTES: u64 = 24;
/// Bytes of the names of all of them.
const MAX_STRINGS: u64 = 32 << 20;
/// Memory areas of a module (`MOD_MEM_NUM_TYPES` is 7).
const MAX_AREAS: u64 = 16;
/// Largest area that is believed.
const LARGEST: u64 = 1 << 30;
/// Bytes of names of a module that are announced before its symbols tell how many there are.
const SOME_NAMES: u64 = 16 << 10;
/// Bytes of the symbols of a module that are announced.
const MAX_SYMBOL_BYTES: u64 = 1 << 20;

/// What may still be read of symbols: damaged counts would make each module take seconds.
struct Left {
    symbols: u64,
    strings: u64,
}

/// Reads all modules.
pub(crate) fn read(machine: &Machine<'_>) -> Result<LoadedModules, Fault> {
    announce(machine);
    let walk = machine.variable("modules", "list_head")?.list("module", "list")?;
    let mut broken = walk.broken;
    announce_symbols(machine, &walk.items);
    let mut modules = Vec::new();
    let mut left = Left { symbols: MAX_SYMBOLS, strings: MAX_STRINGS };
    for object in walk.items {
        match read_one(machine, &object, &mut left) {
            Ok(module) => modules.push(module),
            Err(why) => {
                broken.get_or_insert_with(|| {
                    format!("a module at {:#x} is not shown: {why}", object.address())
                });
            }
        }
    }
    Ok(LoadedModules { modules, broken })
}

/// Announces all modules, which are in a tree by address, too (93c2e105f6bc, 4.2).
fn announce(machine: &Machine<'_>) {
    if !machine.memory().is_remote() {
        return;
    }
    let tree = || {
        machine
            .variable("mod_tree", "mod_tree_root")?
            .get("root.tree")?
            .index(0)?
            .tree("mod_tree_node", "node.node")
    };
    if let Ok(walk) = tree() {
        machine.space().announce(&walk.items, "mod->");
    }
}

/// Announces the symbols of modules.
fn announce_symbols(machine: &Machine<'_>, modules: &[Object<'_>]) {
    let space = machine.space();
    let tables = space.announce(modules, "kallsyms->");
    let symbols = |table: &Object<'_>| {
        let (symbols, names) = (table.get("symtab")?.pointer()?, table.get("strtab")?.pointer()?);
        let bytes = table.number("num_symtab")?.saturating_mul(SYMBOL_BYTES).min(MAX_SYMBOL_BYTES);
        Ok::<_, Fault>([symbols..symbols.saturating_add(bytes), names..names.saturating_add(SOME_NAMES)])
    };
    let ranges: Vec<_> = tables.iter().filter_map(|table| symbols(table).ok()).flatten().collect();
    machine.memory().will_need(&ranges);
}

fn read_one(machine: &Machine<'_>, object: &Object<'_>, left: &mut Left) -> Result<Loaded, Fault> {
    let name = object.get("name")?.text()?;
    let ranges = ranges(object)?;
    let taints = object.number("taints").unwrap_or(0);
    let module = Module {
        address: Hex(object.address()),
        base: Hex(ranges.first().map_or(0, |range| range.start)),
        size: ranges.iter().map(|range| range.end - range.start).sum(),
        taints: taint_letters(taints),
        version: object.get("version").and_then(|version| version.text()).ok(),
        ranges: ranges.clone(),
        name: name.clone(),
    };
    let symbols = symbols(machine, object, &name, ranges, left).unwrap_or_default();
    let unwind = unwind(object).unwrap_or_default();
    Ok(Loaded { module, symbols, unwind })
}

/// ac3b43283923 (6.4) replaced `core_layout` and `init_layout` by `mem[]`; the text comes first in both.
fn ranges(object: &Object<'_>) -> Result<Vec<Range<u64>>, Fault> {
    let mut found = Vec::new();
    let mut add = |area: Object<'_>| -> Result<(), Fault> {
        let (base, size) = (area.get("base")?.pointer()?, area.number("size")?);
        if base != 0 && size > 0 && size < LARGEST {
            found.push(base..base.saturating_add(size));
        }
        Ok(())
    };
    if let Ok(areas) = object.get("mem") {
        for index in 0..areas.len().min(MAX_AREAS) {
            add(areas.index(index)?)?;
        }
    } else {
        add(object.get("core_layout")?)?;
        add(object.get("init_layout")?)?;
    }
    Ok(found)
}

fn symbols(
    machine: &Machine<'_>,
    object: &Object<'_>,
    name: &str,
    ranges: Vec<Range<u64>>,
    left: &mut Left,
) -> Result<ModuleSymbols, Fault> {
    let tables = object.get("kallsyms")?.target()?;
    let (symbols, strings) = (tables.get("symtab")?.pointer()?, tables.get("strtab")?.pointer()?);
    // Both tables are in the module's own memory (8244062ef1e5, 4.5).
    let room = |at: u64| ranges.iter().find(|range| range.contains(&at)).map_or(0, |range| range.end - at);
    let count = tables.number("num_symtab")?.min(left.symbols).min(room(symbols) / SYMBOL_BYTES);
    left.symbols -= count;
    let memory = machine.memory();
    let symbols = memory.bytes(symbols, (count * SYMBOL_BYTES) as usize)?;
    // The length of the names is not kept: the last name ends them.
    let last = symbols
        .as_chunks::<24>()
        .0
        .iter()
        .filter_map(|symbol| symbol.first_chunk().map(|word| u32::from_le_bytes(*word)))
        .max()
        .unwrap_or(0);
    let bytes = (u64::from(last) + 512).min(room(strings)).min(left.strings);
    left.strings -= bytes;
    let (strings, _) = memory.readable_bytes(strings, bytes as usize);
    Ok(ModuleSymbols::parse(name.to_owned(), ranges, &symbols, &strings))
}

fn unwind(object: &Object<'_>) -> Result<ModuleUnwind, Fault> {
    Ok(ModuleUnwind {
        addresses: object.get("arch.orc_unwind_ip")?.pointer()?,
        entries: object.get("arch.orc_unwind")?.pointer()?,
        count: object.number("arch.num_orcs")?,
    })
}
