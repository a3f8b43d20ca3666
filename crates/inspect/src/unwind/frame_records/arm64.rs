//! Frame records of arm64: each function that calls others stores the caller's X29 and its own return address, and points X29
//! to them (AAPCS64, 6.4.6). Every kernel since 4.1 is built so (`select FRAME_POINTER`).
//!
//! Where an exception came in, the record lies in the `struct pt_regs` of the interrupted code (`kernel_entry`,
//! arch/arm64/kernel/entry.S). Until 6.12 it has the interrupted X29 and program counter. c2c6b27b5aa1 (6.13) made it two zeros
//! and a type.

use pagehaul_kernel::{ReadVirtual, TranslateError};

use super::super::step::{Outcome, Registers};

/// Offsets in `struct pt_regs` (arch/arm64/include/asm/ptrace.h), which starts with `struct user_pt_regs`.
mod pt_regs {
    pub(super) const X29: u64 = 29 * 8;
    pub(super) const X30: u64 = 30 * 8;
    pub(super) const SP: u64 = 31 * 8;
    pub(super) const PC: u64 = 32 * 8;
    pub(super) const PSTATE: u64 = 33 * 8;
}

/// `FRAME_META_TYPE_PT_REGS` (arch/arm64/include/asm/stacktrace/frame.h).
const TYPE_PT_REGS: u64 = 2;
/// Exception level and stack pointer in `pstate`; 0 is user mode.
const MODE: u64 = 0xf;

/// See [`FrameRecords::Arm64`](super::FrameRecords::Arm64).
#[derive(Debug, Clone, Copy)]
pub(super) struct Records {
    pub(super) in_pt_regs: Option<u64>,
    pub(super) typed: bool,
}

impl Records {
    /// Goes to the caller. `strip` removes the signature of an address, `is_caller` is [`is_caller`](super::is_caller).
    pub(super) fn step(
        self,
        now: &Registers,
        memory: &dyn ReadVirtual,
        strip: impl Fn(u64) -> u64,
        is_caller: impl Fn(u64, u64) -> bool,
    ) -> Result<Outcome, TranslateError> {
        let record = now.bp;
        if record == 0 {
            return Ok(Outcome::End);
        }
        if !record.is_multiple_of(8) {
            return Ok(Outcome::Undefined);
        }
        let (caller, address) = (memory.u64(record)?, memory.u64(record.wrapping_add(8))?);
        if let Some(link) = now.link.map(&strip)
            && link != strip(address)
            && is_caller(now.ip, link)
        {
            // Interrupted where the function had no record, or none any more.
            let registers = Registers { ip: link, sp: now.sp, bp: record, ..Registers::default() };
            return Ok(Outcome::Caller { registers, pt_regs: None });
        }
        let regs = self.in_pt_regs.map(|offset| record.wrapping_sub(offset));
        if caller == 0 && address == 0 {
            let Some(regs) = regs else { return Ok(Outcome::End) };
            if self.typed && memory.u64(record.wrapping_add(16))? == TYPE_PT_REGS {
                return interrupted(regs, memory);
            }
            let word = |offset| memory.u64(regs.wrapping_add(offset));
            let is_user = word(pt_regs::PSTATE)? & MODE == 0 && word(pt_regs::PC)? != 0;
            return Ok(if is_user { Outcome::User } else { Outcome::End });
        }
        if let Some(regs) = regs.filter(|_| !self.typed) {
            let word = |offset| memory.u64(regs.wrapping_add(offset));
            // Below the record of a common function lies anything.
            let is = word(pt_regs::PC).is_ok_and(|pc| pc == address)
                && word(pt_regs::X29).is_ok_and(|pointer| pointer == caller)
                && word(pt_regs::PSTATE).is_ok_and(|state| state & MODE != 0);
            if is {
                return interrupted(regs, memory);
            }
        }
        let sp = record.wrapping_add(16);
        let registers = Registers { ip: strip(address), sp, bp: caller, ..Registers::default() };
        Ok(Outcome::Caller { registers, pt_regs: None })
    }
}

fn interrupted(regs: u64, memory: &dyn ReadVirtual) -> Result<Outcome, TranslateError> {
    let word = |offset| memory.u64(regs.wrapping_add(offset));
    let registers = Registers {
        ip: word(pt_regs::PC)?,
        sp: word(pt_regs::SP)?,
        bp: word(pt_regs::X29)?,
        link: Some(word(pt_regs::X30)?),
        exact: true,
        ..Registers::default()
    };
    Ok(Outcome::Caller { registers, pt_regs: Some(regs) })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const RECORDS: Records = Records { in_pt_regs: Some(0x120), typed: false };
    const SIGNATURE: u64 = 0x7f << 56 | 0x7f << 48;
    const STACK: u64 = 0xffff_8000_0000_1000;
    const CODE: u64 = 0xffff_8000_1000_0000;

    struct Memory(HashMap<u64, u64>);

    impl ReadVirtual for Memory {
        fn read(&self, vaddr: u64, buf: &mut [u8]) -> Result<(), TranslateError> {
            let word = self.0.get(&vaddr).ok_or(TranslateError::NotCanonical { vaddr })?;
            buf.copy_from_slice(&word.to_le_bytes()[..buf.len()]);
            Ok(())
        }
    }

    /// A record at `at`, and the `struct pt_regs` around it with these registers.
    fn memory(at: u64, record: [u64; 3], registers: &[(u64, u64)]) -> Memory {
        let words = (0..).step_by(8).zip(record).map(|(offset, word)| (at + offset, word));
        let registers = registers.iter().map(|(offset, word)| (at - 0x120 + offset, *word));
        Memory(words.chain(registers).collect())
    }

    fn step(records: Records, now: Registers, memory: &Memory) -> Outcome {
        records.step(&now, memory, |address| address | SIGNATURE, |_, link| link == CODE + 0x500).unwrap()
    }

    fn at(record: u64) -> Registers {
        Registers { ip: CODE, sp: record - 0x40, bp: record, ..Registers::default() }
    }

    /// The interrupted code: program counter, stack pointer, X29 and X30.
    const INTERRUPTED: [(u64, u64); 5] = [
        (pt_regs::PC, CODE + 0x100),
        (pt_regs::SP, STACK + 0x800),
        (pt_regs::X29, STACK + 0x900),
        (pt_regs::X30, CODE + 0x200),
        (pt_regs::PSTATE, 5),
    ];

    fn assert_is_interrupted(outcome: &Outcome) {
        let Outcome::Caller { registers, pt_regs } = outcome else { panic!("{outcome:?}") };
        assert_eq!((registers.ip, registers.sp), (CODE + 0x100, STACK + 0x800));
        assert_eq!((registers.bp, registers.link), (STACK + 0x900, Some(CODE + 0x200)));
        assert!(registers.exact && *pt_regs == Some(STACK + 0x400 - 0x120));
    }

    #[test]
    fn callers_lose_their_signatures_and_zero_ends_the_stack() {
        let signed = (CODE + 0x300) & !SIGNATURE | 0x25 << 56 | 1 << 55;
        let memory = memory(STACK, [STACK + 0x40, signed, 0], &[]);
        let outcome = step(RECORDS, at(STACK), &memory);
        let Outcome::Caller { registers, pt_regs: None } = outcome else { panic!("{outcome:?}") };
        assert_eq!((registers.ip, registers.bp, registers.sp), (CODE + 0x300, STACK + 0x40, STACK + 16));
        assert!(!registers.exact);
        assert!(matches!(step(RECORDS, Registers { bp: 0, ..at(STACK) }, &memory), Outcome::End));
        assert!(matches!(step(RECORDS, at(STACK + 4), &memory), Outcome::Undefined));
    }

    #[test]
    fn exceptions_are_found_by_both_kinds_of_records() {
        let old = memory(STACK + 0x400, [STACK + 0x900, CODE + 0x100, 0], &INTERRUPTED);
        assert_is_interrupted(&step(RECORDS, at(STACK + 0x400), &old));
        let typed = Records { typed: true, ..RECORDS };
        let new = memory(STACK + 0x400, [0, 0, TYPE_PT_REGS], &INTERRUPTED);
        assert_is_interrupted(&step(typed, at(STACK + 0x400), &new));
        let mut user = INTERRUPTED;
        user[4].1 = 0;
        assert!(matches!(
            step(typed, at(STACK + 0x400), &memory(STACK + 0x400, [0, 0, 1], &user)),
            Outcome::User
        ));
        assert!(matches!(
            step(RECORDS, at(STACK + 0x400), &memory(STACK + 0x400, [0, 0, 9], &user)),
            Outcome::User
        ));
    }

    #[test]
    fn a_function_without_a_record_returns_to_its_link_register() {
        let memory = memory(STACK, [STACK + 0x40, CODE + 0x600, 0], &[]);
        let now = |link| Registers { link: Some(link), exact: true, ..at(STACK) };
        let ip = |link| match step(RECORDS, now(link), &memory) {
            Outcome::Caller { registers, .. } => (registers.ip, registers.bp),
            outcome => panic!("{outcome:?}"),
        };
        assert_eq!(ip(CODE + 0x500), (CODE + 0x500, STACK));
        assert_eq!(ip(CODE + 0x600), (CODE + 0x600, STACK + 0x40));
        // What a call left there.
        assert_eq!(ip(CODE + 0x10), (CODE + 0x600, STACK + 0x40));
    }
}
