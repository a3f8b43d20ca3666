//! What is known of a loaded module.

use std::ops::Range;

use pagehaul_symbols::ModuleSymbols;
use serde::Serialize;

use crate::hex::Hex;

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
