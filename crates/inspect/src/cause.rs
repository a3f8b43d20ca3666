//! The stack that is to blame.

use pagehaul_facts::is_messenger;

use crate::death::{Death, Kind};
use crate::{Cpu, FrameName, StackTrace};

/// Returns the frames that are to blame, of the stack that died: those behind the interrupt, exception or NMI that
/// brought the news, and behind the functions that report it.
pub fn cause<'a>(death: &Death, stack: &'a StackTrace) -> &'a [FrameName] {
    let frames = stack.frames.as_slice();
    let interrupted = frames.iter().position(|frame| frame.interrupted);
    let from = match death.kind {
        // Watchdogs come in an interrupt or NMI.
        Kind::SoftLockup | Kind::HardLockup | Kind::RcuStall | Kind::Nmi | Kind::MachineCheck => interrupted,
        // The saved registers mostly are those of the fault; else the exception is on the stack.
        Kind::Oops | Kind::Bug | Kind::StackOverflow => interrupted.filter(|at| {
            let before = frames.get(..*at).unwrap_or_default();
            before.iter().any(|frame| {
                ["asm_exc_", "exc_", "page_fault", "oops_end", "invalid_op"]
                    .iter()
                    .any(|start| frame.function.starts_with(start))
            })
        }),
        _ => None,
    };
    let frames = frames.get(from.unwrap_or(0)..).unwrap_or_default();
    let own = frames.iter().position(|frame| !is_messenger(&frame.function)).unwrap_or(0);
    frames.get(own..).unwrap_or_default()
}

/// Returns the CPU that died: the one that saved its registers first, by the kernel's word, or by the log's.
pub(crate) fn died<'a>(death: &Death, cpus: &'a [Cpu]) -> Option<&'a Cpu> {
    cpus.iter().find(|cpu| cpu.crashed).or_else(|| cpus.iter().find(|cpu| Some(cpu.number) == death.cpu))
}
