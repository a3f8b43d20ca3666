//! From pointers in struct pages to names.

pub(crate) mod files;
pub(crate) mod mounts;
pub(crate) mod pools;
pub(crate) mod processes;
pub(crate) mod tables;
