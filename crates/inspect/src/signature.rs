//! The stack that is to blame, and a signature of it that groups equal crashes of different builds.

use pagehaul_symbols::family_name;
use serde::Serialize;
use twox_hash::XxHash3_64;

use crate::death::{Death, Kind};
use crate::{Cpu, FrameName, StackTrace};

/// Frames in a signature: netdev's signatures have five.
const FRAMES: usize = 5;

/// Functions that report, wait or copy for others, by how their names start.
const MESSENGERS: [&str; 62] = [
    "panic",
    "vpanic",
    "nmi_panic",
    "__crash_kexec",
    "crash_kexec",
    "oops_end",
    "__die",
    "die",
    "page_fault_oops",
    "no_context",
    "__bad_area",
    "bad_area",
    "exc_",
    "asm_exc_",
    "sysvec_",
    "asm_sysvec_",
    "__sysvec_",
    "do_error_trap",
    "do_trap",
    "do_user_addr_fault",
    "handle_bug",
    "__do_page_fault",
    "do_page_fault",
    "page_fault",
    "invalid_op",
    "do_invalid_op",
    "asm_common_interrupt",
    "common_interrupt",
    "kernelmode_fixup_or_oops",
    "fixup_bug",
    "schedule",
    "__schedule",
    "io_schedule",
    "preempt_schedule",
    "mutex_lock",
    "__mutex_lock",
    "__ww_mutex",
    "rwsem_down",
    "down_",
    "down",
    "__down",
    "__might_",
    "wait_for_completion",
    "__wait_for_common",
    "do_wait_for_common",
    "memcpy",
    "memset",
    "memmove",
    "copy_",
    "_copy_",
    "rep_",
    "__list_add",
    "__list_del",
    "refcount_",
    "kasan_",
    "__kasan",
    "__asan",
    "__ubsan",
    "rcu_sched_clock_irq",
    "do_syscall_",
    "entry_",
    "x64_sys_call",
];

/// Groups crashes.
#[derive(Debug, Clone, Serialize)]
pub struct Signature {
    /// Kind and functions: `oops:ext4_writepages:do_writepages`.
    pub text: String,
    /// Hash of the text: equal for all releases.
    pub family: String,
    /// Hash of the text and the release.
    pub exact: String,
}

/// The outermost functions of kernel threads and system calls: they tell nothing.
const BOTTOMS: [&str; 4] = ["kthread", "ret_from_fork", "ret_from_fork_asm", "worker_thread"];

fn is_messenger(function: &str) -> bool {
    MESSENGERS.iter().any(|start| function.starts_with(start))
}

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

/// Makes the signature of the frames that are to blame. `lock` is the kind of lock that a hung task waits for.
pub fn signature(death: &Death, frames: &[FrameName], lock: Option<&str>, release: &str) -> Signature {
    let kind = match death.kind {
        Kind::HungTask => "hung",
        kind => kind.describe(),
    };
    let mut parts = vec![kind.replace(' ', "-").to_lowercase()];
    parts.extend(lock.map(str::to_owned));
    let counts =
        |frame: &&FrameName| !is_messenger(&frame.function) && !BOTTOMS.contains(&frame.function.as_str());
    let functions = frames.iter().filter(counts).map(|frame| {
        let name = family_name(&frame.function);
        let name = name.strip_prefix("__x64_").unwrap_or(name);
        frame.module.as_ref().map_or_else(|| name.to_owned(), |module| format!("{module}!{name}"))
    });
    parts.extend(functions.take(FRAMES));
    let text = parts.join(":");
    Signature {
        family: format!("{:016x}", XxHash3_64::oneshot(text.as_bytes())),
        exact: format!("{:016x}", XxHash3_64::oneshot(format!("{release} {text}").as_bytes())),
        text,
    }
}

/// Returns the CPU that died: the one that saved its registers first, by the kernel's word, or by the log's.
pub(crate) fn died<'a>(death: &Death, cpus: &'a [Cpu]) -> Option<&'a Cpu> {
    cpus.iter().find(|cpu| cpu.crashed).or_else(|| cpus.iter().find(|cpu| Some(cpu.number) == death.cpu))
}
