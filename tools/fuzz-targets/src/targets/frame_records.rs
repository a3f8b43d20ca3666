//! A stack of an arm64 or riscv64 kernel, as words that are arbitrary or point into the stack and the code; the first four are registers.

use std::sync::LazyLock;

use crate::Simulation;
use pagehaul_inspect::unwind::{End, FrameRecords, Registers, Unwinder};
use pagehaul_kernel::{AddressSpace, ReadVirtual, TranslateError, VmcoreInfo};
use pagehaul_symbols::{Kallsyms, Symbols};
use pagehaul_synth::numbered_functions;

const CODE: u64 = 0xffff_8000_8000_0000;
const TEXT: u64 = 0x4000;
const STACK: u64 = 0xffff_8000_0400_0000;
const STACK_BYTES: u64 = 0x4000;
const RECORD_IN_PT_REGS: u64 = 0x120;

/// Bytes from an address.
struct Memory(u64, Vec<u8>);

impl ReadVirtual for Memory {
    fn read(&self, vaddr: u64, buf: &mut [u8]) -> Result<(), TranslateError> {
        let at = vaddr.checked_sub(self.0).and_then(|at| usize::try_from(at).ok());
        let bytes = at.and_then(|at| self.1.get(at..)?.get(..buf.len()));
        buf.copy_from_slice(bytes.ok_or(TranslateError::NotCanonical { vaddr })?);
        Ok(())
    }
}

static SYMBOLS: LazyLock<Symbols> = LazyLock::new(|| {
    let (image, keys) = numbered_functions(CODE, TEXT / 0x100);
    let info = VmcoreInfo::parse(keys.as_bytes());
    Symbols::new(Kallsyms::read(&info, &Memory(CODE, image)).expect("all tables are there"))
});

/// An intact kernel with addresses of 52 bits and pointer authentication.
static KERNEL: LazyLock<AddressSpace> = LazyLock::new(|| {
    let simulation = Simulation::arm64();
    let text =
        simulation.image().vmcoreinfo().replace("KERNELPACMASK)=0x0", "KERNELPACMASK)=0xfff0000000000000");
    AddressSpace::discover(&simulation.with_vmcoreinfo(text.as_bytes())).expect("the machine is intact")
});

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some((options, rest)) = data.split_first() else { return };
    let mut words = rest.as_chunks::<3>().0.iter().map(|&[kind, low, high]| {
        let value = u64::from(u16::from_le_bytes([low, high]));
        match kind % 8 {
            0 | 1 => STACK + 8 * value % STACK_BYTES,
            2 => CODE + 4 * value % TEXT,
            // With another signature.
            3 => CODE + 4 * value % TEXT & !(0x7f << 56) | value << 56 & 0x7f << 56,
            4 => 0,
            5 => value % 8,
            6 => STACK.wrapping_add(value).wrapping_sub(0x100),
            _ => value << 48 | value,
        }
    });
    let mut next = || words.next().unwrap_or(0);
    let start = Registers {
        ip: next(),
        sp: next(),
        bp: next(),
        link: Some(next()).filter(|_| options & 1 != 0),
        exact: options & 2 != 0,
        ..Registers::default()
    };
    let memory = Memory(STACK, words.flat_map(u64::to_le_bytes).collect());
    let records = match options & 16 {
        0 => FrameRecords::Arm64 {
            in_pt_regs: Some(RECORD_IN_PT_REGS).filter(|_| options & 4 != 0),
            typed: options & 8 != 0,
        },
        _ => FrameRecords::Riscv64,
    };
    let stack = Unwinder::with_records(&memory, &SYMBOLS, &KERNEL, records).unwind(start);
    assert!(!stack.frames.is_empty() && stack.frames.len() <= 96);
    for (at, frame) in stack.frames.iter().enumerate().skip(1) {
        let on_stack = frame.sp.checked_sub(STACK).is_some_and(|offset| offset <= memory.1.len() as u64);
        assert!(on_stack || frame.sp == stack.frames[at - 1].sp || frame.pt_regs.is_some(), "{frame:x?}");
        assert!(stack.end == End::TooLong || SYMBOLS.is_text(frame.pc), "{frame:x?}");
        assert!(!stack.frames[..at].iter().any(|earlier| (earlier.pc, earlier.sp) == (frame.pc, frame.sp)));
    }
}
