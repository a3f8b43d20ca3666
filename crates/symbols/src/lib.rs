//! Names of kernel addresses, from tables that every kernel keeps in its memory (`kernel/kallsyms.c`,
//! `scripts/kallsyms.c`), and from the symbol tables of loaded modules.
//!
//! No debug file is read. The tables are found through VMCOREINFO, which exports their addresses since 5fd8fea935a1 and
//! f09bddbd8661 (6.0), or by a search of the kernel image.

#![deny(missing_docs)]

mod encoding;
mod error;
mod find;
mod kallsyms;
mod module;
mod names;
mod search;
mod tables;

pub use error::SymbolError;
pub use kallsyms::Kallsyms;
pub use module::ModuleSymbols;
pub use names::{Name, Symbols};
pub use tables::Encoding;
