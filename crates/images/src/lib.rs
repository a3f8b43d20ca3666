//! Opens dumps whose notes have no VMCOREINFO, and images of memory that have no notes at all: VMCOREINFO is found in memory.
//!
//! The kernel keeps its VMCOREINFO as text in a page, and once more as the note that `/proc/vmcore` shows. Other copies may be older, of
//! another kernel, or cut: in the page cache of a dump, in the memory of the capture kernel, in freed pages. So every copy is a
//! [candidate](candidate), and a candidate counts only if memory [proves](proof) it: by its addresses, the kernel's own name and release
//! are in memory, and its page tables map them there.

#![deny(missing_docs)]

mod candidate;
mod choice;
mod cpu_notes;
mod open;
mod proof;
mod snapshot;

pub use choice::{KernelInMemory, NoKernel, find};
pub use open::{ImageError, open, open_all};
pub use snapshot::{MAX_STATE, layout_of_snapshot};
