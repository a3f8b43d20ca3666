//! What differs between architectures. VMCOREINFO chooses, never the machine that this code runs on.

mod arm64;
pub(crate) mod tables;
mod x86_64;

use pagehaul_physmem::PhysMemory;

use self::arm64::Arm64;
use self::tables::{Entry, Tables};
use self::x86_64::X86_64;
use crate::{Extent, KernelError, VmcoreInfo};

pub(crate) use self::x86_64::START_KERNEL_MAP;

/// Keys that only kernels of one architecture export (`arch/*/kernel/*vmcore_info*.c` and their forebears).
const OTHERS: [(&str, &str); 5] = [
    ("SYMBOL(lowcore_ptr)", "s390"),
    ("NUMBER(satp)", "riscv64"),
    ("NUMBER(phys_ram_base)", "riscv64"),
    ("SYMBOL(vmemmap_list)", "ppc64"),
    ("CONFIG_X86_PAE", "32-bit x86"),
];

/// The architecture of a kernel, with what its VMCOREINFO says about it.
#[derive(Debug, Clone)]
pub(crate) enum Arch {
    X86_64(X86_64),
    Arm64(Arm64),
}

/// Calls a function of whichever architecture it is.
macro_rules! of {
    ($arch:expr, $kind:ident => $body:expr) => {
        match $arch {
            Arch::X86_64($kind) => $body,
            Arch::Arm64($kind) => $body,
        }
    };
}

impl Arch {
    /// Checks that VMCOREINFO is of an architecture with support.
    pub(crate) fn check(info: &VmcoreInfo) -> Result<(), KernelError> {
        if X86_64::is_of(info) {
            return X86_64::check(info);
        }
        if Arm64::is_of(info) {
            return Arm64::check(info);
        }
        Err(KernelError::Unsupported(match OTHERS.iter().find(|(key, _)| info.get(key).is_some()) {
            Some((_, machine)) => {
                format!("this kernel is for {machine}; only x86_64 and arm64 kernels are supported")
            }
            None => "VMCOREINFO has neither SYMBOL(init_top_pgt) nor SYMBOL(init_level4_pgt), which x86_64 kernels \
                     export, nor NUMBER(kimage_voffset), which arm64 kernels export; only these are supported"
                .into(),
        }))
    }

    /// Whether confidential guests of the architecture accept memory piecemeal (CONFIG_UNACCEPTED_MEMORY, x86 only).
    pub(crate) fn has_unaccepted_memory(info: &VmcoreInfo) -> bool {
        !Arm64::is_of(info)
    }

    /// Finds the page tables, from the VMCOREINFO that [`check`](Self::check) accepts.
    pub(crate) fn discover(info: &VmcoreInfo, memory: &dyn PhysMemory) -> Result<Self, KernelError> {
        if X86_64::is_of(info) {
            return X86_64::discover(info, memory).map(Self::X86_64);
        }
        Arm64::discover(info).map(Self::Arm64)
    }

    /// `uname -m`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::X86_64(_) => "x86_64",
            Self::Arm64(_) => "aarch64",
        }
    }

    pub(crate) fn tables(&self) -> Tables {
        of!(self, arch => arch.tables)
    }

    /// Returns `vaddr` as page tables have it, without the tags that some architectures ignore. `None` for addresses that
    /// are not the kernel's or not in any table.
    #[inline]
    pub(crate) fn canonical(&self, vaddr: u64) -> Option<u64> {
        of!(self, arch => arch.canonical(vaddr))
    }

    /// A return address without the signature of pointer authentication.
    pub(crate) fn return_address(&self, word: u64) -> u64 {
        match self {
            Self::X86_64(_) => word,
            Self::Arm64(arch) => arch.return_address(word),
        }
    }

    /// What `entry` of a table of `level` says.
    #[inline]
    pub(crate) fn decode(&self, entry: u64, level: u8) -> Entry {
        of!(self, arch => arch.decode(entry, level))
    }

    /// Where an address of the kernel image lies. The image is one piece of physical memory and needs no page table.
    #[inline]
    pub(crate) fn in_image(&self, vaddr: u64) -> Option<Extent> {
        of!(self, arch => arch.in_image(vaddr))
    }

    /// What the header of a kdump-compressed dump has as `phys_base`.
    pub(crate) fn phys_base(&self) -> u64 {
        match self {
            Self::X86_64(arch) => arch.phys_base,
            // crash takes it for the start of the linear map.
            Self::Arm64(arch) => arch.phys_offset,
        }
    }

    /// The virtual address at which the kernel sees physical address 0, modulo 2^64, where VMCOREINFO tells it.
    pub(crate) fn direct_map(&self) -> Option<u64> {
        match self {
            Self::X86_64(_) => None,
            Self::Arm64(arch) => Some(arch.direct_map),
        }
    }

    /// The direct map ends here at the latest.
    pub(crate) fn end_of_direct_map(&self) -> u64 {
        match self {
            Self::X86_64(_) => START_KERNEL_MAP,
            Self::Arm64(arch) => arch.end_of_direct_map,
        }
    }

    /// SECTION_SIZE_BITS and MAX_PHYSMEM_BITS of kernels that do not export them.
    pub(crate) fn default_section_bits(&self) -> (i64, i64) {
        match self {
            // The same since 2.6, until they were exported.
            Self::X86_64(arch) => (27, if arch.tables.levels == 5 { 52 } else { 46 }),
            // f0b13ee23241 (5.12) made sections smaller; such kernels export the key.
            Self::Arm64(_) => (30, 48),
        }
    }

    /// Whether `vaddr` is in a mapping of some pages of each CPU's memory, whose other pages lie next to them.
    pub(crate) fn maps_per_cpu_pages(&self, vaddr: u64) -> bool {
        match self {
            Self::X86_64(_) => x86_64::CPU_ENTRY_AREA.contains(&vaddr),
            Self::Arm64(_) => false,
        }
    }
}
