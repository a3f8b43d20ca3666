//! Who allocated memory, by what the kernel records: `page_owner`, allocation tags, `slub_debug`,
//! `kmemleak`. All are off in most kernels.
//!
//! 1. `records.rs` reads the record of each page, in one pass, and counts pages by stack or tag.
//! 2. `names.rs` names stacks and tags.
//! 3. `owners.rs` makes owners of them, for pages that nothing else names, and the report's stacks and places.
//! 4. `slab_users.rs` counts slab objects by stack, `kmemleak.rs` what kmemleak tracks (`counts.rs`).

pub(crate) mod counts;
pub(crate) mod kmemleak;
pub(crate) mod names;
pub(crate) mod owners;
pub(crate) mod records;
pub(crate) mod sites;
pub(crate) mod slab_users;
