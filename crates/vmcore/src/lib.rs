//! Opens whatever holds a machine's memory: one file of any format, or the parts of a split set; reads all of it on every
//! CPU, and checks it.

mod elf;
mod source;
pub mod sweep;
pub mod verify;

pub use elf::ElfVmcore;
pub use source::{Source, SourceError, SourceKind};
