//! What ended the machine, and which lines of the log say so.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::line::Line;

/// How a machine died.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// An access to an address below a page.
    NullDeref,
    /// An access to another invalid address.
    PageFault,
    /// A general protection fault: most often a non-canonical address.
    Gpf,
    /// A failed assertion: `BUG()`.
    Bug,
    /// A warning, with `panic_on_warn`.
    Warn,
    /// A report of KASAN, KFENCE, UBSAN or another sanitizer.
    Sanitizer,
    /// A fault while a fault was handled.
    DoubleFault,
    /// A stack overflowed.
    StackOverflow,
    /// A CPU did not schedule.
    SoftLockup,
    /// A CPU did not take interrupts.
    HardLockup,
    /// A CPU or task held up an RCU grace period.
    RcuStall,
    /// A task was blocked too long.
    HungTask,
    /// No memory, with `panic_on_oom` or nothing to kill.
    OomPanic,
    /// A machine check: hardware.
    Mce,
    /// A non-maskable interrupt.
    Nmi,
    /// A file system gave up, or there is none.
    Fs,
    /// Requested by sysrq.
    Requested,
    /// Another reason.
    Other,
}

impl Kind {
    /// Returns the name, as it is in signatures and files.
    pub fn name(self) -> &'static str {
        match self {
            Self::NullDeref => "null-deref",
            Self::PageFault => "page-fault",
            Self::Gpf => "gpf",
            Self::Bug => "bug",
            Self::Warn => "warn",
            Self::Sanitizer => "sanitizer",
            Self::DoubleFault => "double-fault",
            Self::StackOverflow => "stack-overflow",
            Self::SoftLockup => "soft-lockup",
            Self::HardLockup => "hard-lockup",
            Self::RcuStall => "rcu-stall",
            Self::HungTask => "hung-task",
            Self::OomPanic => "oom-panic",
            Self::Mce => "mce",
            Self::Nmi => "nmi",
            Self::Fs => "fs",
            Self::Requested => "requested",
            Self::Other => "other",
        }
    }

    /// Returns the kind in words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::NullDeref => "NULL pointer dereference",
            Self::PageFault => "page fault",
            Self::Gpf => "general protection fault",
            Self::Bug => "kernel BUG",
            Self::Warn => "warning with panic_on_warn",
            Self::Sanitizer => "sanitizer report",
            Self::DoubleFault => "double fault",
            Self::StackOverflow => "stack overflow",
            Self::SoftLockup => "soft lockup",
            Self::HardLockup => "hard lockup",
            Self::RcuStall => "RCU stall",
            Self::HungTask => "hung task",
            Self::OomPanic => "out of memory",
            Self::Mce => "machine check",
            Self::Nmi => "NMI",
            Self::Fs => "file system panic",
            Self::Requested => "sysrq crash",
            Self::Other => "panic",
        }
    }

    /// Returns whether an interrupt or NMI reports it. The interrupted code is to blame.
    pub fn interrupts(self) -> bool {
        matches!(self, Self::SoftLockup | Self::HardLockup | Self::RcuStall | Self::Nmi)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// Which lines of a log are a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// How the machine died.
    pub kind: Kind,
    /// Index of its first line.
    pub start: usize,
    /// Index of the line of the panic. None if the machine ended before it wrote one.
    pub panic: Option<usize>,
}

/// What the first line of an oops contains; the first match counts.
const OOPSES: [(&str, Kind); 26] = [
    ("NULL pointer dereference", Kind::NullDeref),
    // ppc64 (5.7) and s390 say it in other words.
    ("Kernel NULL pointer dereference on", Kind::NullDeref),
    ("stack guard page was hit", Kind::StackOverflow),
    ("Insufficient stack space to handle exception", Kind::StackOverflow),
    ("kernel stack overflow", Kind::StackOverflow),
    ("BUG: unable to handle", Kind::PageFault),
    ("BUG: Unable to handle kernel", Kind::PageFault),
    ("Unable to handle kernel", Kind::PageFault),
    ("kernel BUG at", Kind::Bug),
    ("Oops - BUG", Kind::Bug),
    ("general protection fault", Kind::Gpf),
    ("double fault", Kind::DoubleFault),
    ("divide error:", Kind::Other),
    ("invalid opcode:", Kind::Other),
    ("stack segment:", Kind::Gpf),
    ("int3:", Kind::Other),
    ("Internal error:", Kind::Other),
    ("Kernel access of bad area", Kind::PageFault),
    ("Oops: Exception in kernel mode", Kind::Other),
    ("Oops: ", Kind::Other),
    ("Oops [#", Kind::Other),
    ("control protection:", Kind::Other),
    ("Missing ENDBR:", Kind::Other),
    ("CFI failure at", Kind::Other),
    ("illegal operation:", Kind::Other),
    ("traps: PANIC:", Kind::DoubleFault),
];

/// Reports of sanitizers, which end the machine with `panic_on_warn`.
const SANITIZERS: [&str; 6] =
    ["BUG: KASAN:", "BUG: KFENCE:", "BUG: KCSAN:", "BUG: KMSAN:", "UBSAN:", "kmemleak:"];

pub(crate) const PANIC: &str = "Kernel panic - not syncing: ";

/// What sysrq writes before it crashes the machine. Releases differ in its prefix.
const SYSRQ: &str = "Trigger a crash";

/// What a panic contains; the first match counts.
const PANICS: [(&str, Kind); 29] = [
    ("sysrq triggered crash", Kind::Requested),
    ("hung_task:", Kind::HungTask),
    ("softlockup:", Kind::SoftLockup),
    ("hard LOCKUP", Kind::HardLockup),
    ("Hard LOCKUP", Kind::HardLockup),
    ("RCU Stall", Kind::RcuStall),
    ("Out of memory", Kind::OomPanic),
    ("out of memory", Kind::OomPanic),
    ("System is deadlocked on memory", Kind::OomPanic),
    ("achine check", Kind::Mce),
    ("achine Check", Kind::Mce),
    ("Fatal hardware error", Kind::Mce),
    ("Fatal local machine check", Kind::Mce),
    ("Uncorrected hardware error", Kind::Mce),
    ("NMI", Kind::Nmi),
    ("Non maskable interrupt", Kind::Nmi),
    ("kernel stack overflow", Kind::StackOverflow),
    ("Kernel stack overflow", Kind::StackOverflow),
    ("corrupted stack end", Kind::StackOverflow),
    ("double fault", Kind::DoubleFault),
    ("panic_on_warn set", Kind::Warn),
    ("kasan.fault", Kind::Sanitizer),
    ("VFS: Unable to mount root fs", Kind::Fs),
    ("EXT4-fs", Kind::Fs),
    ("EXT3-fs", Kind::Fs),
    ("EXT2-fs", Kind::Fs),
    ("XFS", Kind::Fs),
    ("BTRFS", Kind::Fs),
    ("F2FS", Kind::Fs),
];

/// Panics that follow from an oops: the oops counts.
const CONSEQUENCES: [&str; 7] = [
    "Fatal exception",
    "Fatal error",
    "Oops",
    "Aiee, killing interrupt handler",
    "Attempted to kill",
    "Machine halted",
    "Unrecoverable exception",
];

/// Longest time between two blocked tasks that one round of the watchdog reports: a slow console takes 0.2 s for each.
const ROUND: u64 = 2_000_000_000;

impl Event {
    /// Finds the crash in the log of a kernel. `None` if there is none: the memory of a running or silent machine.
    pub fn find(lines: &[Line<'_>]) -> Option<Self> {
        // A kernel panics once.
        let panic = lines.iter().position(|line| line.text.starts_with(PANIC));
        let before = lines.get(..panic.unwrap_or(lines.len())).unwrap_or_default();
        let oops = |(start, kind)| Self { kind: refined(lines, start, kind), start, panic };
        let Some(at) = panic else {
            // With panic_on_oops the machine ends before it writes that it panics.
            return first_oops(before).map(oops).or_else(|| {
                let start = before.iter().rposition(|line| line.text.contains(SYSRQ))?;
                Some(Self { kind: Kind::Requested, start, panic })
            });
        };
        let text = lines.get(at).map_or("", |line| line.text.strip_prefix(PANIC).unwrap_or_default());
        if CONSEQUENCES.iter().any(|start| text.starts_with(start))
            && let Some(found) = first_oops(before)
        {
            return Some(oops(found));
        }
        let mut kind =
            PANICS.iter().find(|(part, _)| text.contains(part)).map_or(Kind::Other, |(_, kind)| *kind);
        let last = |parts: &[&str]| {
            before.iter().rposition(|line| parts.iter().any(|part| line.text.contains(part)))
        };
        let start = match kind {
            Kind::HungTask => first_blocked(before),
            Kind::SoftLockup => last(&["BUG: soft lockup"]),
            Kind::HardLockup => last(&["hard LOCKUP on cpu"]),
            Kind::RcuStall => {
                last(&["self-detected stall", "detected stalls on", "detected expedited stalls"])
            }
            Kind::StackOverflow | Kind::DoubleFault => {
                first_oops(before).filter(|(_, found)| *found == kind).map(|(start, _)| start)
            }
            Kind::Warn | Kind::Sanitizer => {
                let report = last(&SANITIZERS);
                let warning = last(&["WARNING: "]);
                // A sanitizer's report is followed by the panic, without a warning between.
                if report > warning {
                    kind = Kind::Sanitizer;
                }
                report.max(warning)
            }
            _ => None,
        };
        Some(Self { kind, start: start.unwrap_or(at), panic })
    }
}

/// Oopses follow from the first: locks stay held, structures half changed.
fn first_oops(lines: &[Line<'_>]) -> Option<(usize, Kind)> {
    lines.iter().enumerate().find_map(|(at, line)| Some((at, oops_kind(line.text)?)))
}

fn oops_kind(text: &str) -> Option<Kind> {
    // Oopses of programs begin with the program: `traps: x[12] general protection fault ip:…`.
    if text.contains(" ip:") || text.contains("KASAN") {
        return None;
    }
    OOPSES.iter().find(|(part, _)| text.contains(part)).map(|(_, kind)| *kind)
}

/// What the lines after the first say of the kind.
fn refined(lines: &[Line<'_>], start: usize, kind: Kind) -> Kind {
    let mut kind = kind;
    for text in lines.iter().skip(start).take(20).map(|line| line.text) {
        // Before 5.0, sysrq crashed by a NULL pointer (8341f2f222d7).
        if text.contains("sysrq_handle_crash") && (text.starts_with("RIP") || text.starts_with("pc : ")) {
            return Kind::Requested;
        }
        // s390 says the same of all addresses.
        let address = text.strip_prefix("Failing address: ").and_then(|rest| rest.split(' ').next());
        if kind == Kind::PageFault
            && address.is_some_and(|hex| u64::from_str_radix(hex, 16).is_ok_and(|at| at < 4096))
        {
            kind = Kind::NullDeref;
        }
    }
    kind
}

/// The first task of the last round of reports about blocked tasks.
fn first_blocked(lines: &[Line<'_>]) -> Option<usize> {
    let mut first: Option<(usize, u64)> = None;
    for (at, line) in lines.iter().enumerate().rev() {
        if first.is_some_and(|(_, time)| time.saturating_sub(line.nanoseconds) > ROUND) {
            break;
        }
        // 7.2 has "blocked in I/O wait for more than", too.
        let parts = [" blocked ", " for more than "];
        if line.text.starts_with("INFO: task ") && parts.iter().all(|part| line.text.contains(part)) {
            first = Some((at, line.nanoseconds));
        }
    }
    first.map(|(at, _)| at)
}
