//! Physical memory of one machine, as a vmcore, a dump or a simulation shows it.
//!
//! All readers and writers of dumps use [`PhysMemory`]: a shared, immutable
//! description of what exists, and one [`View`] per thread that hands out *windows*, slices of mapped memory if
//! the source allows it, or of a decompressed page. This crate knows nothing of kernels or dump
//! formats beyond ELF.

#![deny(missing_docs)]

pub mod bits;
mod error;
mod fault;
pub mod file;
mod mapping;
mod ranges;
mod recorder;
mod state;
mod view;
mod wrapped;

pub use error::{OpenError, ReadError};
pub use mapping::{Access, MapPolicy, MappedFile, WholeFile, Window};
pub use ranges::{Piece, RangeMap};
pub use recorder::Recorder;
pub use state::PageState;
pub use view::{PageBuf, PhysMemory, View};
pub use wrapped::{Wrap, Wrapped};

/// Bytes of a page as sources count them: the size on x86_64 (`arch/x86/include/asm/page_types.h`), and the smallest of any current
/// machine. Dumps are written in pages of the machine's own size, [`PageSize`](pagehaul_machine::PageSize).
pub const PAGE_SIZE: usize = 1 << PAGE_SHIFT;
/// log2 of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;
