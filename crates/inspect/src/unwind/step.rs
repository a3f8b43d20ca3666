//! One step from a frame to its caller.

use pagehaul_kernel::{ReadVirtual, TranslateError};

use super::orc::{Entry, EntryKind, Register};

/// Offsets in `struct pt_regs` (arch/x86/include/asm/ptrace.h), the same since 2.6.
mod pt_regs {
    pub(super) const R13: u64 = 16;
    pub(super) const BP: u64 = 32;
    pub(super) const R10: u64 = 56;
    pub(super) const AX: u64 = 80;
    pub(super) const DX: u64 = 96;
    pub(super) const DI: u64 = 112;
    pub(super) const IP: u64 = 128;
    pub(super) const CS: u64 = 136;
    pub(super) const SP: u64 = 152;
}

/// The registers that unwinding needs. Those that a call may change are known only at interrupted instructions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// Stack pointer.
    pub sp: u64,
    /// Frame pointer (X29 on arm64, s0 on riscv64), or another value of the function.
    pub bp: u64,
    /// X30 on arm64, ra on riscv64. Known only at interrupted instructions, as the others.
    pub link: Option<u64>,
    /// The others of x86_64.
    pub ax: Option<u64>,
    /// See [`ax`](Self::ax).
    pub dx: Option<u64>,
    /// See [`ax`](Self::ax).
    pub di: Option<u64>,
    /// See [`ax`](Self::ax).
    pub r10: Option<u64>,
    /// See [`ax`](Self::ax).
    pub r13: Option<u64>,
    /// Whether `ip` is exact: an interrupted instruction, not a return address.
    pub exact: bool,
}

/// The result of a step.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The caller, and where the `struct pt_regs` that led to it starts.
    Caller { registers: Registers, pt_regs: Option<u64> },
    /// User mode.
    User,
    /// The bottom of the stack.
    End,
    /// The entry names no caller.
    Undefined,
}

/// Follows an entry.
pub(crate) fn step(
    entry: &Entry,
    now: &Registers,
    memory: &dyn ReadVirtual,
    load_before_add: bool,
) -> Result<Outcome, TranslateError> {
    match entry.kind {
        EntryKind::End => return Ok(Outcome::End),
        EntryKind::Undefined => return Ok(Outcome::Undefined),
        _ => {}
    }
    let add = |base: u64, offset: i64| base.wrapping_add(offset as u64);
    let cfa = match entry.sp {
        Register::Sp => Some(add(now.sp, entry.sp_offset)),
        Register::Bp => Some(add(now.bp, entry.sp_offset)),
        Register::SpIndirect if load_before_add => Some(add(memory.u64(now.sp)?, entry.sp_offset)),
        Register::SpIndirect => Some(memory.u64(add(now.sp, entry.sp_offset))?),
        Register::BpIndirect => Some(memory.u64(add(now.bp, entry.sp_offset))?),
        Register::R10 => now.r10.map(|value| add(value, entry.sp_offset)),
        Register::R13 => now.r13.map(|value| add(value, entry.sp_offset)),
        Register::Di => now.di.map(|value| add(value, entry.sp_offset)),
        Register::Dx => now.dx.map(|value| add(value, entry.sp_offset)),
        Register::Ax => now.ax.map(|value| add(value, entry.sp_offset)),
        Register::PreviousSp | Register::Undefined => None,
    };
    let Some(cfa) = cfa else { return Ok(Outcome::Undefined) };
    let mut next = Registers { sp: cfa, bp: now.bp, exact: entry.signal, ..Registers::default() };
    let mut regs = None;
    match entry.kind {
        EntryKind::Regs => {
            if memory.u64(cfa.wrapping_add(pt_regs::CS))? & 3 != 0 {
                return Ok(Outcome::User);
            }
            let word = |offset| memory.u64(cfa.wrapping_add(offset));
            next.ip = word(pt_regs::IP)?;
            next.sp = word(pt_regs::SP)?;
            next.ax = Some(word(pt_regs::AX)?);
            next.dx = Some(word(pt_regs::DX)?);
            next.di = Some(word(pt_regs::DI)?);
            next.r10 = Some(word(pt_regs::R10)?);
            next.r13 = Some(word(pt_regs::R13)?);
            next.bp = word(pt_regs::BP)?;
            next.exact = true;
            regs = Some(cfa);
        }
        EntryKind::RegsPartial => {
            // The CFA is at the instruction pointer, the first word that the processor pushes last.
            let start = cfa.wrapping_sub(pt_regs::IP);
            if memory.u64(start.wrapping_add(pt_regs::CS))? & 3 != 0 {
                return Ok(Outcome::User);
            }
            next.ip = memory.u64(cfa)?;
            next.sp = memory.u64(start.wrapping_add(pt_regs::SP))?;
            // 81b67439d147 (5.8): entry code has not changed these yet.
            next.r10 = now.r10;
            next.r13 = now.r13;
            next.exact = true;
            regs = Some(start);
        }
        _ => next.ip = memory.u64(cfa.wrapping_sub(8))?,
    }
    match entry.bp {
        Register::PreviousSp => next.bp = memory.u64(add(cfa, entry.bp_offset))?,
        Register::Bp => next.bp = memory.u64(add(now.bp, entry.bp_offset))?,
        _ => {}
    }
    Ok(Outcome::Caller { registers: next, pt_regs: regs })
}
