//! x86_64.

use pagehaul_btf::{Fault, Object};
use pagehaul_unwind::Registers;

use super::{Arch, Named, Saved};
use crate::{Hex, Machine};

/// Members of `struct pt_regs`, in the order in which oopses print them.
const NAMES: [&str; 18] = [
    "ip", "sp", "flags", "ax", "bx", "cx", "dx", "si", "di", "bp", "r8", "r9", "r10", "r11", "r12", "r13",
    "r14", "r15",
];
/// Their places in `struct user_regs_struct` (arch/x86/include/asm/user_64.h).
const PLACES: [usize; 18] = [16, 19, 18, 10, 5, 11, 12, 13, 14, 4, 9, 8, 7, 6, 3, 2, 1, 0];
/// Bit 9 of the flags: interrupts are on.
const INTERRUPT_FLAG: u64 = 1 << 9;

pub(super) struct X86_64;

impl Arch for X86_64 {
    fn has_frame_records(&self) -> bool {
        false
    }

    fn status_bytes(&self) -> usize {
        336
    }

    fn saved(&self, register: &dyn Fn(usize) -> Option<u64>) -> Option<Saved> {
        let registers = Registers {
            ip: register(16)?,
            sp: register(19)?,
            bp: register(4)?,
            ax: register(10),
            dx: register(12),
            di: register(14),
            r10: register(7),
            r13: register(2),
            exact: true,
            ..Registers::default()
        };
        let named = NAMES.into_iter().zip(PLACES);
        (registers.ip != 0).then_some(Saved {
            registers,
            user_mode: register(17)? & 3 != 0,
            interrupts_on: register(18)? & INTERRUPT_FLAG != 0,
            named: named.filter_map(|(name, place)| Some((name, Hex(register(place)?)))).collect(),
        })
    }

    fn sleeping(&self, machine: &Machine<'_>, task: u64) -> Result<Registers, Fault> {
        let (frame, above) = inactive_frame(machine, task)?;
        let ip = frame.number("ret_addr")?;
        let is = |symbol| machine.symbols().address(symbol).is_some_and(|fork| fork == ip);
        Ok(Registers {
            ip,
            sp: above,
            bp: frame.number("bp")?,
            // A task that never ran has no caller of this address.
            exact: is("ret_from_fork") || is("ret_from_fork_asm"),
            ..Registers::default()
        })
    }

    fn preserved(&self, machine: &Machine<'_>, task: u64) -> Result<Named, Fault> {
        let (frame, above) = inactive_frame(machine, task)?;
        let saved = ["bx", "bp", "r12", "r13", "r14", "r15"].into_iter();
        let saved =
            saved.map(|name| Ok((name, Hex(frame.number(name)?)))).collect::<Result<Vec<_>, Fault>>()?;
        Ok([vec![("ip", Hex(frame.number("ret_addr")?)), ("sp", Hex(above))], saved].concat())
    }

    fn at_entry(&self, machine: &Machine<'_>, end_of_stack: u64) -> Result<Named, Fault> {
        let size = machine.space().size_of("pt_regs")?;
        // 65c9cc9e2c14 (6.9): TOP_OF_KERNEL_STACK_PADDING is 16 with FRED.
        for padding in [0, 16] {
            let saved = machine.space().object(end_of_stack.wrapping_sub(size + padding), "pt_regs")?;
            // The code segment of user mode: 0x33, or 0x23 of 32-bit programs.
            if matches!(saved.number("cs")? & 0xffff, 0x33 | 0x23) {
                return NAMES.iter().map(|name| Ok((*name, Hex(saved.number(name)?)))).collect();
            }
        }
        Ok(Vec::new())
    }

    fn stack_pointer(&self, machine: &Machine<'_>, task: u64) -> Result<u64, Fault> {
        machine.space().object(task, "task_struct")?.number("thread.sp")
    }

    fn stack_bytes(&self, _: &Machine<'_>) -> u64 {
        // Without KASAN (6538b8ea886e, 3.15).
        16 << 10
    }
}

/// `struct inactive_task_frame` (arch/x86/include/asm/switch_to.h) of a task, and the address above it.
fn inactive_frame<'a>(machine: &'a Machine<'_>, task: u64) -> Result<(Object<'a>, u64), Fault> {
    let space = machine.space();
    let sp = X86_64.stack_pointer(machine, task)?;
    Ok((space.object(sp, "inactive_task_frame")?, sp.wrapping_add(space.size_of("inactive_task_frame")?)))
}
