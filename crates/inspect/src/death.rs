//! How the machine died, from its log.

use pagehaul_kernel::{KernelLog, Record};
use serde::Serialize;

/// What ended the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// An access to an invalid address, or another exception in the kernel.
    Oops,
    /// A failed assertion (`BUG()`).
    Bug,
    /// A task was blocked too long, with `hung_task_panic`.
    HungTask,
    /// A CPU did not schedule, with `softlockup_panic`.
    SoftLockup,
    /// A CPU did not take interrupts.
    HardLockup,
    /// A CPU held up an RCU grace period, with `panic_on_rcu_stall`.
    RcuStall,
    /// No memory, with `panic_on_oom` or nothing to kill.
    OutOfMemory,
    /// The magic SysRq key or /proc/sysrq-trigger.
    Sysrq,
    /// A non-maskable interrupt.
    Nmi,
    /// A machine check.
    MachineCheck,
    /// The init process ended.
    InitEnded,
    /// A stack overflowed.
    StackOverflow,
    /// A panic of another reason.
    Panic,
    /// Nothing in the log: the memory of a running or silent machine.
    None,
}

impl Kind {
    /// Returns the kind in words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Oops => "oops",
            Self::Bug => "kernel BUG",
            Self::HungTask => "hung task",
            Self::SoftLockup => "soft lockup",
            Self::HardLockup => "hard lockup",
            Self::RcuStall => "RCU stall",
            Self::OutOfMemory => "out of memory",
            Self::Sysrq => "sysrq crash",
            Self::Nmi => "NMI",
            Self::MachineCheck => "machine check",
            Self::InitEnded => "init ended",
            Self::StackOverflow => "stack overflow",
            Self::Panic => "panic",
            Self::None => "no panic",
        }
    }
}

/// A line of the log.
#[derive(Debug, Clone, Serialize)]
pub struct LogLine {
    /// Seconds since the machine started.
    pub seconds: f64,
    /// The text.
    pub text: String,
}

/// How the machine died.
#[derive(Debug, Clone, Serialize)]
pub struct Death {
    /// The kind.
    pub kind: Kind,
    /// The line that says it, without its prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<LogLine>,
    /// The line before a panic that gives its cause: the oops, the blocked task, the stuck CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<LogLine>,
    /// What a check found that then failed as a BUG: a corrupted list, an object freed twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corruption: Option<LogLine>,
    /// Name and ID of the task that the log blames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<(String, u32)>,
    /// CPU that the log blames.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u64>,
    /// Seconds that the log says the task was blocked or the CPU stuck.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck_seconds: Option<u64>,
    /// Warnings and oopses before.
    pub earlier: Vec<LogLine>,
    /// Processes that the OOM killer killed.
    pub oom_kills: usize,
}

/// What a panic text begins with.
const PANICS: [(&str, Kind); 19] = [
    ("hung_task", Kind::HungTask),
    ("softlockup", Kind::SoftLockup),
    ("Hard LOCKUP", Kind::HardLockup),
    ("hard LOCKUP", Kind::HardLockup),
    ("Watchdog detected hard LOCKUP", Kind::HardLockup),
    ("RCU Stall", Kind::RcuStall),
    ("Out of memory", Kind::OutOfMemory),
    ("out of memory", Kind::OutOfMemory),
    ("System is deadlocked on memory", Kind::OutOfMemory),
    ("sysrq triggered crash", Kind::Sysrq),
    ("NMI", Kind::Nmi),
    ("An NMI occurred", Kind::Nmi),
    ("Non maskable interrupt", Kind::Nmi),
    ("Fatal machine check", Kind::MachineCheck),
    ("Machine check", Kind::MachineCheck),
    ("Fatal Machine check", Kind::MachineCheck),
    ("Attempted to kill init", Kind::InitEnded),
    ("kernel stack overflow", Kind::StackOverflow),
    ("corrupted stack end", Kind::StackOverflow),
];

/// What the line of an oops contains.
const OOPSES: [(&str, Kind); 10] = [
    ("kernel BUG at", Kind::Bug),
    ("stack guard page was hit", Kind::StackOverflow),
    ("BUG: kernel NULL pointer dereference", Kind::Oops),
    ("BUG: unable to handle", Kind::Oops),
    ("Unable to handle kernel", Kind::Oops),
    ("general protection fault", Kind::Oops),
    ("divide error:", Kind::Oops),
    ("invalid opcode:", Kind::Oops),
    ("double fault:", Kind::StackOverflow),
    ("Oops:", Kind::Oops),
];

const PANIC: &str = "Kernel panic - not syncing: ";

/// Reads the log. `crashed` says whether the kernel itself crashed; an oops without it may be an old one.
pub fn death(log: &KernelLog, crashed: bool) -> Death {
    let records: Vec<&Record> = log.records.iter().filter(|record| record.facility == 0).collect();
    let panic = records.iter().rposition(|record| record.text.starts_with(PANIC));
    let before = records.get(..panic.unwrap_or(records.len())).unwrap_or_default();
    let oops_at = |records: &[&Record]| {
        let at = records.iter().rposition(|record| oops_kind(&record.text).is_some())?;
        // One oops has several such lines, the first says most.
        let first = (at.saturating_sub(4)..=at)
            .find(|at| records.get(*at).is_some_and(|record| oops_kind(&record.text).is_some()))?;
        Some((first, oops_kind(&records.get(first)?.text)?))
    };
    let text =
        panic.and_then(|at| records.get(at)).map(|record| record.text.as_str().trim_start_matches(PANIC));
    let mut kind = match text {
        Some(text) if text.starts_with("Fatal exception") => Kind::Oops,
        Some(text) => {
            PANICS.iter().find(|(start, _)| text.starts_with(start)).map_or(Kind::Panic, |(_, kind)| *kind)
        }
        None => Kind::None,
    };
    let mut cause = None;
    let oops = oops_at(before);
    if kind == Kind::Oops || kind == Kind::None && crashed {
        // With panic_on_oops the kernel crashes before it prints that it panics.
        if let Some((at, found)) = oops {
            kind = found;
            cause = before.get(at).copied();
        } else if before.iter().rev().take(50).any(|record| record.text.contains("sysrq: Trigger a crash")) {
            kind = Kind::Sysrq;
        }
    }
    let last = |parts: &[&str]| {
        before.iter().rev().find(|record| parts.iter().all(|part| record.text.contains(part))).copied()
    };
    let mut task = None;
    let mut cpu = None;
    let mut stuck_seconds = None;
    match kind {
        Kind::HungTask => {
            cause = last(&["INFO: task ", " blocked ", " for more than "]);
            if let Some(record) = cause {
                task = blocked_task(&record.text);
                stuck_seconds = number_after(&record.text, " more than ");
            }
        }
        Kind::SoftLockup | Kind::HardLockup => {
            cause = last(&["BUG: soft lockup"])
                .or_else(|| last(&["hard LOCKUP"]))
                .or_else(|| last(&["stuck for "]));
            if let Some(record) = cause {
                cpu = number_after(&record.text, "CPU#").or_else(|| number_after(&record.text, "on cpu "));
                stuck_seconds = number_after(&record.text, "stuck for ");
                task = bracketed_task(&record.text);
            }
        }
        Kind::RcuStall => cause = last(&["rcu", "stall"]),
        Kind::OutOfMemory => cause = last(&["invoked oom-killer"]),
        Kind::MachineCheck => cause = last(&["[Hardware Error]"]),
        _ => {}
    }
    let current =
        |record: &&&Record| std::ptr::eq::<Record>(**record, cause.unwrap_or(**record)) && cause.is_some();
    let earlier = before
        .iter()
        .filter(|record| {
            record.text.starts_with("WARNING: ")
                || record.text.contains("Oops: ")
                || record.text.contains("BUG: ")
        })
        .filter(|record| !current(record))
        .map(|record| line(record));
    let mut earlier: Vec<LogLine> = earlier.collect();
    if let Some(cause) = cause.map(line) {
        // The lines of this oops are no earlier ones.
        earlier.retain(|line| line.seconds + 0.5 < cause.seconds);
    }
    earlier.truncate(20);
    Death {
        kind,
        line: panic.and_then(|at| records.get(at)).map(|record| line(record)),
        corruption: cause.filter(|_| kind == Kind::Bug).and_then(|bug| corruption(before, bug)),
        cause: cause.map(line),
        task,
        cpu,
        stuck_seconds,
        earlier,
        oom_kills: records.iter().filter(|record| record.text.contains("Killed process ")).count(),
    }
}

/// The line before a BUG in which CONFIG_DEBUG_LIST or the slab allocator says what is corrupted.
fn corruption(records: &[&Record], bug: &Record) -> Option<LogLine> {
    const CHECKS: [&str; 5] = ["list_add ", "list_del ", "refcount_t: ", "slab: ", "usercopy: "];
    // Not behind one of another crash: the check and the BUG are lines of one moment.
    const MOMENT: u64 = 1_000_000_000;
    let at = records.iter().rposition(|record| std::ptr::eq::<Record>(*record, bug))?;
    let lines = records.get(at.saturating_sub(4)..at)?.iter().rev();
    let said = lines.take_while(|record| bug.nanoseconds.saturating_sub(record.nanoseconds) < MOMENT);
    said.into_iter()
        .find(|record| CHECKS.iter().any(|check| record.text.starts_with(check)))
        .map(|record| line(record))
}

fn oops_kind(text: &str) -> Option<Kind> {
    OOPSES.iter().find(|(part, _)| text.contains(part)).map(|(_, kind)| *kind)
}

/// A line of the log for people: control characters cannot steer their terminal.
pub(crate) fn line(record: &Record) -> LogLine {
    let first = record.text.lines().next().unwrap_or_default();
    let text = first.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    LogLine { seconds: record.nanoseconds as f64 / 1e9, text }
}

fn number_after(text: &str, prefix: &str) -> Option<u64> {
    let rest = text.split_once(prefix)?.1;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// `INFO: task NAME:PID blocked for more than 120 seconds.`, or `blocked in I/O wait for` (7.2).
fn blocked_task(text: &str) -> Option<(String, u32)> {
    let rest = text.split_once("INFO: task ")?.1.rsplit_once(" blocked ")?.0;
    let (name, pid) = rest.rsplit_once(':')?;
    Some((name.to_owned(), pid.parse().ok()?))
}

/// `BUG: soft lockup - CPU#1 stuck for 22s! [NAME:PID]`
fn bracketed_task(text: &str) -> Option<(String, u32)> {
    let (name, pid) = text.rsplit_once('[')?.1.split_once(']')?.0.rsplit_once(':')?;
    Some((name.to_owned(), pid.parse().ok()?))
}

/// The last lines of the log, those at warning level or worse marked.
pub fn last_words(log: &KernelLog, count: usize) -> Vec<(LogLine, bool)> {
    let from = log.records.len().saturating_sub(count);
    log.records.iter().skip(from).map(|record| (line(record), record.level <= 4)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[&str]) -> KernelLog {
        let record = |(at, text): (usize, &&str)| Record {
            sequence: None,
            nanoseconds: at as u64 * 1_000_000_000,
            level: 4,
            facility: 0,
            caller: None,
            text: (*text).to_owned(),
            raw: None,
            device: None,
        };
        KernelLog { records: lines.iter().enumerate().map(record).collect(), damaged: 0 }
    }

    #[test]
    fn a_hung_task_blames_the_blocked_one() {
        let death = death(
            &log(&[
                "INFO: task dd:x:42 blocked for more than 120 seconds.",
                "Kernel panic - not syncing: hung_task: blocked tasks",
            ]),
            true,
        );
        assert_eq!(death.kind, Kind::HungTask);
        assert_eq!(death.task, Some(("dd:x".into(), 42)));
        let waits = "INFO: task dd:43 blocked in I/O wait for more than 120 seconds.";
        let death =
            super::death(&log(&[waits, "Kernel panic - not syncing: hung_task: blocked tasks"]), true);
        assert_eq!((death.task, death.stuck_seconds), (Some(("dd".into(), 43)), Some(120)));
        assert_eq!(death.stuck_seconds, Some(120));
    }

    #[test]
    fn an_oops_needs_no_panic_line() {
        let lines = [
            "BUG: kernel NULL pointer dereference, address: 0000000000000008",
            "Oops: 0002 [#1] PREEMPT SMP",
        ];
        let crash = death(&log(&lines), true);
        assert_eq!(crash.kind, Kind::Oops);
        assert!(crash.cause.unwrap().text.contains("NULL pointer"));
        assert_eq!(death(&log(&lines), false).kind, Kind::None);
    }

    #[test]
    fn a_soft_lockup_names_cpu_and_task() {
        let death = death(
            &log(&[
                "watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [insmod:71]",
                "Kernel panic - not syncing: softlockup: hung tasks",
            ]),
            true,
        );
        assert_eq!((death.kind, death.cpu, death.stuck_seconds), (Kind::SoftLockup, Some(1), Some(22)));
        assert_eq!(death.task, Some(("insmod".into(), 71)));
    }
}
