//! How the machine died, from its log: the crash that [`pagehaul_facts`] finds there, and the lines around it.

use pagehaul_facts::{Crash, Event, Kind, Line, lines_of};
use pagehaul_kernel::{KernelLog, Record};
use pagehaul_present::number::counted;
use serde::Serialize;

/// Lines before the crash that are kept.
const MAX_EARLIER: usize = 20;

/// A line of the log.
#[derive(Debug, Clone, Serialize)]
pub struct LogLine {
    /// Seconds since the machine started.
    pub seconds: f64,
    /// The text.
    pub text: String,
    /// Whether the kernel wrote it: others write what they like.
    #[serde(skip)]
    pub by_kernel: bool,
}

impl LogLine {
    /// For people: control characters cannot steer their terminal.
    fn new(nanoseconds: u64, text: &str, by_kernel: bool) -> Self {
        let text = text.lines().next().unwrap_or_default();
        let text = text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        Self { seconds: nanoseconds as f64 / 1e9, text, by_kernel }
    }

    fn of(line: &Line<'_>) -> Self {
        Self::new(line.nanoseconds, line.text, true)
    }
}

/// How the machine died.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Death {
    /// The kind. None without a crash in the log: the memory of a running or silent machine, unless `unknown` says otherwise.
    pub kind: Option<Kind>,
    /// Why a kind of None says nothing: the log cannot be read, or not in whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// The line of the panic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<LogLine>,
    /// The line before the panic that gives its cause: the oops, the blocked task, the stuck CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<LogLine>,
    /// The check that failed as a BUG: it names what is corrupted or was freed twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corruption: Option<LogLine>,
    /// Name and ID of the task that crashed, was stuck or blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<(String, u32)>,
    /// CPU that crashed or was stuck.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u64>,
    /// Seconds for which the task was blocked or the CPU stuck, by the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck_seconds: Option<u64>,
    /// Warnings and oopses before the crash.
    pub earlier: Vec<LogLine>,
    /// Processes that the OOM killer killed.
    pub oom_kills: usize,
}

impl Death {
    /// Returns the kind in words.
    pub fn describe(&self) -> &'static str {
        match self.kind {
            Some(kind) => kind.describe(),
            None if self.unknown.is_some() => "not known",
            None => "no panic",
        }
    }
}

/// Reads the log: how the machine died, and the crash as the log has it. `crashed` is whether the kernel itself crashed;
/// without a panic and without it, an oops in the log did not end the machine.
pub fn death(log: &KernelLog, crashed: bool) -> (Death, Option<Crash>) {
    let lines = lines_of(log);
    let event = Event::find(&lines).filter(|event| event.panic.is_some() || crashed);
    let end = event.map_or(lines.len(), |event| event.start);
    let before = lines.get(..end).unwrap_or_default();
    let reports = ["WARNING: ", "Oops: ", "BUG: "];
    let earlier = before.iter().filter(|line| reports.iter().any(|report| line.text.contains(report)));
    let mut death = Death {
        earlier: earlier.take(MAX_EARLIER).map(LogLine::of).collect(),
        oom_kills: lines.iter().filter(|line| line.text.contains("Killed process ")).count(),
        ..Death::default()
    };
    let Some((event, crash)) = event.and_then(|event| Some((event, Crash::new(&lines, &event)?))) else {
        death.unknown = (log.damaged > 0).then(|| {
            let lost = counted(log.damaged, "record");
            format!("{lost} of the log cannot be read, and the others have no panic")
        });
        return (death, None);
    };
    death.kind = Some(event.kind);
    death.line = event.panic.and_then(|at| lines.get(at)).map(LogLine::of);
    let first = Some(event.start).filter(|start| Some(*start) != event.panic);
    let last = |part: &str| before.iter().rfind(|line| line.text.contains(part));
    let cause = match event.kind {
        Kind::OomPanic => last("invoked oom-killer"),
        Kind::Mce => last("[Hardware Error]"),
        _ => first.and_then(|at| lines.get(at)),
    };
    death.cause = cause.map(LogLine::of);
    death.corruption = cause.filter(|_| event.kind == Kind::Bug).and_then(|bug| corruption(before, bug));
    death.task = crash.task.clone().zip(crash.pid);
    death.cpu = crash.cpu.map(u64::from);
    death.stuck_seconds = cause.and_then(|line| {
        number_after(line.text, " more than ").or_else(|| number_after(line.text, "stuck for "))
    });
    (death, Some(crash))
}

/// The line just before a BUG in which CONFIG_DEBUG_LIST, the slab allocator or another check names what is corrupted.
fn corruption(before: &[Line<'_>], bug: &Line<'_>) -> Option<LogLine> {
    const CHECKS: [&str; 5] = ["list_add ", "list_del ", "refcount_t: ", "slab: ", "usercopy: "];
    // The check and the BUG are lines of one moment: an older check is one of another crash.
    const MOMENT: u64 = 1_000_000_000;
    let mut lines = before.iter().rev().take(4);
    lines
        .find(|line| CHECKS.iter().any(|check| line.text.starts_with(check)))
        .filter(|line| bug.nanoseconds.saturating_sub(line.nanoseconds) < MOMENT)
        .map(LogLine::of)
}

fn number_after(text: &str, prefix: &str) -> Option<u64> {
    let rest = text.split_once(prefix)?.1;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The last lines of the log, those at warning level or worse marked.
pub(crate) fn last_words(log: &KernelLog, count: usize) -> Vec<(LogLine, bool)> {
    let from = log.records.len().saturating_sub(count);
    let line = |record: &Record| {
        (LogLine::new(record.nanoseconds, &record.text, record.facility == 0), record.level <= 4)
    };
    log.records.iter().skip(from).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str], crashed: bool) -> Death {
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
        death(&KernelLog { records: lines.iter().enumerate().map(record).collect(), damaged: 0 }, crashed).0
    }

    #[test]
    fn a_hung_task_blames_the_blocked_one() {
        let panic = "Kernel panic - not syncing: hung_task: blocked tasks";
        let death = read(&["INFO: task dd:x:42 blocked for more than 120 seconds.", panic], true);
        assert_eq!(death.kind, Some(Kind::HungTask));
        assert_eq!((death.task, death.stuck_seconds), (Some(("dd:x".into(), 42)), Some(120)));
        let death = read(&["INFO: task dd:43 blocked in I/O wait for more than 120 seconds.", panic], true);
        assert_eq!((death.task, death.stuck_seconds), (Some(("dd".into(), 43)), Some(120)));
    }

    #[test]
    fn an_oops_needs_no_panic_line() {
        let lines = [
            "WARNING: CPU: 0 PID: 1 at mm/x.c:1 f+0x1/0x2",
            "BUG: kernel NULL pointer dereference, address: 0000000000000008",
            "Oops: 0002 [#1] PREEMPT SMP",
        ];
        let crash = read(&lines, true);
        assert_eq!(crash.kind, Some(Kind::NullDeref));
        assert!(crash.cause.unwrap().text.contains("NULL pointer"));
        // The lines of the oops itself are not earlier ones.
        assert_eq!(crash.earlier.len(), 1);
        let running = read(&lines, false);
        assert_eq!((running.kind, running.earlier.len()), (None, 3));
    }

    #[test]
    fn a_log_that_is_read_in_part_says_nothing_of_a_panic_that_it_lacks() {
        let lacking = KernelLog { records: Vec::new(), damaged: 3 };
        let (death, crash) = super::death(&lacking, true);
        assert_eq!((death.describe(), crash), ("not known", None));
        assert!(death.unknown.unwrap().starts_with("3 records of the log cannot be read"));
        assert_eq!(super::death(&KernelLog::default(), true).0.describe(), "no panic");
    }

    #[test]
    fn a_lockup_names_cpu_and_task() {
        let lines = [
            "watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [insmod:71]",
            "Kernel panic - not syncing: softlockup: hung tasks",
        ];
        let death = read(&lines, true);
        assert_eq!((death.kind, death.cpu, death.stuck_seconds), (Some(Kind::SoftLockup), Some(1), Some(22)));
        assert_eq!(death.task, Some(("insmod".into(), 71)));
    }
}
