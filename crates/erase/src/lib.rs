//! What a dump does not have to hold, overwritten.
//!
//! [`find`] walks the structures of a crashed kernel from their roots, by its BTF and that of its modules, and returns an [`Erasure`]:
//! physical addresses, and the record of what they were. Memory that is read through it has a pattern there. So one mechanism serves
//! every format and every command that writes a dump.
//!
//! An erasure is a promise. What cannot be found is in [`Found::unerased`], one sentence each, and the caller decides before anything
//! is written.

#![deny(missing_docs)]

mod collect;
mod erasure;
mod find;
mod free_objects;
mod keys;
mod log;
mod names;
mod subject;

pub use erasure::{Erasure, PATTERN, with_record};
pub use find::{Found, find};
pub use subject::{Subject, UnknownSubject};
