//! The stack that is to blame.

use pagehaul_facts::{Kind, is_messenger};

use super::death::Death;
use crate::model::cpus::Cpu;
use crate::model::stacks::{FrameName, StackTrace};

/// Returns the frames to blame of the stack that died: the callers of the code that an interrupt, exception or NMI
/// interrupted, that code included, without the functions that report the crash.
pub fn cause<'a>(death: &Death, stack: &'a StackTrace) -> &'a [FrameName] {
    let frames = stack.frames.as_slice();
    let interrupted = frames.iter().position(|frame| frame.interrupted);
    let from = match death.kind {
        Some(Kind::Mce) => interrupted,
        Some(kind) if kind.interrupts() => interrupted,
        None | Some(Kind::HungTask | Kind::OomPanic | Kind::Requested | Kind::Fs) => None,
        // The saved registers mostly are those of the fault; else the exception is on the stack.
        Some(_) => interrupted.filter(|at| {
            let before = frames.get(..*at).unwrap_or_default();
            before.iter().any(|frame| {
                ["asm_exc_", "exc_", "page_fault", "oops_end", "invalid_op", "el1h_64_sync", "el1_sync"]
                    .iter()
                    .any(|start| frame.function.starts_with(start))
            })
        }),
    };
    let frames = frames.get(from.unwrap_or(0)..).unwrap_or_default();
    let own = frames.iter().position(|frame| !is_messenger(&frame.function)).unwrap_or(0);
    frames.get(own..).unwrap_or_default()
}

/// Returns the CPU that died: `crashing_cpu`, or the one that the log names.
pub(crate) fn died<'a>(death: &Death, cpus: &'a [Cpu]) -> Option<&'a Cpu> {
    cpus.iter().find(|cpu| cpu.crashed).or_else(|| cpus.iter().find(|cpu| Some(cpu.number) == death.cpu))
}
