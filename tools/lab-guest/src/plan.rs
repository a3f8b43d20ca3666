//! What the guest has to do: `/lab.json` in the initramfs.

use crate::workload::Step;
use serde::{Deserialize, Serialize};

/// Path of the [`Plan`] in the initramfs.
pub const PATH: &str = "/lab.json";
/// Directory of kernel modules in the initramfs. The guest loads them in the order of their names.
pub const MODULES: &str = "/modules";
/// Path of the optional pagehaul binary in the initramfs.
pub const PAGEHAUL: &str = "/bin/pagehaul";
/// Path of the module that crashes the kernel, in the initramfs.
pub const SCENARIO_MODULE: &str = "/crash_scenes.ko";
/// Scenarios that do not need this module.
pub const WITHOUT_MODULE: [&str; 2] = ["keys", "patterns"];
/// Path of kexec(8) in the initramfs of guests whose kernels lack kexec_file_load.
pub const KEXEC: &str = "/sbin/kexec";
/// Path of the capture kernel in the first kernel's initramfs.
pub const CAPTURE_KERNEL: &str = "/boot/vmlinuz";
/// Path of the capture kernel's initramfs in the first kernel's.
pub const CAPTURE_INITRAMFS: &str = "/boot/initramfs";

/// Serial numbers of the virtio disks, by which the guest finds them.
pub mod disk {
    /// ext4, for the capture kernel's results.
    pub const OUT: &str = "out";
    /// Raw: all of /proc/vmcore from byte 0.
    pub const VMCORE: &str = "vmcore";
    /// Raw: the first kernel's manifest (a [`MANIFEST_MAGIC`](super::MANIFEST_MAGIC) block, then JSON).
    pub const MANIFEST: &str = "manifest";
    /// ext4 with 4 KiB blocks, for page cache without buffer heads.
    pub const CACHE: &str = "cache";
    /// Raw, for dumps without a file system. `{disk}` in a run's arguments.
    pub const DUMP: &str = "dump";
    /// ext4 with 1 KiB blocks, for page cache with buffer heads.
    pub const CACHE_PRIVATE: &str = "cache1k";
    /// ext4 with real files, for benchmark inputs.
    pub const FILES: &str = "files";
}

/// The first block of the manifest disk: these eight bytes, then the JSON's length in bytes as a little-endian u64.
/// The JSON starts at the next block (byte 4096).
pub const MANIFEST_MAGIC: [u8; 8] = *b"PHLABBOX";

/// Messages from the guest to the host, on the console.
pub mod message {
    /// Starts every message.
    pub const PREFIX: &str = "PHLAB ";
    /// Memory is filled. The panic follows, or for a benchmark the host's dump.
    pub const FILLED: &str = "filled";
    /// The guest panics now.
    pub const PANIC: &str = "panic";
    /// The capture kernel has booted.
    pub const CAPTURE: &str = "capture";
    /// The capture kernel has finished and resets the machine, whose kernel boots again.
    pub const RESET: &str = "reset";
    /// All results are on the disks.
    pub const DONE: &str = "done";
    /// The guest failed. The error follows.
    pub const ERROR: &str = "error";
    /// The guest starts a step. Its description follows.
    pub const STEP: &str = "step";
    /// Asks the host to inflate the balloon by the number of MiB that follows.
    pub const BALLOON: &str = "balloon";
}

/// What the guest does before and after the crash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// How to fill memory before the crash.
    pub fill: Fill,
    /// Command line of the capture kernel.
    pub capture_command_line: String,
    /// Whether the capture kernel saves all of /proc/vmcore.
    pub save_vmcore: bool,
    /// Runs in the capture kernel, one after the other.
    pub runs: Vec<Run>,
    /// How to crash; without it by SysRq c.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario: Option<String>,
    /// The CPU that panics.
    #[serde(default, skip_serializing_if = "is_boot_cpu")]
    pub crash_cpu: usize,
    /// Arguments of a run of pagehaul before the crash, with memory as it is then. Its standard output is in the manifest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// Whether kexec(8) sees all of /proc/iomem. On riscv64 it leaves memory that is reserved there out of the vmcore.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole_iomem: bool,
    /// Whether the host saves images before the crash: the guest waits for it after [`message::FILLED`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub images: bool,
    /// Scripts that run in a Debian tree before memory is filled. Each has to succeed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prepare: Vec<Step>,
    /// Scripts that run when the kernel has booted again: the capture kernel resets the machine, whose memory stays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Step>,
}

// serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_boot_cpu(cpu: &usize) -> bool {
    *cpu == 0
}

/// How to fill memory in the first kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fill {
    /// Fill this percentage of available memory with stamped pages of every class, then panic.
    Stamps(u32),
    /// Fill memory with the contents of real files, then wait.
    Files {
        /// MiB of page cache.
        cache_mib: u64,
        /// MiB of anonymous memory.
        anon_mib: u64,
    },
}

/// One run of pagehaul, or of another program, in the capture kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Base name of its files in the results.
    pub name: String,
    /// All arguments. `{out}` stands for the dump's path, `{disk}` for the device of the raw disk.
    pub arguments: Vec<String>,
    /// Time limit in seconds. The run is killed afterwards.
    pub time_limit: u64,
    /// Program to run instead of pagehaul, a path on the disk for results, and its first arguments.
    #[serde(default)]
    pub program: Vec<String>,
    /// Whether to delete the dump after measuring its size.
    #[serde(default)]
    pub discard: bool,
}
