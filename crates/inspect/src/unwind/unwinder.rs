//! Unwinds a stack from its top to its end.

use std::cell::RefCell;
use std::collections::HashMap;

use pagehaul_kernel::{AddressSpace, ReadVirtual};
use pagehaul_symbols::Symbols;

use super::frame_records::FrameRecords;
use super::guess;
use super::orc::Entry;
use super::step::{Outcome, Registers, step};
use super::table::Table;

/// Frames of one stack. 16 KiB have room for more only with frames of a few words.
const MAX_FRAMES: usize = 96;
/// Guesses in one stack: each can lead astray.
const MAX_GUESSES: u32 = 2;
/// Bytes of the largest stack.
const STACK_BYTES: u64 = 32 << 10;

/// One frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The interrupted instruction, or the address that a call returns to.
    pub pc: u64,
    /// Stack pointer there.
    pub sp: u64,
    /// Whether `pc` is an interrupted instruction.
    pub exact: bool,
    /// Whether this frame was searched on the stack, because ORC had no entry for the one before.
    pub guess: bool,
    /// Address of the `struct pt_regs` with all registers of this frame.
    pub pt_regs: Option<u64>,
}

/// Why a stack ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The bottom of the stack.
    Bottom,
    /// User mode.
    User,
    /// ORC has no entry for the last frame, or it has no frame record.
    Undefined,
    /// The last return address is not code.
    NotText,
    /// The stack cannot be read.
    Unreadable,
    /// The stack loops.
    Loop,
    /// There are more frames than a stack can have.
    TooLong,
}

impl End {
    /// Returns whether the stack was unwound completely.
    pub fn is_complete(self) -> bool {
        matches!(self, Self::Bottom | Self::User)
    }

    /// Returns a description.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Bottom => "end of the stack",
            Self::User => "user mode",
            Self::Undefined => "no unwind data",
            Self::NotText => "not code",
            Self::Unreadable => "the stack cannot be read",
            Self::Loop => "the stack repeats itself",
            Self::TooLong => "too many frames",
        }
    }
}

/// A stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// The innermost frame first.
    pub frames: Vec<Frame>,
    /// Why it ends.
    pub end: End,
}

/// Unwinds stacks of one kernel.
pub struct Unwinder<'a> {
    memory: &'a dyn ReadVirtual,
    symbols: &'a Symbols,
    kernel: Option<&'a Table>,
    modules: &'a [Table],
    /// 87ccc826bf1c (5.12) changed what SP-indirect means.
    load_before_add: bool,
    /// Instead of ORC.
    records: Option<(FrameRecords, &'a AddressSpace)>,
    /// Tasks sleep in few functions.
    entries: RefCell<HashMap<u64, Option<Entry>>>,
}

impl<'a> Unwinder<'a> {
    /// Starts with the kernel's table. Without one only the first frame of each stack is known. `load_before_add` is
    /// true for kernels since 5.12.
    pub fn new(
        memory: &'a dyn ReadVirtual,
        symbols: &'a Symbols,
        kernel: Option<&'a Table>,
        modules: &'a [Table],
        load_before_add: bool,
    ) -> Self {
        Self { memory, symbols, kernel, modules, load_before_add, records: None, entries: RefCell::default() }
    }

    /// Follows frame records, as arm64 and riscv64 kernels have them.
    pub fn with_records(
        memory: &'a dyn ReadVirtual,
        symbols: &'a Symbols,
        kernel: &'a AddressSpace,
        records: FrameRecords,
    ) -> Self {
        Self { records: Some((records, kernel)), ..Self::new(memory, symbols, None, &[], false) }
    }

    /// Unwinds from `start`.
    pub fn unwind(&self, start: Registers) -> Stack {
        self.unwind_from(start, MAX_GUESSES)
    }

    fn unwind_from(&self, start: Registers, guesses: u32) -> Stack {
        let mut frames = vec![frame(&start, None, false)];
        let mut now = start;
        let end = loop {
            if frames.len() >= MAX_FRAMES {
                break End::TooLong;
            }
            if !self.symbols.is_text(now.ip) {
                // A call through a wild pointer: the return address is in the link register, or on top of the stack.
                let on_stack = || Some((self.memory.u64(now.sp).ok()?, now.sp.wrapping_add(8)));
                let link = now
                    .link
                    .zip(self.records)
                    .map(|(link, (_, kernel))| (kernel.return_address(link), now.sp));
                let caller = link.or_else(on_stack).filter(|_| now.exact);
                match caller.filter(|(caller, _)| self.symbols.is_text(*caller)) {
                    Some((ip, sp)) if frames.len() == 1 => {
                        now = Registers { ip, sp, bp: now.bp, ..Registers::default() };
                        frames.push(frame(&now, None, true));
                        continue;
                    }
                    _ => break End::NotText,
                }
            }
            let outcome = match self.records {
                Some((records, kernel)) => records.step(&now, self.memory, self.symbols, kernel),
                None => match self.entry(if now.exact { now.ip } else { now.ip.wrapping_sub(1) }) {
                    Some(entry) => step(&entry, &now, self.memory, self.load_before_add),
                    None => Ok(Outcome::Undefined),
                },
            };
            let (next, pt_regs) = match outcome {
                Ok(Outcome::Caller { registers, pt_regs }) => (registers, pt_regs),
                Ok(Outcome::User) => break End::User,
                Ok(Outcome::End) => break End::Bottom,
                Ok(Outcome::Undefined) if self.records.is_some() => break End::Undefined,
                Ok(Outcome::Undefined) => {
                    if let Some(rest) = guesses.checked_sub(1).and_then(|left| self.guess(&now, left)) {
                        frames.extend(rest.frames);
                        frames.truncate(MAX_FRAMES);
                        break rest.end;
                    }
                    break End::Undefined;
                }
                Err(_) => break End::Unreadable,
            };
            // Stacks grow down: a caller's frame is above, unless it is on another stack. A function without a frame may have been
            // interrupted.
            let is_above = next.sp > now.sp || next.sp == now.sp && now.link.is_some();
            if !is_above && now.sp - next.sp < STACK_BYTES
                || frames.iter().any(|frame| frame.sp == next.sp && frame.pc == next.ip)
            {
                break End::Loop;
            }
            frames.push(frame(&next, pt_regs, false));
            now = next;
        };
        if end == End::NotText && frames.len() > 1 {
            frames.pop();
        }
        Stack { frames, end }
    }

    /// Searches the stack for the caller of the function that `now` is in. The first candidate whose stack
    /// reaches its end counts.
    fn guess(&self, now: &Registers, guesses: u32) -> Option<Stack> {
        // If the function is known, only a call of it counts.
        let callee = self.symbols.name(now.ip).map(|name| now.ip - name.offset);
        let candidates = guess::candidates(self.memory, self.symbols, now.sp, callee);
        let mut best: Option<Stack> = None;
        for candidate in candidates {
            // BP is unchanged, or saved in a word below that points up this stack.
            let saved = (candidate.below..candidate.sp.wrapping_sub(8)).step_by(8).filter_map(|at| {
                let value = self.memory.u64(at).ok()?;
                (value >= candidate.sp && value - candidate.sp < STACK_BYTES).then_some(value)
            });
            for bp in std::iter::once(now.bp).chain(saved).take(16) {
                let ip = candidate.return_address;
                let start = Registers { ip, sp: candidate.sp, bp, ..Registers::default() };
                let mut stack = self.unwind_from(start, guesses);
                if let Some(first) = stack.frames.first_mut() {
                    first.guess = true;
                }
                if stack.end.is_complete() {
                    return Some(stack);
                }
                if best.as_ref().is_none_or(|best| stack.frames.len() > best.frames.len()) {
                    best = Some(stack);
                }
            }
        }
        best
    }

    fn entry(&self, pc: u64) -> Option<Entry> {
        if let Some(known) = self.entries.borrow().get(&pc) {
            return *known;
        }
        let module = self.modules.iter().find(|table| table.covers(pc));
        let entry = match module {
            Some(table) => table.find(self.memory, pc),
            None if self.symbols.module_at(pc).is_some() => None,
            None => self.kernel.and_then(|table| table.find(self.memory, pc)),
        };
        self.entries.borrow_mut().insert(pc, entry);
        entry
    }
}

fn frame(registers: &Registers, pt_regs: Option<u64>, guess: bool) -> Frame {
    Frame { pc: registers.ip, sp: registers.sp, exact: registers.exact, guess, pt_regs }
}
