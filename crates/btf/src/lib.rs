//! Types of a kernel from its BTF (`Documentation/bpf/btf.rst`), and typed access to the data they describe.
//!
//! [`Btf`] is the table of types. [`Space`] joins it with the kernel's virtual memory; an [`Object`] is a typed address
//! in it: `task.get("signal->nr_threads")?.unsigned()`. Each access is checked, each walk is bounded, and a field that a
//! kernel lacks is a [`Fault`] for the caller to decide on.

#![deny(missing_docs)]

mod collect;
mod fault;
mod maple;
mod object;
mod parse;
mod space;
mod types;

pub use collect::Walk;
pub use fault::Fault;
pub use maple::MapleEntry;
pub use object::Object;
pub use parse::{Btf, BtfError};
pub use space::Space;
pub use types::{Kind, Member, Type, TypeId};
