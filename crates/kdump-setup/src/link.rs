//! The links of the chain from a panic to a dump.

use serde::Serialize;

/// A link of the chain from a panic to a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// Secure Boot and lockdown, which decide what may be loaded.
    Firmware,
    /// The capture kernel's command line, and that of the next boot.
    CommandLine,
    /// Memory for the capture kernel.
    Reservation,
    /// The capture kernel, loaded.
    Kernel,
    /// Its initramfs, and what is in it.
    Initramfs,
    /// What loads it at boot, and what runs in it.
    Units,
    /// The file systems that it mounts.
    Mounts,
    /// Where the dump goes.
    Target,
    /// What writes the dump.
    Program,
    /// What starts it: faults that panic.
    Trigger,
}

impl Link {
    /// All links, in their order.
    pub const ALL: [Self; 10] = [
        Self::Firmware,
        Self::CommandLine,
        Self::Reservation,
        Self::Kernel,
        Self::Initramfs,
        Self::Units,
        Self::Mounts,
        Self::Target,
        Self::Program,
        Self::Trigger,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Firmware => "firmware",
            Self::CommandLine => "command line",
            Self::Reservation => "reservation",
            Self::Kernel => "kernel",
            Self::Initramfs => "initramfs",
            Self::Units => "units",
            Self::Mounts => "mounts",
            Self::Target => "target",
            Self::Program => "program",
            Self::Trigger => "trigger",
        }
    }
}
