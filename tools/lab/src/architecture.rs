//! The architectures of guests.

/// An architecture that the lab has kernels for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Architecture {
    /// x86_64, the host's.
    #[default]
    X86_64,
    /// arm64. QEMU translates it.
    Arm64,
    /// riscv64. QEMU translates it.
    Riscv64,
}

impl Architecture {
    /// Returns Debian's name.
    pub fn debian(self) -> &'static str {
        match self {
            Architecture::X86_64 => "amd64",
            Architecture::Arm64 => "arm64",
            Architecture::Riscv64 => "riscv64",
        }
    }

    /// Returns Rust's target for static programs.
    pub const fn target(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86_64-unknown-linux-musl",
            Architecture::Arm64 => "aarch64-unknown-linux-musl",
            // Debian's rustc has this one too, in libstd-rust-dev.
            Architecture::Riscv64 => "riscv64gc-unknown-linux-gnu",
        }
    }

    /// Returns the triplet of GNU programs and of Debian's directories for libraries.
    pub(crate) const fn triplet(self) -> &'static str {
        match self {
            Architecture::X86_64 => "x86_64-linux-gnu",
            Architecture::Arm64 => "aarch64-linux-gnu",
            Architecture::Riscv64 => "riscv64-linux-gnu",
        }
    }

    /// Returns the file name of glibc's loader.
    pub(crate) const fn loader(self) -> &'static str {
        match self {
            Architecture::X86_64 => "ld-linux-x86-64.so.2",
            Architecture::Arm64 => "ld-linux-aarch64.so.1",
            Architecture::Riscv64 => "ld-linux-riscv64-lp64d.so.1",
        }
    }

    /// Returns the serial console of guests.
    pub fn console(self) -> &'static str {
        match self {
            Architecture::X86_64 | Architecture::Riscv64 => "ttyS0",
            Architecture::Arm64 => "ttyAMA0",
        }
    }

    /// Returns a CPU model that works with every kernel of the lab.
    pub fn cpu(self) -> &'static str {
        match self {
            Architecture::X86_64 => "Haswell-noTSX",
            // Without LPA2 and pointer authentication, and thus faster to translate than `max`.
            Architecture::Arm64 => "neoverse-n1",
            // With page tables of 5 levels (Sv57).
            Architecture::Riscv64 => "rv64",
        }
    }

    /// Whether pagehaul is built for it.
    pub fn runs_pagehaul(self) -> bool {
        self != Architecture::Riscv64
    }

    /// Returns the physical address of QEMU's first byte of memory.
    pub fn memory_start(self) -> u64 {
        match self {
            Architecture::X86_64 => 0,
            Architecture::Arm64 => 0x4000_0000,
            Architecture::Riscv64 => 0x8000_0000,
        }
    }

    /// Returns QEMU's program and machine.
    pub(crate) fn qemu(self) -> (&'static str, &'static str) {
        match self {
            Architecture::X86_64 => ("qemu-system-x86_64", "pc"),
            Architecture::Arm64 => ("qemu-system-aarch64", "virt,gic-version=3"),
            Architecture::Riscv64 => ("qemu-system-riscv64", "virt"),
        }
    }
}
