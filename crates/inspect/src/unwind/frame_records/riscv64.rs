//! Frame records of riscv64: each function that calls others stores its return address and the caller's s0, and points s0 above both
//! (psABI, "Frame Pointer Convention"). Kernels are built so with CONFIG_FRAME_POINTER, as Debian's are.
//!
//! Where an exception came in, `handle_exception` calls the handler with the address of a `struct pt_regs` in s0
//! (arch/riscv/kernel/entry.S). A function that calls none stores only the caller's s0, where others have their return address.

use pagehaul_kernel::{ReadVirtual, TranslateError};

use super::super::step::{Outcome, Registers};

/// Offsets in `struct pt_regs` (arch/riscv/include/asm/ptrace.h), the same since 4.15.
mod pt_regs {
    pub(super) const EPC: u64 = 0;
    pub(super) const RA: u64 = 8;
    pub(super) const SP: u64 = 16;
    pub(super) const S0: u64 = 64;
    pub(super) const STATUS: u64 = 256;
}

/// SR_SPP in `status`: the kernel was interrupted, not user mode.
const SUPERVISOR: u64 = 1 << 8;
/// Calls handlers of exceptions, which return into it, or in older kernels to `ret_from_exception`.
const ENTRY: &str = "handle_exception";
const ENTRY_RETURN: &str = "ret_from_exception";
/// The outermost functions of tasks and CPUs: no record follows. 7.2 has `ret_from_fork` in two, 6.12 does not.
const OUTERMOST: [&str; 6] = [
    "ret_from_fork",
    "ret_from_fork_kernel_asm",
    "ret_from_fork_user_asm",
    "_start_kernel",
    "secondary_start_sbi",
    "secondary_start_common",
];

/// Goes to the caller. `is_caller` is as for arm64; `function` names the function that an address lies in.
pub(super) fn step(
    now: &Registers,
    memory: &dyn ReadVirtual,
    is_text: impl Fn(u64) -> bool,
    is_caller: impl Fn(u64, u64) -> bool,
    function: impl Fn(u64) -> Option<String>,
) -> Result<Outcome, TranslateError> {
    let is_in = |address: u64, name: &str| function(address).is_some_and(|function| function == name);
    // A return address may be the end of its function.
    let is_entry = |address: u64| is_in(address.wrapping_sub(1), ENTRY) || is_in(address, ENTRY_RETURN);
    let inside = if now.exact { now.ip } else { now.ip.wrapping_sub(1) };
    if function(inside).is_some_and(|function| OUTERMOST.contains(&function.as_str())) {
        return Ok(Outcome::End);
    }
    let record = now.bp;
    if record == 0 {
        return Ok(Outcome::End);
    }
    if !record.is_multiple_of(8) {
        return Ok(Outcome::Undefined);
    }
    if !now.exact && is_entry(now.ip) {
        return interrupted(record, memory);
    }
    let word = |below: u64| memory.u64(record.wrapping_sub(below));
    let (address, caller) = (word(8)?, word(16)?);
    if let Some(link) = now.link
        && link != address
        && is_caller(now.ip, link)
    {
        // Interrupted where the function has no record yet, or none any more: s0 is the caller's. Otherwise it calls no other.
        let (sp, bp) = if is_text(address) { (now.sp, record) } else { (record, address) };
        return Ok(Outcome::Caller {
            registers: Registers { ip: link, sp, bp, ..Registers::default() },
            pt_regs: None,
        });
    }
    // What interrupts has no record.
    let bp = if is_entry(address) { record } else { caller };
    let registers = Registers { ip: address, sp: record, bp, ..Registers::default() };
    Ok(Outcome::Caller { registers, pt_regs: None })
}

fn interrupted(regs: u64, memory: &dyn ReadVirtual) -> Result<Outcome, TranslateError> {
    let word = |offset| memory.u64(regs.wrapping_add(offset));
    if word(pt_regs::STATUS)? & SUPERVISOR == 0 {
        return Ok(Outcome::User);
    }
    let registers = Registers {
        ip: word(pt_regs::EPC)?,
        sp: word(pt_regs::SP)?,
        bp: word(pt_regs::S0)?,
        link: Some(word(pt_regs::RA)?),
        exact: true,
        ..Registers::default()
    };
    Ok(Outcome::Caller { registers, pt_regs: Some(regs) })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const STACK: u64 = 0xff20_0000_0001_0000;
    const CODE: u64 = 0xffff_ffff_8000_0000;
    const HANDLER: u64 = CODE + 0x1000;
    const LEAF: u64 = CODE + 0x2000;
    const OUTER: u64 = CODE + 0x3000;

    struct Memory(HashMap<u64, u64>);

    impl ReadVirtual for Memory {
        fn read(&self, vaddr: u64, buf: &mut [u8]) -> Result<(), TranslateError> {
            let word = self.0.get(&vaddr).ok_or(TranslateError::NotCanonical { vaddr })?;
            buf.copy_from_slice(&word.to_le_bytes()[..buf.len()]);
            Ok(())
        }
    }

    fn record(at: u64, address: u64, caller: u64) -> [(u64, u64); 2] {
        [(at - 8, address), (at - 16, caller)]
    }

    fn take(now: Registers, words: &[(u64, u64)]) -> Outcome {
        let function = |address: u64| {
            let name = match address & !0xfff {
                HANDLER => "handle_exception",
                LEAF => "leaf",
                OUTER => "ret_from_fork_kernel_asm",
                _ => "other",
            };
            (address >= CODE).then(|| name.to_owned())
        };
        let is_caller = |ip: u64, link: u64| link >= CODE && function(ip) != function(link - 1);
        step(&now, &Memory(words.iter().copied().collect()), |at| at >= CODE, is_caller, function).unwrap()
    }

    fn caller(outcome: Outcome) -> (Registers, Option<u64>) {
        let Outcome::Caller { registers, pt_regs } = outcome else { panic!("{outcome:?}") };
        (registers, pt_regs)
    }

    fn at(ip: u64) -> Registers {
        Registers { ip, sp: STACK - 0x40, bp: STACK, ..Registers::default() }
    }

    #[test]
    fn records_lie_below_the_frame_pointer() {
        let (next, pt_regs) = caller(take(at(CODE + 0x100), &record(STACK, CODE + 0x200, STACK + 0x80)));
        assert_eq!((next.ip, next.sp, next.bp), (CODE + 0x200, STACK, STACK + 0x80));
        assert!(!next.exact && pt_regs.is_none());
        assert!(matches!(take(Registers { bp: 0, ..at(CODE) }, &[]), Outcome::End));
        assert!(matches!(take(Registers { bp: STACK + 4, ..at(CODE) }, &[]), Outcome::Undefined));
        // The call is the last instruction of its function.
        assert!(matches!(take(at(OUTER + 0x1000), &[]), Outcome::End));
    }

    #[test]
    fn exceptions_continue_with_the_interrupted_code() {
        let regs = |status| {
            let words = [
                (pt_regs::EPC, LEAF + 0x10),
                (pt_regs::RA, CODE + 0x300),
                (pt_regs::SP, STACK + 0x400),
                (pt_regs::S0, STACK + 0x500),
                (pt_regs::STATUS, status),
            ];
            let words = words.map(|(offset, word)| (STACK + offset, word));
            [words.as_slice(), &record(STACK, HANDLER + 0x14a, 1)].concat()
        };
        let (handler, pt_regs) = caller(take(at(CODE + 0x100), &regs(0x120)));
        assert_eq!((handler.ip, handler.bp, pt_regs), (HANDLER + 0x14a, STACK, None));
        let (interrupted, pt_regs) = caller(take(handler, &regs(0x120)));
        assert_eq!((interrupted.ip, interrupted.sp), (LEAF + 0x10, STACK + 0x400));
        assert_eq!((interrupted.bp, interrupted.link), (STACK + 0x500, Some(CODE + 0x300)));
        assert!(interrupted.exact && pt_regs == Some(STACK));
        assert!(matches!(take(handler, &regs(0x20)), Outcome::User));
    }

    #[test]
    fn a_leaf_returns_to_its_link_register() {
        let now = Registers { link: Some(CODE + 0x300), exact: true, ..at(LEAF + 8) };
        // Without a record: s0 is the caller's.
        let (next, _) = caller(take(now, &record(STACK, CODE + 0x700, STACK + 0x80)));
        assert_eq!((next.ip, next.sp, next.bp), (CODE + 0x300, now.sp, STACK));
        // With half of one.
        let (next, _) = caller(take(now, &record(STACK, STACK + 0x80, 7)));
        assert_eq!((next.ip, next.sp, next.bp), (CODE + 0x300, STACK, STACK + 0x80));
        // What a call left in the link register.
        let (next, _) =
            caller(take(Registers { link: Some(LEAF + 4), ..now }, &record(STACK, CODE + 0x700, 7)));
        assert_eq!(next.ip, CODE + 0x700);
    }
}
