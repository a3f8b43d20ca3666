//! ELF cores: file headers, program headers and notes, reading and writing; the writer of ELF [dumps](dump).
//!
//! One crate for the ELF of all sources and outputs: vmcores, ELF dumps, mounted dumps and cores of processes. It reads
//! 32- and 64-bit cores of either byte order, and writes 64-bit little-endian ones. Structs are those of
//! `include/uapi/linux/elf.h`, as the `object` crate declares them.
//!
//! A PT_LOAD whose `p_memsz` is larger than its `p_filesz` describes memory that the core does not hold: makedumpfile,
//! crash and the kernel's own core dumps all mean it that way.

#![deny(missing_docs)]

mod constants;
pub mod dump;
pub mod notes;
mod program_header;
mod read;
mod vmcore_head;
mod write;

pub use constants::{EM_AARCH64, EM_X86_64};
pub use program_header::{PF_R, PF_W, PF_X, PT_LOAD, PT_NOTE, ProgramHeader};
pub use read::{ElfError, ElfHeaders};
pub use vmcore_head::VmcoreHead;
pub use write::{
    FILE_HEADER, PROGRAM_HEADER, SECTION_HEADER, count_section, file_header, headers_end, set_incomplete,
    set_limited, table_end,
};
