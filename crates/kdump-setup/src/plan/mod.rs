//! What a machine's kdump should be set to: memory to reserve, and lines of the distribution's files.

mod changes;
mod collector;
mod cpus;
mod edit;
mod reserve;

pub(crate) use changes::FILES;
pub use changes::{ByHand, Change, Changes, Settings, changes};
pub use reserve::{Reserve, reserve};
