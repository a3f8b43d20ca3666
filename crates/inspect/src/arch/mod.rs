//! What differs between architectures: which registers CPUs and tasks saved, where, and how large stacks are.

mod arm64;
mod x86_64;

use pagehaul_btf::Fault;
use pagehaul_unwind::Registers;

use self::arm64::Arm64;
use self::x86_64::X86_64;
use crate::{Hex, Machine};

/// Registers with their names, in the order in which oopses print them.
pub(crate) type Named = Vec<(&'static str, Hex)>;

/// Where `pr_reg` starts in `struct elf_prstatus`.
const STATUS_REGISTERS: usize = 112;

/// The registers that a CPU saved at the crash.
pub(crate) struct Saved {
    /// Where unwinding starts.
    pub(crate) registers: Registers,
    pub(crate) user_mode: bool,
    pub(crate) interrupts_on: bool,
    pub(crate) named: Named,
}

/// An architecture.
pub(crate) trait Arch: Sync {
    /// Whether stacks are chains of frame records, not unwound with ORC.
    fn has_frame_records(&self) -> bool;

    /// Bytes of `struct elf_prstatus`.
    fn status_bytes(&self) -> usize;

    /// Reads the general registers of a `struct elf_prstatus` by their index.
    fn saved(&self, register: &dyn Fn(usize) -> Option<u64>) -> Option<Saved>;

    /// Returns the registers of a task that does not run, from which it is unwound.
    fn sleeping(&self, machine: &Machine<'_>, task: u64) -> Result<Registers, Fault>;

    /// Returns those that the scheduler saved of a task that does not run.
    fn preserved(&self, machine: &Machine<'_>, task: u64) -> Result<Named, Fault>;

    /// Returns the registers at the entry from user mode, if the `struct pt_regs` that ends at the end of the stack has them.
    fn at_entry(&self, machine: &Machine<'_>, end_of_stack: u64) -> Result<Named, Fault>;

    /// Returns the stack pointer that the scheduler saved of a task that does not run.
    fn stack_pointer(&self, machine: &Machine<'_>, task: u64) -> Result<u64, Fault>;

    /// Bytes of a kernel stack.
    fn stack_bytes(&self, machine: &Machine<'_>) -> u64;
}

/// Returns the architecture of a kernel (`uname -m`), if its crashes can be explained.
pub(crate) fn of(machine: &str) -> Option<&'static dyn Arch> {
    match machine {
        "x86_64" => Some(&X86_64),
        "aarch64" => Some(&Arm64),
        _ => None,
    }
}

/// Reads what a CPU saved from its `struct elf_prstatus`.
pub(crate) fn saved(arch: &dyn Arch, status: &[u8]) -> Option<Saved> {
    arch.saved(&|index| {
        let word = status.get(STATUS_REGISTERS + 8 * index..)?.first_chunk()?;
        Some(u64::from_le_bytes(*word))
    })
}
