//! What is known of an architecture, and of the address space of one of its kernels.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::extent::Extent;
use crate::image::{ImageSource, KernelMapping};
use crate::page_size::PageSize;
use crate::page_tables::{Entry, Tables};
use crate::registers::{CpuMode, Registers, SwitchedOut, Unwinding, Word};
use crate::vmcoreinfo::{InfoError, VmcoreInfo};

/// An architecture.
pub trait Arch: fmt::Debug + Sync {
    /// Returns its name in the kernel's `arch/` and in texts.
    fn name(&self) -> &'static str;

    /// Returns what `uname -m` calls such machines.
    fn uname(&self) -> &'static str;

    /// Returns `e_machine` of ELF files (`include/uapi/linux/elf-em.h`).
    fn elf_machine(&self) -> u16;

    /// Returns the keys of VMCOREINFO, one of which all of its kernels export and no others.
    fn marks(&self) -> &'static [&'static str];

    /// Checks what VMCOREINFO of one of its kernels says of the machine.
    fn check(&self, info: &VmcoreInfo) -> Result<(), InfoError>;

    /// Finds the address space, from VMCOREINFO that [`check`](Self::check) accepts.
    fn discover(
        &self,
        info: &VmcoreInfo,
        source: &mut dyn ImageSource,
    ) -> Result<Arc<dyn AddressLayout>, InfoError>;

    /// Returns whether a program header of a vmcore is the kernel image's, not the direct map's.
    fn is_image(&self, info: &VmcoreInfo, mapping: &KernelMapping) -> bool;

    /// Returns where the image is by `phys_base` of a kdump-compressed header, if that says so.
    fn image_by_header(&self, _phys_base: u64) -> Option<KernelMapping> {
        None
    }

    /// Returns whether confidential guests accept memory piecemeal (CONFIG_UNACCEPTED_MEMORY).
    fn has_unaccepted_memory(&self) -> bool {
        false
    }

    /// Returns why a source may lack the table of memory sections, and what to do.
    fn absent_sections(&self) -> Option<&'static str> {
        None
    }

    /// Returns the orders that hugetlb pages can have with pages of this size: bit *n* is set for order *n*.
    fn hugetlb_orders(&self, page: PageSize) -> u32;

    /// Returns whether other CPUs see the stores of a CPU in order.
    fn stores_in_order(&self) -> bool {
        false
    }

    /// Returns the registers that CPUs save at a crash.
    fn registers(&self) -> &'static Registers;

    /// Returns what a CPU with these registers was doing.
    fn mode(&self, word: Word<'_>) -> Option<CpuMode>;

    /// Returns whether these words are a `struct pt_regs` of an entry from user mode.
    fn is_entry_from_user(&self, word: Word<'_>) -> bool;

    /// Returns the bytes that may lie between the `struct pt_regs` of such an entry and the end of the stack.
    fn paddings(&self) -> &'static [u64] {
        &[0]
    }

    /// Returns where the scheduler leaves the registers of a task that does not run.
    fn switched_out(&self) -> &'static SwitchedOut;

    /// Returns how stacks are unwound.
    fn unwinding(&self) -> Unwinding;

    /// Returns the bytes of a kernel stack.
    fn stack_bytes(&self, page: PageSize) -> u64;
}

/// The address space of one kernel.
pub trait AddressLayout: fmt::Debug + Send + Sync {
    /// Returns the shape of the page tables.
    fn tables(&self) -> Tables;

    /// Returns `vaddr` as page tables have it, without the tags that some architectures ignore. `None` for addresses that
    /// are not the kernel's or not in any table.
    fn canonical(&self, vaddr: u64) -> Option<u64>;

    /// Returns what `entry` of a table of `level` says, which maps `vaddr`.
    fn decode(&self, entry: u64, level: u8, vaddr: u64) -> Entry;

    /// Returns what `entry` of a table of `level` of a process says. As [`decode`](Self::decode), but a page that the process must not
    /// touch at the moment is there, too: its entry is not valid for the processor.
    fn decode_of_process(&self, entry: u64, level: u8, vaddr: u64) -> Entry {
        self.decode(entry, level, vaddr)
    }

    /// Returns where an address of the kernel image lies. The image is one piece of physical memory and needs no page table.
    fn in_image(&self, vaddr: u64) -> Option<Extent>;

    /// Returns a return address without the signature of pointer authentication.
    fn return_address(&self, word: u64) -> u64 {
        word
    }

    /// Returns what the header of a kdump-compressed dump has as `phys_base`.
    fn phys_base(&self) -> u64;

    /// Returns the virtual address at which the kernel sees physical address 0, modulo 2^64, where VMCOREINFO says it.
    fn direct_map(&self) -> Option<u64> {
        None
    }

    /// Returns the addresses that the direct map has room for. Physical memory may start far above 0: what lies below its part of
    /// the direct map is mapped otherwise.
    fn direct_map_bounds(&self) -> Range<u64>;

    /// Returns SECTION_SIZE_BITS and MAX_PHYSMEM_BITS of kernels that do not export them.
    fn default_section_bits(&self) -> (i64, i64);

    /// Returns whether `vaddr` is in a mapping of some pages of each CPU's memory, whose other pages lie next to them.
    fn maps_per_cpu_pages(&self, _vaddr: u64) -> bool {
        false
    }
}
