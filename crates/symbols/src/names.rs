//! Names of addresses, in the kernel and in modules.

use std::fmt;
use std::ops::Range;

use crate::kallsyms::Kallsyms;
use crate::module::ModuleSymbols;

/// Bytes from which what follows a symbol is not part of it.
const LARGEST: u64 = 1 << 31;
/// The same where the end of the kernel image is not known: functions are smaller.
const LARGEST_UNBOUNDED: u64 = 16 << 20;

/// A symbol and a place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// Name of the symbol, as the kernel has it.
    pub symbol: String,
    /// Bytes from its start.
    pub offset: u64,
    /// Bytes to the next symbol.
    pub size: u64,
    /// The module it is in.
    pub module: Option<String>,
}

/// As the kernel prints it: `mutex_lock+0x1a/0x40`, `probe+0x4/0x80 [module]`. Rust names are demangled.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:#x}/{:#x}", self.readable(), self.offset, self.size)?;
        self.module.as_ref().map_or(Ok(()), |module| write!(f, " [{module}]"))
    }
}

impl Name {
    /// Returns the symbol's name, demangled if it is one of Rust.
    pub fn readable(&self) -> String {
        match rustc_demangle::try_demangle(&self.symbol) {
            Ok(name) => format!("{name:#}"),
            Err(_) => self.symbol.clone(),
        }
    }
}

/// The symbols of the kernel and its modules.
#[derive(Debug)]
pub struct Symbols {
    kernel: Kallsyms,
    modules: Vec<ModuleSymbols>,
    text: Vec<Range<u64>>,
    image: Range<u64>,
}

impl Symbols {
    /// Starts with the kernel's symbols.
    pub fn new(kernel: Kallsyms) -> Self {
        let text = [("_stext", "_etext"), ("_sinittext", "_einittext")]
            .into_iter()
            .filter_map(|(start, end)| Some(kernel.address(start)?..kernel.address(end)?))
            .collect();
        let image = kernel.address("_stext").unwrap_or(0)..kernel.address("_end").unwrap_or(0);
        Self { kernel, modules: Vec::new(), text, image }
    }

    /// Adds the symbols of a module.
    pub fn add(&mut self, module: ModuleSymbols) {
        self.modules.push(module);
    }

    /// Returns the kernel's own symbols.
    pub fn kernel(&self) -> &Kallsyms {
        &self.kernel
    }

    /// Returns the address of a kernel symbol, not of a module's.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.kernel.address(name)
    }

    /// Returns the address of a symbol of a module that is loaded.
    pub fn address_in(&self, module: &str, name: &str) -> Option<u64> {
        self.modules.iter().find(|known| known.name() == module)?.address(name)
    }

    /// Returns the module that an address is in.
    pub fn module_at(&self, address: u64) -> Option<&ModuleSymbols> {
        self.modules.iter().find(|module| module.contains(address))
    }

    /// Returns whether an address is in the kernel's text, or in a module.
    pub fn is_text(&self, address: u64) -> bool {
        self.text.iter().any(|range| range.contains(&address)) || self.module_at(address).is_some()
    }

    /// Returns whether an address is in the kernel image or a module.
    pub fn is_static(&self, address: u64) -> bool {
        self.image.contains(&address) || self.module_at(address).is_some()
    }

    /// Returns the symbol that an address lies in.
    pub fn name(&self, address: u64) -> Option<Name> {
        if let Some(module) = self.module_at(address) {
            let (start, size, symbol) = module.containing(address)?;
            let module = Some(module.name().to_owned());
            return Some(Name { symbol: symbol.to_owned(), offset: address - start, size, module });
        }
        // Behind the image is nothing of the kernel's: modules that are not known, mostly.
        let end = self.image.end;
        if end != 0 && address >= end && end > self.image.start {
            return None;
        }
        let (start, size, symbol) = self.kernel.containing(address)?;
        // Without data symbols `_end` is not known, and the last symbol ends nowhere.
        let largest = if end == 0 { LARGEST_UNBOUNDED } else { LARGEST };
        (size < largest).then(|| Name { symbol, offset: address - start, size, module: None })
    }

    /// Returns the name of the function that a return address leads back to: the call may be the function's last
    /// instruction. The offset is that of the return address.
    pub fn caller(&self, return_address: u64) -> Option<Name> {
        let mut name = self.name(return_address.checked_sub(1)?)?;
        name.offset += 1;
        Some(name)
    }
}
