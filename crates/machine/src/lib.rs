//! What differs between machines: units of memory, architectures, and what a kernel says of itself.
//!
//! Pages have sizes: a number of one is a [`Pfn`], how many there are is a [`PageCount`], and neither becomes an address or
//! bytes without a [`PageSize`]. An [`Arch`] knows everything about one architecture; `arch/` has a directory for each.
//! This crate reads no memory and no files.

#![deny(missing_docs)]

pub mod arch;
mod architecture;
mod extent;
mod image;
mod page_size;
mod page_tables;
mod platform;
mod registers;
mod units;
mod vmcoreinfo;

pub use architecture::{AddressLayout, Arch};
pub use extent::Extent;
pub use image::{ImageSource, KernelMapping};
pub use page_size::PageSize;
pub use page_tables::{Entry, Tables};
pub use platform::Platform;
pub use registers::{CpuMode, PR_PID, PR_REG, Registers, StatusRegisters, SwitchedOut, Unwinding, Word};
pub use units::{PageCount, Pfn, PhysAddr, VirtAddr};
pub use vmcoreinfo::{InfoError, VmcoreInfo};
