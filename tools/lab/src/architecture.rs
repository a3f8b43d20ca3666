//! The architectures of guests.

/// An architecture that the lab has kernels for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Architecture {
    /// x86_64, the host's.
    #[default]
    X86_64,
    /// arm64. QEMU translates it.
    Arm64,
}

impl Architecture {
    /// Returns Debian's name.
    pub fn debian(self) -> &'static str {
        match self {
            Architecture::X86_64 => "amd64",
            Architecture::Arm64 => "arm64",
        }
    }

    /// Returns Rust's target for static programs.
    pub const fn musl(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86_64-unknown-linux-musl",
            Architecture::Arm64 => "aarch64-unknown-linux-musl",
        }
    }

    /// Returns the serial console of guests.
    pub fn console(self) -> &'static str {
        match self {
            Architecture::X86_64 => "ttyS0",
            Architecture::Arm64 => "ttyAMA0",
        }
    }

    /// Returns a CPU model that works with every kernel of the lab.
    pub fn cpu(self) -> &'static str {
        match self {
            Architecture::X86_64 => "Haswell-noTSX",
            // Without LPA2 and pointer authentication, and thus faster to translate than `max`.
            Architecture::Arm64 => "neoverse-n1",
        }
    }

    /// Returns QEMU's program and machine.
    pub(crate) fn qemu(self) -> (&'static str, &'static str) {
        match self {
            Architecture::X86_64 => ("qemu-system-x86_64", "pc"),
            Architecture::Arm64 => ("qemu-system-aarch64", "virt,gic-version=3"),
        }
    }
}
