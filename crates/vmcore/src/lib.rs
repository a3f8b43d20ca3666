//! Opens the memory of a machine: one file of any format, or the parts of a split set. Reads all of it on every CPU, and
//! verifies it.

#![deny(missing_docs)]

mod elf;
mod file_memory;
mod image;
mod kind;
pub mod search;
mod source;
mod supplied;
pub mod sweep;
pub mod verify;

pub use elf::ElfVmcore;
pub use image::{ImageFormat, Layout, LayoutError, MemoryImage};
pub use kind::SourceKind;
pub use source::{Source, SourceError, open_file};
