//! Who allocated pages, by what the kernel records: `page_owner` and allocation tags. Both are off in most kernels.
//!
//! 1. `records.rs` reads the record of each page, in one pass, and counts pages by stack or tag.
//! 2. `names.rs` names stacks and tags.
//! 3. `owners.rs` makes owners of them, for pages that nothing else names, and the report's stacks and places.

pub(crate) mod names;
pub(crate) mod owners;
pub(crate) mod records;
pub(crate) mod sites;
