//! Who owns the memory of a kernel: [`balance`] puts every page that the allocator manages into exactly one [`Row`], opens rows
//! into owners, and compares them with the kernel's counters.
//!
//! 1. Walks find pages that carry no mark: free pages on per-CPU lists, vmalloc areas, page directories, pipe buffers (`walks/`).
//!    They become [`claims::Claims`], runs of pages with their claimant.
//! 2. One pass over the struct pages on all CPUs counts pages by what their struct page or their claim says (`scan.rs`, `tally.rs`).
//! 3. What was counted by pointer (address spaces, reverse maps, slab caches) becomes files, processes and caches (`resolve/`).
//!    Pages that nothing marks have the owner that the kernel recorded when it allocated them, if it did (`allocations/`).
//!    Of the others, who has a pointer to them (`references.rs`): a guess, which reads all of the kernel's memory.
//! 4. Owners that belong together become suspects (`suspects.rs`), of which `triage` names the culprit (`blame.rs`). The tree of
//!    memory cgroups has its own counters (`cgroups.rs`), and its LRU lists ages (`generations.rs`).
//! 5. Each row is compared with the counters that the kernel keeps (`identities.rs`).
//!
//! Memory: 24 bytes for a claimed run of pages, about 100 bytes for a file, reverse map or slab cache with pages, and for a page whose
//! references are looked for. All have limits, and the report says what was cut.

mod allocations;
mod balance;
mod blame;
mod cgroups;
mod claims;
mod fields;
mod fragments;
mod generations;
mod growth;
mod identities;
mod loss;
mod page_blocks;
mod references;
mod report;
mod resolve;
mod scan;
mod seeded;
mod slot;
mod suspects;
mod tally;
mod walks;

pub use allocations::names::allocator_frames;
pub use balance::{Effort, References, balance};
pub use blame::{are_evidence, blame, use_rows};
pub use growth::{Growth, Moment, NotComparable, OwnerGrowth, RowGrowth, growth};
pub use report::{
    Age, Allocation, AllocationStack, Balance, BlockType, Cgroup, CgroupGenerations, Cgroups, Deferred,
    FileDetail, Fragmentation, Generation, Generations, Identity, Kmemleak, KmemleakUser, NotMade, Outside,
    Owner, Row, RowKind, Site, Sites, SlabUser, SlabUsers, Spoiler, Stacks, Suspect,
};
