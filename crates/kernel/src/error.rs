//! Errors of reading a kernel's memory.

use pagehaul_machine::InfoError;
use pagehaul_physmem::{PageState, ReadError};

/// A kernel that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The notes hold no VMCOREINFO.
    #[error(
        "the source has no VMCOREINFO, in its notes or found in its memory, so its kernel is unknown: for a dump made by QEMU, give \
         the guest `-device vmcoreinfo`; otherwise capture at level 0 or 1"
    )]
    NoVmcoreInfo,
    /// VMCOREINFO lacks a key, contradicts itself, or is of a machine without support.
    #[error(transparent)]
    Info(#[from] InfoError),
    /// A block is beyond all physical addresses.
    #[error("block {block} of physical memory is beyond physical addresses of 52 bits")]
    NoSuchBlock {
        /// Its number.
        block: u64,
    },
    /// A structure of the kernel cannot be read.
    #[error("cannot read the kernel's {what}: {source}")]
    Structure {
        /// What was being read.
        what: &'static str,
        /// The cause.
        source: TranslateError,
    },
    /// The source lacks the table of sections, which leads to the struct pages.
    #[error(
        "the source has no struct pages, which say what pages were used for (capture at level 0 or 1): {why}"
    )]
    NoStructPages {
        /// The cause and the remedy.
        why: &'static str,
    },
    /// The log was erased from the dump.
    #[error("its text was erased from the dump, as the dump records (`info`)")]
    ErasedLog,
    /// Memory cannot be read.
    #[error("cannot read {what}: {source}")]
    Read {
        /// What was being read.
        what: &'static str,
        /// The cause.
        source: ReadError,
    },
}

/// A virtual address that cannot be translated or read.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    /// The address is not canonical.
    #[error("virtual address {vaddr:#x} is not canonical")]
    NotCanonical {
        /// The virtual address.
        vaddr: u64,
    },
    /// Nothing is mapped at the address.
    #[error(
        "virtual address {vaddr:#x} is not mapped: the level-{level} entry at {entry_at:#x} is {entry:#x}"
    )]
    NotMapped {
        /// The virtual address.
        vaddr: u64,
        /// Level of the entry: 1 for a PTE … 4 for a PGD entry (5 with 5-level paging).
        level: u8,
        /// Physical address of the entry.
        entry_at: u64,
        /// The entry.
        entry: u64,
    },
    /// An entry is not one of a page table.
    #[error(
        "cannot translate {vaddr:#x}: the level-{level} entry {entry:#x} at {entry_at:#x} is not a page table's"
    )]
    BadEntry {
        /// The virtual address.
        vaddr: u64,
        /// Level of the entry: 4 for a PGD entry (5 with 5-level paging).
        level: u8,
        /// Physical address of the entry.
        entry_at: u64,
        /// The entry.
        entry: u64,
    },
    /// The address is mapped, but its memory cannot be read.
    #[error("cannot read virtual address {vaddr:#x}, physical {paddr:#x}: {source}")]
    Contents {
        /// The virtual address.
        vaddr: u64,
        /// Its physical address.
        paddr: u64,
        /// The cause.
        source: ReadError,
    },
    /// A page table cannot be read.
    #[error("cannot translate {vaddr:#x}: reading the level-{level} entry at {entry_at:#x}: {source}")]
    Unreadable {
        /// The virtual address.
        vaddr: u64,
        /// Level of the entry: 1 for a PTE … 4 for a PGD entry (5 with 5-level paging).
        level: u8,
        /// Physical address of the entry.
        entry_at: u64,
        /// The cause.
        source: ReadError,
    },
}

impl TranslateError {
    /// Returns the state of the requested page.
    pub fn state(&self) -> PageState {
        match self {
            Self::Contents { source, .. } | Self::Unreadable { source, .. } => source.state(),
            Self::NotCanonical { .. } | Self::NotMapped { .. } | Self::BadEntry { .. } => PageState::Absent,
        }
    }
}
