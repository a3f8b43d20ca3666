//! Whose pages of user space a dump keeps, and of which file systems it keeps none.
//!
//! [`find`] looks up named processes, memory cgroups and file systems in a crashed kernel, by its BTF, and returns
//! [`OwnerRules`](pagehaul_capture::OwnerRules): addresses and offsets by which a scan of the struct pages knows their pages. So the
//! process that reads structures of a damaged kernel is not the one that writes the dump.
//!
//! A choice is a promise. What cannot be found, or not wholly, is an error.

#![deny(missing_docs)]

mod cgroups;
mod choice;
mod file_systems;
mod find;
mod processes;

pub use choice::Choice;
pub use find::{FindError, find};
