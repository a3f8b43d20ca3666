//! Stacks of arm64 and riscv64 through frame records: chains with calls and exceptions of every shape, and arbitrary memory.

use std::cell::Cell;
use std::sync::LazyLock;

use pagehaul_inspect::unwind::{End, FrameRecords, Registers, Stack, Unwinder};
use pagehaul_kernel::{AddressSpace, ReadVirtual, TranslateError, VmcoreInfo};
use pagehaul_physmem::MapPolicy;
use pagehaul_symbols::{Kallsyms, Symbols};
use pagehaul_synth::{Arm64, Era, Machine, numbered_functions};
use pagehaul_vmcore::Source;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

const CODE: u64 = 0xffff_8000_8000_0000;
const FUNCTION: u64 = 0x100;
const FUNCTIONS: u64 = 64;
const TEXT: u64 = FUNCTION * FUNCTIONS;
const STACK: u64 = 0xffff_8000_0400_0000;
/// Room for the longest chain of [`steps`].
const CHAIN_WORDS: usize = 4096;
/// Words of arbitrary memory: so few that records meet.
const WORDS: usize = 256;
const END: u64 = STACK + 8 * WORDS as u64;
/// Bits of a return address that pointer authentication signs, with addresses of 52 bits.
const SIGNATURE: u64 = 0xfff0_0000_0000_0000;
/// Chooses the kernel's half of the address space, and is not signed.
const KERNEL: u64 = 1 << 55;
/// `offsetof(struct pt_regs, stackframe)`.
const IN_PT_REGS: u64 = 0x120;
const PT_REGS_BYTES: u64 = 0x150;
/// Frames that the unwinder returns at most.
const MAX_FRAMES: usize = 96;
/// Words that it reads for one of them: a record, its type, and registers.
const MAX_READS: usize = 10;

/// Code with symbols, and a stack.
struct Memory {
    stack: Vec<u64>,
    reads: Cell<usize>,
}

impl Memory {
    fn new(stack: Vec<u64>) -> Self {
        Self { stack, reads: Cell::new(0) }
    }

    fn put(&mut self, at: u64, word: u64) {
        self.stack[((at - STACK) / 8) as usize] = word;
    }
}

impl ReadVirtual for Memory {
    fn read(&self, vaddr: u64, buf: &mut [u8]) -> Result<(), TranslateError> {
        self.reads.set(self.reads.get() + 1);
        for (index, byte) in (0..).zip(buf) {
            let outside = TranslateError::NotCanonical { vaddr };
            let at = vaddr.checked_add(index).and_then(|at| at.checked_sub(STACK)).ok_or(outside)?;
            let word = self.stack.get((at / 8) as usize).ok_or(TranslateError::NotCanonical { vaddr })?;
            *byte = word.to_le_bytes()[at as usize % 8];
        }
        Ok(())
    }
}

/// The tables of kallsyms behind the code.
struct Image(Vec<u8>);

impl ReadVirtual for Image {
    fn read(&self, vaddr: u64, buf: &mut [u8]) -> Result<(), TranslateError> {
        let at = vaddr.checked_sub(CODE).map(|at| at as usize);
        let bytes = at.and_then(|at| self.0.get(at..)?.get(..buf.len()));
        buf.copy_from_slice(bytes.ok_or(TranslateError::NotCanonical { vaddr })?);
        Ok(())
    }
}

static SYMBOLS: LazyLock<Symbols> = LazyLock::new(|| {
    let (image, keys) = numbered_functions(CODE, FUNCTIONS);
    Symbols::new(Kallsyms::read(&VmcoreInfo::parse(keys.as_bytes()), &Image(image)).unwrap())
});

/// A kernel with pointer authentication.
static KERNEL_SPACE: LazyLock<AddressSpace> = LazyLock::new(|| {
    let mut machine = Machine::arm64(Era::V6_12, Arm64::V52);
    machine.info("NUMBER(KERNELPACMASK)", "0xfff0000000000000");
    let file = tempfile::NamedTempFile::new().unwrap();
    machine.build().elf().write(file.path()).unwrap();
    let source = Source::open(file.path(), MapPolicy::default()).unwrap();
    AddressSpace::discover(source.memory()).unwrap()
});

fn arm64(typed: bool) -> FrameRecords {
    FrameRecords::Arm64 { in_pt_regs: Some(IN_PT_REGS), typed }
}

fn unwind(memory: &Memory, records: FrameRecords, start: Registers) -> Stack {
    Unwinder::with_records(memory, &SYMBOLS, &KERNEL_SPACE, records).unwind(start)
}

fn signed(address: u64, noise: u64) -> u64 {
    address & !SIGNATURE | noise & SIGNATURE | KERNEL
}

/// A call, or code that an exception interrupted: the words below its record, the place of its address, the noise in its signature.
type Step = (bool, u64, u64, u64);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    vec((prop::bool::weighted(0.2), 0..16_u64, 1..TEXT / 4, any::<u64>()), 0..60)
}

/// Writes the frame records of `steps` upwards, and returns the program counter and the stack pointer of each frame, and the address
/// of the first record.
fn write(memory: &mut Memory, typed: bool, steps: &[Step]) -> (Vec<(u64, u64)>, u64) {
    let mut records = Vec::new();
    let mut next = STACK;
    for (is_exception, gap, ..) in steps {
        let start = next + 8 * gap;
        let (record, bytes) = if *is_exception { (start + IN_PT_REGS, PT_REGS_BYTES) } else { (start, 16) };
        records.push((record, start + bytes));
        next = start + bytes;
    }
    let mut frames = Vec::new();
    for (at, (is_exception, _, place, noise)) in steps.iter().enumerate() {
        let (record, end) = records[at];
        let caller = records.get(at + 1).map_or(0, |(record, _)| *record);
        let address = CODE + 4 * place;
        if *is_exception {
            let registers = record - IN_PT_REGS;
            // X30 has what a call in the same function left there.
            for (index, word) in [(29, caller), (30, address & !0xff | 4), (31, end), (32, address), (33, 5)]
            {
                memory.put(registers + 8 * index, word);
            }
            let words = if typed { [0, 0, 2] } else { [caller, address, 0] };
            words.into_iter().zip(0..).for_each(|(word, index)| memory.put(record + 8 * index, word));
            frames.push((address, end));
        } else {
            memory.put(record, caller);
            memory.put(record + 8, signed(address, *noise));
            frames.push((address, record + 16));
        }
    }
    (frames, records.first().map_or(0, |(record, _)| *record))
}

/// Words that may be mistaken for records and registers.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => (0..WORDS as u64).prop_map(|index| STACK + 8 * index),
        1 => STACK..END,
        4 => CODE..CODE + TEXT,
        2 => (CODE..CODE + TEXT, any::<u64>()).prop_map(|(address, noise)| signed(address, noise)),
        2 => 0..3_u64,
        1 => any::<u64>(),
    ]
}

fn registers() -> impl Strategy<Value = Registers> {
    let parts = (word(), STACK..END, word(), option::of(word()), any::<bool>());
    parts.prop_map(|(ip, sp, bp, link, exact)| Registers { ip, sp, bp, link, exact, ..Registers::default() })
}

/// Registers of a function whose record is at `record`.
fn in_function(record: u64) -> Registers {
    Registers { ip: CODE, sp: STACK - 64, bp: record, ..Registers::default() }
}

/// Program counter and stack pointer of each caller.
fn callers(stack: &Stack) -> Vec<(u64, u64)> {
    stack.frames.iter().skip(1).map(|frame| (frame.pc, frame.sp)).collect()
}

proptest! {
    #[test]
    fn calls_and_exceptions_are_unwound_to_the_bottom(steps in steps(), typed in any::<bool>()) {
        let mut memory = Memory::new(vec![0; CHAIN_WORDS]);
        let (expected, record) = write(&mut memory, typed, &steps);
        let stack = unwind(&memory, arm64(typed), in_function(record));
        prop_assert_eq!((callers(&stack), stack.end), (expected, End::Bottom));
        let exceptions: Vec<bool> = stack.frames.iter().skip(1).map(|frame| frame.exact).collect();
        prop_assert_eq!(exceptions, steps.iter().map(|(is_exception, ..)| *is_exception).collect::<Vec<_>>());
    }

    #[test]
    fn records_of_riscv64_are_unwound_to_the_bottom(gaps in vec((2..16_u64, 1..TEXT / 4), 0..60)) {
        let mut memory = Memory::new(vec![0; CHAIN_WORDS]);
        let (mut record, mut expected) = (STACK + 16, Vec::new());
        let first = record;
        for (at, (gap, place)) in gaps.iter().enumerate() {
            let caller = if at + 1 < gaps.len() { record + 8 * gap } else { 0 };
            memory.put(record - 8, CODE + 4 * place);
            memory.put(record - 16, caller);
            expected.push((CODE + 4 * place, record));
            record = caller;
        }
        let start = if gaps.is_empty() { 0 } else { first };
        let stack = unwind(&memory, FrameRecords::Riscv64, in_function(start));
        prop_assert_eq!((callers(&stack), stack.end), (expected, End::Bottom));
    }

    #[test]
    fn arbitrary_memory_has_an_end(
        words in vec(word(), WORDS),
        records in prop_oneof![any::<bool>().prop_map(arm64), Just(FrameRecords::Riscv64)],
        start in registers(),
    ) {
        let memory = Memory::new(words);
        let Stack { frames, end } = unwind(&memory, records, start);
        prop_assert!(memory.reads.get() <= MAX_READS * MAX_FRAMES, "{} reads", memory.reads.get());
        prop_assert!((1..=MAX_FRAMES).contains(&frames.len()));
        let on_stack = |address: u64| (STACK..=END).contains(&address);
        for (at, frame) in frames.iter().enumerate().skip(1) {
            // Records are on the stack; the stack pointer of interrupted code may be anywhere.
            let stays = on_stack(frame.sp) || frame.sp == frames[at - 1].sp || frame.pt_regs.is_some();
            prop_assert!(stays, "{frame:x?}");
            if let Some(registers) = frame.pt_regs {
                prop_assert!(on_stack(registers + 29 * 8) && on_stack(registers + 33 * 8), "{frame:x?}");
            }
            prop_assert!(end == End::TooLong || SYMBOLS.is_text(frame.pc), "{frame:x?}");
            let repeats = frames[..at].iter().any(|earlier| (earlier.pc, earlier.sp) == (frame.pc, frame.sp));
            prop_assert!(!repeats, "{frame:x?}");
        }
    }
}

#[test]
fn a_return_address_of_zero_hides_no_function() {
    let mut memory = Memory::new(vec![0; CHAIN_WORDS]);
    let steps: Vec<Step> = (1..4).map(|place| (false, 4, place, 0)).collect();
    let (expected, record) = write(&mut memory, false, &steps);
    let last = expected[2].1 - 16;
    memory.put(last, last + 64);
    memory.put(last + 8, 0);
    let stack = unwind(&memory, arm64(false), in_function(record));
    assert_eq!((callers(&stack).as_slice(), stack.end), (&expected[..2], End::NotText));
}
