//! Why a kernel's memory could not be understood.

use pagehaul_physmem::ReadError;

/// One sentence each: what was looked for, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The notes hold no VMCOREINFO.
    #[error(
        "the source's notes hold no VMCOREINFO, so nothing is known of its kernel: for a dump made by QEMU, give the guest \
         `-device vmcoreinfo`; otherwise capture at level 0 or 1"
    )]
    NoVmcoreInfo,
    /// VMCOREINFO lacks a key without which nothing can be classified.
    #[error("VMCOREINFO has no {key}, needed for {purpose}: {advice}")]
    MissingKey {
        /// The key as it stands in VMCOREINFO, such as `SIZE(page)`.
        key: &'static str,
        /// What it is needed for.
        purpose: &'static str,
        /// What the user can do.
        advice: &'static str,
    },
    /// A key's value cannot be true.
    #[error(
        "VMCOREINFO says {key}={value}, but {expected}: the notes are damaged, or the kernel is unknown to this version"
    )]
    BadValue {
        /// The key as it stands in VMCOREINFO.
        key: String,
        /// The value as it stands there.
        value: String,
        /// What would have been in order.
        expected: &'static str,
    },
    /// The machine or memory model is not one this crate knows.
    #[error("{0}")]
    Unsupported(String),
    /// A block was asked for that lies beyond every physical address.
    #[error("block {block} of physical memory lies beyond what 52 bits of physical address reach")]
    NoSuchBlock {
        /// Its number.
        block: u64,
    },
    /// One of the kernel's structures is not where it should be.
    #[error("cannot read the kernel's {what}: {source}")]
    Structure {
        /// What was being read.
        what: &'static str,
        /// Why it could not be.
        source: TranslateError,
    },
    /// Memory that had to be read could not be.
    #[error("cannot read {what}: {source}")]
    Read {
        /// What was being read.
        what: &'static str,
        /// Why it could not be.
        source: ReadError,
    },
}

/// Why a virtual address has no physical one.
#[derive(Debug, thiserror::Error)]
pub enum TranslateError {
    /// The address is not one the paging mode can hold.
    #[error("virtual address {vaddr:#x} is not canonical")]
    NotCanonical {
        /// The address asked for.
        vaddr: u64,
    },
    /// An entry on the way says that nothing is mapped.
    #[error(
        "virtual address {vaddr:#x} is not mapped: the level-{level} entry at {entry_at:#x} is {entry:#x}"
    )]
    NotMapped {
        /// The address asked for.
        vaddr: u64,
        /// Level of the entry: 1 for a PTE … 4 for a PGD entry (5 with 5-level paging).
        level: u8,
        /// Physical address of the entry.
        entry_at: u64,
        /// The entry.
        entry: u64,
    },
    /// An entry on the way cannot be one of a page table.
    #[error(
        "cannot translate {vaddr:#x}: the level-{level} entry {entry:#x} at {entry_at:#x} is not a page table's"
    )]
    BadEntry {
        /// The address asked for.
        vaddr: u64,
        /// Level of the entry: 4 for a PGD entry (5 with 5-level paging).
        level: u8,
        /// Physical address of the entry.
        entry_at: u64,
        /// The entry.
        entry: u64,
    },
    /// The address translates, but what is there could not be read.
    #[error("cannot read virtual address {vaddr:#x}, physical {paddr:#x}: {source}")]
    Contents {
        /// The address asked for.
        vaddr: u64,
        /// Where it lies.
        paddr: u64,
        /// Why it could not be read.
        source: ReadError,
    },
    /// A table on the way could not be read.
    #[error("cannot translate {vaddr:#x}: reading the level-{level} entry at {entry_at:#x}: {source}")]
    Unreadable {
        /// The address asked for.
        vaddr: u64,
        /// Level of the entry: 1 for a PTE … 4 for a PGD entry (5 with 5-level paging).
        level: u8,
        /// Physical address of the entry.
        entry_at: u64,
        /// Why it could not be read.
        source: ReadError,
    },
}
