//! Registers that CPUs and tasks saved, by the description of the [architecture](pagehaul_machine::Arch).

use pagehaul_btf::{Fault, Object};
use pagehaul_machine::{CpuMode, PR_REG, SwitchedOut, Word};

use crate::hex::Hex;
use crate::machine::Machine;
use crate::unwind::Registers;

/// Registers with their names, in the order in which oopses print them.
pub(crate) type Named = Vec<(&'static str, Hex)>;

/// The registers that a CPU saved at the crash.
pub(crate) struct Saved {
    /// Where unwinding starts.
    pub(crate) registers: Registers,
    pub(crate) mode: CpuMode,
    pub(crate) named: Named,
}

/// Reads what a CPU saved from its `struct elf_prstatus`.
pub(crate) fn saved(machine: &Machine<'_>, status: &[u8]) -> Option<Saved> {
    let word = |index: usize| {
        let word = status.get(PR_REG + 8 * index..)?.first_chunk()?;
        Some(u64::from_le_bytes(*word))
    };
    let layout = machine.arch().registers();
    let named = named(machine, &word);
    // Those that ORC data refers to, which other architectures do not have by these names.
    let of = |name: &str| named.iter().find(|(known, _)| *known == name).map(|(_, value)| value.0);
    let registers = Registers {
        ip: word(layout.ip)?,
        sp: word(layout.sp)?,
        bp: word(layout.frame_pointer)?,
        ax: of("ax"),
        dx: of("dx"),
        di: of("di"),
        r10: of("r10"),
        r13: of("r13"),
        link: layout.link.and_then(word),
        exact: true,
    };
    let mode = machine.arch().mode(&word)?;
    // A call through a NULL pointer leaves 0 as the instruction pointer. A CPU that saved nothing has no stack pointer either.
    (registers.ip != 0 || registers.sp != 0).then_some(Saved { registers, mode, named })
}

fn named(machine: &Machine<'_>, word: Word<'_>) -> Named {
    let printed = machine.arch().registers().printed.iter();
    printed.filter_map(|(name, index)| Some((*name, Hex(word(*index)?)))).collect()
}

/// Returns the registers of a task that does not run, from which it is unwound.
pub(crate) fn sleeping(machine: &Machine<'_>, task: u64) -> Result<Registers, Fault> {
    let (place, context) = (machine.arch().switched_out(), Context::new(machine, task)?);
    let ip = machine.kernel().return_address(context.member(place.ip)?);
    let is = |symbol: &&str| machine.symbols().address(symbol).is_some_and(|start| start == ip);
    Ok(Registers {
        ip,
        sp: context.sp,
        bp: context.member(place.frame_pointer)?,
        // A task that never ran has no caller of this address.
        exact: place.starts.iter().any(is),
        ..Registers::default()
    })
}

/// Returns those that the scheduler saved of a task that does not run.
pub(crate) fn preserved(machine: &Machine<'_>, task: u64) -> Result<Named, Fault> {
    let (place, context) = (machine.arch().switched_out(), Context::new(machine, task)?);
    let layout = machine.arch().registers();
    let name = |index| layout.printed.iter().find(|(_, word)| *word == index).map_or("", |(name, _)| *name);
    let first = [(name(layout.ip), Hex(context.member(place.ip)?)), (name(layout.sp), Hex(context.sp))];
    let others = place.preserved.iter().map(|(name, member)| Ok((*name, Hex(context.member(member)?))));
    first.into_iter().map(Ok).chain(others).collect()
}

/// Returns the registers at the entry from user mode, if the `struct pt_regs` at the end of the stack has them.
pub(crate) fn at_entry(machine: &Machine<'_>, end_of_stack: u64) -> Result<Named, Fault> {
    let size = machine.space().size_of("pt_regs")?;
    for padding in machine.arch().paddings() {
        let start = end_of_stack.wrapping_sub(size + padding);
        let word = |index: usize| machine.memory().u64(start.wrapping_add(8 * index as u64)).ok();
        if machine.arch().is_entry_from_user(&word) {
            return Ok(named(machine, &word));
        }
    }
    Ok(Vec::new())
}

/// Returns the stack pointer that the scheduler saved of a task that does not run.
pub(crate) fn stack_pointer(machine: &Machine<'_>, task: u64) -> Result<u64, Fault> {
    number(&machine.space().object(task, "task_struct")?, machine.arch().switched_out().stack_pointer)
}

/// The registers of a task that does not run.
struct Context<'a> {
    /// The record whose members they are.
    object: Object<'a>,
    /// Its stack pointer, above what the scheduler pushed.
    sp: u64,
}

impl<'a> Context<'a> {
    fn new(machine: &'a Machine<'_>, task: u64) -> Result<Self, Fault> {
        let space = machine.space();
        let SwitchedOut { pushed, .. } = machine.arch().switched_out();
        let sp = stack_pointer(machine, task)?;
        Ok(match pushed {
            Some(record) => {
                Self { object: space.object(sp, record)?, sp: sp.wrapping_add(space.size_of(record)?) }
            }
            None => Self { object: space.object(task, "task_struct")?, sp },
        })
    }

    fn member(&self, path: &str) -> Result<u64, Fault> {
        number(&self.object, path)
    }
}

/// The number at a path, the last name of which may have an index: `thread.s[0]`.
fn number(object: &Object<'_>, path: &str) -> Result<u64, Fault> {
    let element = path.strip_suffix(']').and_then(|path| path.rsplit_once('['));
    match element.and_then(|(path, index)| Some((path, index.parse().ok()?))) {
        Some((path, index)) => object.get(path)?.index(index)?.unsigned(),
        None => object.number(path),
    }
}
