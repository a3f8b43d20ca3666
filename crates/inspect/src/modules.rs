//! Loaded modules.

use std::ops::Range;

use pagehaul_btf::{Fault, Object};
use pagehaul_symbols::ModuleSymbols;
use serde::Serialize;

use crate::{Hex, Machine, ahead};

/// Symbols of all modules. The largest graphics drivers have 50,000.
const MAX_SYMBOLS: u64 = 1 << 20;
/// Bytes of an ELF symbol.
pub(crate) const SYMBOL_BYTES: u64 = 24;
/// Bytes of the names of all of them.
const MAX_STRINGS: u64 = 32 << 20;
/// Memory areas of a module (`MOD_MEM_NUM_TYPES` is 7).
const MAX_AREAS: u64 = 16;
/// Largest area that is believed.
const LARGEST: u64 = 1 << 30;

/// A module.
#[derive(Debug, Clone, Serialize)]
pub struct Module {
    /// Address of its `struct module`.
    pub address: Hex,
    /// Its name.
    pub name: String,
    /// Where its text starts.
    pub base: Hex,
    /// Bytes of memory.
    pub size: u64,
    /// Letters of its taints, such as `OE`.
    pub taints: String,
    /// Version, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip)]
    pub(crate) ranges: Vec<Range<u64>>,
}

/// Where the ORC tables of a module are (`struct mod_arch_specific`).
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ModuleUnwind {
    pub(crate) addresses: u64,
    pub(crate) entries: u64,
    pub(crate) count: u64,
}

pub(crate) struct Loaded {
    pub(crate) module: Module,
    pub(crate) symbols: ModuleSymbols,
    pub(crate) unwind: ModuleUnwind,
}

pub(crate) struct LoadedModules {
    pub(crate) modules: Vec<Loaded>,
    pub(crate) broken: Option<String>,
}

/// What may still be read of symbols: damaged counts would make each module take seconds.
struct Left {
    symbols: u64,
    strings: u64,
}

/// Reads all modules.
pub(crate) fn read(machine: &Machine<'_>) -> Result<LoadedModules, Fault> {
    ahead::module_list(machine);
    let walk = machine.variable("modules", "list_head")?.list("module", "list")?;
    let mut broken = walk.broken;
    ahead::modules(machine, &walk.items);
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

fn read_one(machine: &Machine<'_>, object: &Object<'_>, left: &mut Left) -> Result<Loaded, Fault> {
    let name = object.get("name")?.text()?;
    let ranges = ranges(object)?;
    let taints = object.number("taints").unwrap_or(0);
    let module = Module {
        address: Hex(object.address()),
        base: Hex(ranges.first().map_or(0, |range| range.start)),
        size: ranges.iter().map(|range| range.end - range.start).sum(),
        taints: crate::system::taint_letters(taints),
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
