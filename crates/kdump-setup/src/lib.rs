//! Reads how a machine is set up for kdump (kernel, reservation, configuration, initramfs, target) and finds what would keep a
//! crash from being dumped.
//!
//! [`Facts::read`] collects, [`check`] judges, [`plan`] lists what brings the files to a plan, [`apply`] writes it. All files are read
//! and written below a root directory ([`Root`]), so that a machine's files can be examined elsewhere.

pub mod apply;
mod boot;
mod chain;
mod checks;
mod config;
mod crashkernel;
mod drivers;
mod facts;
mod finding;
mod grub;
mod initramfs;
mod kernel_file;
mod link;
mod live_pages;
mod mounts;
pub mod plan;
pub mod pstore;
mod release;
mod root;
mod shell;
mod signature;
mod ssh;
pub mod state;
mod storage;
mod units;

pub use boot::NextBoot;
pub use chain::{Chain, Proof, State};
pub use checks::{Expected, check, examine};
pub use config::{Config, CpuLimit, Stack, SuseSettings, Target};
pub use crashkernel::Reservation;
pub use facts::{Collector, Facts, Firmware, Image, Lockdown, MemoryUse};
pub use finding::{Finding, Severity};
pub use grub::GrubSettings;
pub use initramfs::Initramfs;
pub use link::Link;
pub use live_pages::{LivePages, LivePagesError, PageUse, UsedPages};
pub use release::Release;
pub use root::Root;
pub use storage::{Crypt, Missing, Storage};
pub use units::{Unit, Units};
