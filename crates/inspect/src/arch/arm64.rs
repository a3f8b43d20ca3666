//! arm64.

use pagehaul_btf::Fault;
use pagehaul_unwind::Registers;

use super::{Arch, Named, Saved};
use crate::{Hex, Machine};

/// X0 to X30, the stack pointer, the program counter and `pstate` (`struct user_pt_regs`, arch/arm64/include/uapi/asm/ptrace.h), in
/// the order in which oopses print them, and their places.
const REGISTERS: [(&str, usize); 34] = [
    ("pstate", STATE),
    ("pc", PC),
    ("lr", LINK),
    ("sp", SP),
    ("x29", FRAME),
    ("x28", 28),
    ("x27", 27),
    ("x26", 26),
    ("x25", 25),
    ("x24", 24),
    ("x23", 23),
    ("x22", 22),
    ("x21", 21),
    ("x20", 20),
    ("x19", 19),
    ("x18", 18),
    ("x17", 17),
    ("x16", 16),
    ("x15", 15),
    ("x14", 14),
    ("x13", 13),
    ("x12", 12),
    ("x11", 11),
    ("x10", 10),
    ("x9", 9),
    ("x8", 8),
    ("x7", 7),
    ("x6", 6),
    ("x5", 5),
    ("x4", 4),
    ("x3", 3),
    ("x2", 2),
    ("x1", 1),
    ("x0", 0),
];
const FRAME: usize = 29;
const LINK: usize = 30;
const SP: usize = 31;
const PC: usize = 32;
const STATE: usize = 33;
/// Bits of `pstate`: the exception level, 0 in user mode, and whether interrupts are masked.
const LEVEL: u64 = 0xc;
const MASKED: u64 = 1 << 7;
/// Bytes of a stack, or a page if that is more (`MIN_THREAD_SHIFT`, arch/arm64/include/asm/memory.h, without KASAN).
const STACK_BYTES: u64 = 16 << 10;

pub(super) struct Arm64;

impl Arch for Arm64 {
    fn has_frame_records(&self) -> bool {
        true
    }

    fn status_bytes(&self) -> usize {
        392
    }

    fn saved(&self, register: &dyn Fn(usize) -> Option<u64>) -> Option<Saved> {
        let registers = Registers {
            ip: register(PC)?,
            sp: register(SP)?,
            bp: register(FRAME)?,
            link: register(LINK),
            exact: true,
            ..Registers::default()
        };
        let state = register(STATE)?;
        (registers.ip != 0).then_some(Saved {
            registers,
            user_mode: state & LEVEL == 0,
            interrupts_on: state & MASKED == 0,
            named: named(register),
        })
    }

    fn sleeping(&self, machine: &Machine<'_>, task: u64) -> Result<Registers, Fault> {
        let context = machine.space().object(task, "task_struct")?.get("thread.cpu_context")?;
        let ip = machine.kernel().return_address(context.number("pc")?);
        Ok(Registers {
            ip,
            sp: context.number("sp")?,
            bp: context.number("fp")?,
            // A task that never ran has no caller of this address.
            exact: machine.symbols().address("ret_from_fork").is_some_and(|fork| fork == ip),
            ..Registers::default()
        })
    }

    /// `struct cpu_context` (arch/arm64/include/asm/processor.h).
    fn preserved(&self, machine: &Machine<'_>, task: u64) -> Result<Named, Fault> {
        const MEMBERS: [(&str, &str); 13] = [
            ("pc", "pc"),
            ("sp", "sp"),
            ("x29", "fp"),
            ("x28", "x28"),
            ("x27", "x27"),
            ("x26", "x26"),
            ("x25", "x25"),
            ("x24", "x24"),
            ("x23", "x23"),
            ("x22", "x22"),
            ("x21", "x21"),
            ("x20", "x20"),
            ("x19", "x19"),
        ];
        let context = machine.space().object(task, "task_struct")?.get("thread.cpu_context")?;
        MEMBERS.into_iter().map(|(name, member)| Ok((name, Hex(context.number(member)?)))).collect()
    }

    fn at_entry(&self, machine: &Machine<'_>, end_of_stack: u64) -> Result<Named, Fault> {
        let start = end_of_stack.wrapping_sub(machine.space().size_of("pt_regs")?);
        let found = named(&|index| machine.memory().u64(start.wrapping_add(8 * index as u64)).ok());
        let of =
            |wanted: &str| found.iter().find(|(name, _)| *name == wanted).map_or(0, |(_, value)| value.0);
        let is_user = of("pc") != 0 && of("pstate") & LEVEL == 0;
        Ok(if is_user { found } else { Vec::new() })
    }

    fn stack_pointer(&self, machine: &Machine<'_>, task: u64) -> Result<u64, Fault> {
        machine.space().object(task, "task_struct")?.number("thread.cpu_context.sp")
    }

    fn stack_bytes(&self, machine: &Machine<'_>) -> u64 {
        machine.kernel().info().unsigned("PAGESIZE").map_or(STACK_BYTES, |size| STACK_BYTES.max(size))
    }
}

fn named(register: &dyn Fn(usize) -> Option<u64>) -> Named {
    REGISTERS.into_iter().filter_map(|(name, place)| Some((name, Hex(register(place)?)))).collect()
}
