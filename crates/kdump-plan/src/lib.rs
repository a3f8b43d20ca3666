//! Plans a machine's kdump: how large a dump is at each level, how long the capture takes, how many CPUs of the capture kernel pay
//! off, and how much memory to reserve.
//!
//! [`Plan::new`] puts together what `kdump-setup` reads of the set-up, a sample of the running machine's memory ([`Memory`]), and
//! the rates that `bench` measures. It changes nothing; `kdump-setup` writes what follows. A crate of its own, because checks of a
//! set-up need neither codecs nor the scan.

mod cpus;
mod disk;
mod error;
mod goal;
pub mod live;
mod memory;
mod plan;
mod rates;

pub use disk::disk_rate;
pub use error::PlanError;
pub use goal::{Goal, Machine};
pub use memory::{Class, Dump, Memory, Origin};
pub use plan::Plan;
pub use rates::measured_rates;
