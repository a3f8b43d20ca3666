//! Crashes real kernels in QEMU, and validates pagehaul's dumps of them.
//!
//! ```no_run
//! let config = lab::Config { kernel: "6.12".into(), ..lab::Config::default() };
//! let crash = lab::crash(&config)?;
//! println!("{} crashed: {}", crash.release(), crash.vmcore().display());
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! A cache directory (see [`cache`]) keeps all downloads and results: a crash requested again is returned at once.

pub mod apt;
pub mod architecture;
pub mod benchmark;
pub mod build;
pub mod cache;
pub mod capture_kernel;
mod child;
mod console;
pub mod core_handler;
mod cpio;
mod crash;
pub mod criu;

pub mod debuginfo;
mod disk;
mod guest_tree;
mod initramfs;
pub mod kdump_dracut;
pub mod kdump_faults;
pub mod kdump_measure;
pub mod kdump_plan;
pub mod kdump_tools;
pub mod kdump_upload;
pub mod kernels;
mod kexec;
pub mod kmodule;
mod modules;
mod nfs;
pub mod oracle;
pub mod owned;

pub mod power;
mod qmp;
pub mod scenarios;
pub mod secrets;
mod server;
pub mod smp;
mod socket_directory;
mod sshd;
pub mod tools;
mod tree;
pub mod validate;
mod vm;
pub mod vmcore;
pub mod workload;

pub use architecture::Architecture;
pub use crash::{Config, Crash, Dump, Images, Pstore, crash};
pub use lab_guest::{class, results, stamp};

pub use vm::Accelerator;

/// Returns whether tests may boot virtual machines: `PAGEHAUL_LAB=1` in the environment, as `make test` sets it.
pub fn enabled() -> bool {
    std::env::var("PAGEHAUL_LAB").is_ok_and(|value| !value.is_empty() && value != "0")
}

/// Returns the kernels that a test tries: a `few`, or `all` with `PAGEHAUL_LAB=all`, as `make test-full` sets it.
pub fn few_or_all<'a>(few: &[&'a str], all: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    if std::env::var("PAGEHAUL_LAB").is_ok_and(|value| value == "all") {
        return all.into_iter().collect();
    }
    few.to_vec()
}
