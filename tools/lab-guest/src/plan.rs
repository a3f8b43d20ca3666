//! What the host asks of the guest: `/lab.json` in the initramfs.

use serde::{Deserialize, Serialize};

/// Where the host puts the order in the initramfs.
pub const PATH: &str = "/lab.json";
/// Directory of kernel modules in the initramfs, loaded in the order of their names.
pub const MODULES: &str = "/modules";
/// Where the pagehaul binary stands in the initramfs, if there is one.
pub const PAGEHAUL: &str = "/bin/pagehaul";
/// Kernel and initramfs for the capture kernel, in the first kernel's initramfs.
pub const CAPTURE_KERNEL: &str = "/boot/vmlinuz";
/// See [`CAPTURE_KERNEL`].
pub const CAPTURE_INITRAMFS: &str = "/boot/initramfs";

/// Serial numbers of the virtio disks: the guest finds its disks by these, not by their order.
pub mod disk {
    /// ext4, where the capture kernel puts its results.
    pub const OUT: &str = "out";
    /// Raw: the whole of /proc/vmcore from byte 0.
    pub const VMCORE: &str = "vmcore";
    /// Raw: the manifest of the first kernel (a [`MANIFEST_MAGIC`](super::MANIFEST_MAGIC) block, then JSON).
    pub const MANIFEST: &str = "manifest";
    /// ext4 with 4 KiB blocks, for page cache without buffer heads.
    pub const CACHE: &str = "cache";
    /// Raw, for dumps without a file system: `{disk}` in a run's arguments.
    pub const DUMP: &str = "dump";
    /// ext4 with 1 KiB blocks, for page cache with buffer heads.
    pub const CACHE_PRIVATE: &str = "cache1k";
    /// ext4 with real files, for benchmark inputs.
    pub const FILES: &str = "files";
}

/// The first block of the manifest disk: these eight bytes, then the JSON's length in bytes as a little-endian u64.
/// The JSON starts at the next block (byte 4096).
pub const MANIFEST_MAGIC: [u8; 8] = *b"PHLABBOX";

/// Lines on the console that the host follows.
pub mod message {
    /// Starts each line that is meant for the host.
    pub const PREFIX: &str = "PHLAB ";
    /// Memory is filled; what follows is the panic, or for a benchmark input the dump from outside.
    pub const FILLED: &str = "filled";
    /// The next thing is the panic.
    pub const PANIC: &str = "panic";
    /// The capture kernel is up.
    pub const CAPTURE: &str = "capture";
    /// Everything asked for is on the disks.
    pub const DONE: &str = "done";
    /// Followed by why the guest gave up.
    pub const ERROR: &str = "error";
    /// Followed by what it does now.
    pub const STEP: &str = "step";
    /// The guest asks the host to inflate the balloon by so many MiB (a number follows).
    pub const BALLOON: &str = "balloon";
}

/// What the guest is to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What to do before the crash.
    pub fill: Fill,
    /// Command line of the capture kernel.
    pub capture_command_line: String,
    /// Whether the capture kernel saves the whole of /proc/vmcore.
    pub save_vmcore: bool,
    /// Runs of pagehaul in the capture kernel, one after the other.
    pub runs: Vec<Run>,
}

/// How to fill memory in the first kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fill {
    /// Stamped pages of every class, in this share (percent) of the memory available; then panic.
    Stamps(u32),
    /// Contents of real files: so many MiB as page cache, so many read into a program's memory; then wait.
    Files {
        /// MiB of page cache.
        cache_mib: u64,
        /// MiB of anonymous memory.
        anon_mib: u64,
    },
}

/// One run of pagehaul, or of a program beside it, in the capture kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Name of its files in the results.
    pub name: String,
    /// Arguments, in full; `{out}` stands for the dump's path, `{disk}` for the device of the raw disk.
    pub arguments: Vec<String>,
    /// Seconds after which the run is killed.
    pub time_limit: u64,
    /// Program to run instead of pagehaul, and its first arguments: paths on the disk for results.
    #[serde(default)]
    pub program: Vec<String>,
    /// Whether the dump is removed once its size is known.
    #[serde(default)]
    pub discard: bool,
}
