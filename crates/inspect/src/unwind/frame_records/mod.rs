//! Chains of frame records: each function that calls others leaves the address of its caller's record and its own return address.

mod arm64;
mod riscv64;

use pagehaul_kernel::{AddressSpace, ReadVirtual, TranslateError};
use pagehaul_symbols::Symbols;

use super::step::{Outcome, Registers};

/// What frame records of a kernel look like.
#[derive(Debug, Clone, Copy)]
pub enum FrameRecords {
    /// arm64's.
    Arm64 {
        /// Offset of the record in `struct pt_regs`.
        in_pt_regs: Option<u64>,
        /// Whether a record of zeros has a type (c2c6b27b5aa1, 6.13).
        typed: bool,
    },
    /// riscv64's.
    Riscv64,
}

impl FrameRecords {
    /// Goes to the caller.
    pub(crate) fn step(
        self,
        now: &Registers,
        memory: &dyn ReadVirtual,
        symbols: &Symbols,
        kernel: &AddressSpace,
    ) -> Result<Outcome, TranslateError> {
        let is_caller = |ip, link| is_caller(symbols, ip, link);
        match self {
            Self::Arm64 { in_pt_regs, typed } => {
                let strip = |address| kernel.return_address(address);
                arm64::Records { in_pt_regs, typed }.step(now, memory, strip, is_caller)
            }
            Self::Riscv64 => {
                let function = |address| symbols.name(address).map(|name| name.symbol);
                riscv64::step(now, memory, |address| symbols.is_text(address), is_caller, function)
            }
        }
    }
}

/// Returns whether the link register of code interrupted at `ip` has the return address of its function. An address in the same
/// function is what a call left there.
fn is_caller(symbols: &Symbols, ip: u64, link: u64) -> bool {
    let start = |name: Option<pagehaul_symbols::Name>, at: u64| name.map(|name| at - name.offset);
    let function = start(symbols.name(ip), ip);
    // A return address follows a call, which may be the last instruction of its function.
    let called = link.wrapping_sub(1);
    symbols.is_text(called) && function.is_some() && function != start(symbols.name(called), called)
}
