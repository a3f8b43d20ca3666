//! VMCOREINFO, page tables, memory models and page classes of Linux kernels.
//!
//! [`Kernel::discover`] reads from a source's VMCOREINFO how its kernel manages memory. A [`PageScanner`] per thread
//! determines the class of each page, and a [`DumpLevel`] excludes classes. Everything here reads physical memory through
//! [`pagehaul_physmem`] and does not trust it, since a crashed kernel left it behind: no contents cause a panic, an endless
//! loop or gigabytes of allocations. Pages whose records contradict each other are kept.
//!
//! Supports kernels 4.4 to 7.3 for x86_64, 5.10 and later for arm64, and 6.5 and later for riscv64 ([`pagehaul_machine::arch`]). The
//! keys in VMCOREINFO decide between kernels, not the release; each rule names the commit that made it necessary.

#![deny(missing_docs)]

mod address_space;
mod class;
mod detail;
mod direct_map;
mod early_allocations;
mod error;
mod explain;
mod image;
mod kernel;
mod kernel_mapped_pages;
mod level;
mod log;
mod lost;
mod machine;
mod memmap;
mod process_pages;
mod rules;
mod scan;
mod sections;
mod translate;
mod undecidable;
mod upper_tables;
mod virtual_memory;
mod walker;

pub use address_space::{AddressSpace, unread_utsname};
pub use class::PageClass;
pub use detail::{Details, Zones};
pub use direct_map::DirectMap;
pub use error::{KernelError, TranslateError};
pub use explain::{Explanation, Fields};
pub use kernel::Kernel;
pub use kernel_mapped_pages::KernelMappedPages;
pub use level::{DumpLevel, LevelError};
pub use log::{Caller, KernelLog, Record};
pub use lost::Lost;
pub use memmap::Memmap;
pub use pagehaul_machine::{Extent, InfoError, VmcoreInfo};
pub use process_pages::ProcessPagesError;
pub use rules::page_head;
pub use scan::{BlockReport, Inconsistency, PageScanner, Scanned, StructPage};
pub use translate::Translator;
pub use undecidable::Undecidable;
pub use virtual_memory::{ReadVirtual, VirtualMemory};
