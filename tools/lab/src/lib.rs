//! Crashes real kernels in QEMU and brings their memory out.
//!
//! ```no_run
//! let config = lab::Config { kernel: "6.12".into(), ..lab::Config::default() };
//! let crash = lab::crash(&config)?;
//! println!("{} crashed: {}", crash.release(), crash.vmcore().display());
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! Everything that is fetched or made is kept in a cache directory (see [`cache`]), so that a crash that was asked for
//! before is there at once.

pub mod apt;
pub mod benchmark;
mod build;
pub mod cache;
pub mod capture_kernel;
mod console;
mod cpio;
mod crash;
pub mod criu;

pub mod debuginfo;
mod disk;
mod initramfs;
pub mod kernels;
pub mod kmodule;
mod modules;
pub mod oracle;

pub mod power;
mod qmp;
pub mod scenarios;
mod socket_directory;
pub mod tools;
mod tree;
pub mod validate;
mod vm;
pub mod vmcore;
pub mod workload;

pub use crash::{Config, Crash, Dump, crash};
pub use lab_guest::{class, results, stamp};

pub use vm::Accelerator;

/// Whether tests that boot virtual machines are to run: `PAGEHAUL_LAB=1` in the environment, as `make test` sets it.
pub fn enabled() -> bool {
    std::env::var("PAGEHAUL_LAB").is_ok_and(|value| !value.is_empty() && value != "0")
}
