//! The part of a line before the event's own fields.

/// A line that is an event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Head<'a> {
    pub(super) comm: &'a str,
    pub(super) pid: i32,
    pub(super) cpu: u32,
    /// Nanoseconds.
    pub(super) ts: u64,
    /// Empty if the line does not say.
    pub(super) system: &'a str,
    pub(super) name: &'a str,
    /// The event's fields.
    pub(super) args: &'a str,
}

/// A line that is no event, but says something.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// Events were lost on a CPU; none if the line does not say how many.
    Lost { cpu: u32, events: Option<u64> },
    /// `entries-in-buffer/entries-written: A/B`: B - A were overwritten.
    Overwritten(u64),
}

/// Understands `COMM-PID [CPU] FLAGS TIME: EVENT: ARGS` and `COMM PID [CPU] TIME: SYSTEM:EVENT: ARGS`.
pub(super) fn parse(line: &str) -> Option<Head<'_>> {
    let (task, cpu, rest) = split_cpu(line)?;
    let (comm, pid) = split_task(task)?;
    let (ts, rest) = split_time(rest)?;
    let bytes = rest.as_bytes();
    // The name ends at the first colon that nothing or a space follows.
    let end = memchr::memchr_iter(b':', bytes)
        .find(|&at| matches!(bytes.get(at + 1), None | Some(b' ' | b'\t')))?;
    let (name, args) = (rest.get(..end)?, rest.get(end + 1..)?);
    if name.is_empty() || name.contains(' ') {
        return None;
    }
    let (system, name) = name.rsplit_once(':').unwrap_or(("", name));
    Some(Head { comm, pid, cpu, ts, system, name, args: args.trim() })
}

/// The first number in brackets with a space behind it is the CPU: task names may have brackets too.
fn split_cpu(line: &str) -> Option<(&str, u32, &str)> {
    for open in memchr::memchr_iter(b'[', line.as_bytes()) {
        let inner = line.get(open + 1..)?;
        let digits = inner.bytes().take_while(u8::is_ascii_digit).count();
        let after = inner.get(digits..)?;
        if digits > 0
            && let Some(rest) = after.strip_prefix("] ")
        {
            return Some((line.get(..open)?.trim(), inner.get(..digits)?.parse().ok()?, rest));
        }
    }
    None
}

fn split_task(task: &str) -> Option<(&str, i32)> {
    // With the option record-tgid the process follows in brackets: "bash-1234 (1200)", "(-----)".
    let task = match task.strip_suffix(')').and_then(|task| task.rsplit_once('(')) {
        Some((front, inner)) if inner.bytes().all(|byte| byte.is_ascii_digit() || b"- ".contains(&byte)) => {
            front.trim_end()
        }
        _ => task,
    };
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    // perf: the PID, or PID/TID, is a word of its own.
    if let Some((comm, word)) = task.rsplit_once(' ') {
        let thread = word.rsplit_once('/').map_or(word, |(_, thread)| thread);
        if all_digits(thread) {
            return Some((comm.trim_end(), thread.parse().ok()?));
        }
    }
    let (comm, pid) = task.rsplit_once('-')?;
    all_digits(pid).then_some((comm, pid.parse().ok()?))
}

/// Skips the flags of latency and context; nanoseconds, and what follows.
fn split_time(mut rest: &str) -> Option<(u64, &str)> {
    loop {
        rest = rest.trim_start();
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        if let Some(time) = word.strip_suffix(':')
            && let Some(ts) = nanoseconds(time)
        {
            return Some((ts, after.trim_start()));
        }
        if word.is_empty() || after.is_empty() {
            return None;
        }
        rest = after;
    }
}

/// Seconds with a fraction; whole numbers are counts of a clock without seconds, and stay as they are.
fn nanoseconds(time: &str) -> Option<u64> {
    let Some((seconds, fraction)) = time.split_once('.') else { return decimal(time) };
    let digits = fraction.len();
    if !(1..=9).contains(&digits) {
        return None;
    }
    let fraction = decimal(fraction)?.checked_mul(10_u64.pow(9 - digits as u32))?;
    decimal(seconds)?.checked_mul(1_000_000_000)?.checked_add(fraction)
}

fn decimal(text: &str) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    text.bytes().try_fold(0_u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { value.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

/// `CPU:1 [LOST 22 EVENTS]` of ftrace, `CPU:1 [22 EVENTS DROPPED]` of trace-cmd, `# entries-in-buffer/…` of ftrace.
pub(super) fn note(line: &str) -> Option<Note> {
    let line = line.trim();
    if let Some((_, counts)) =
        line.strip_prefix('#').and_then(|line| line.split_once("entries-in-buffer/entries-written:"))
    {
        let (held, written) = counts.split_whitespace().next()?.split_once('/')?;
        return Some(Note::Overwritten(decimal(written)?.saturating_sub(decimal(held)?)));
    }
    let (cpu, rest) = line.strip_prefix("CPU:")?.split_once(' ')?;
    let inner = rest.trim().strip_prefix('[')?.strip_suffix(']')?;
    let lost = inner.contains("LOST") || inner.contains("DROPPED");
    lost.then_some(())?;
    Some(Note::Lost { cpu: cpu.parse().ok()?, events: inner.split(' ').find_map(decimal) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head<'a>(
        comm: &'a str,
        pid: i32,
        cpu: u32,
        ts: u64,
        system: &'a str,
        args: &'a str,
    ) -> Option<Head<'a>> {
        Some(Head { comm, pid, cpu, ts, system, name: "mm_vmscan_kswapd_wake", args })
    }

    #[test]
    fn every_dialect_is_understood() {
        let of = |line| parse(line);
        assert_eq!(
            of("         kswapd0-45      [001] d..1.  1234.567890: mm_vmscan_kswapd_wake: nid=0 order=3"),
            head("kswapd0", 45, 1, 1_234_567_890_000, "", "nid=0 order=3")
        );
        assert_eq!(
            of("     kworker/0:1-23338 (-----) [000] .... 12.000001: mm_vmscan_kswapd_wake: nid=0"),
            head("kworker/0:1", 23338, 0, 12_000_001_000, "", "nid=0")
        );
        assert_eq!(
            of("  Web Content [1]-7  [015]   1.5: mm_vmscan_kswapd_wake: "),
            head("Web Content [1]", 7, 15, 1_500_000_000, "", "")
        );
        assert_eq!(
            of("dd  1234/1235 [003]  9.123456789: vmscan:mm_vmscan_kswapd_wake: nid=1"),
            head("dd", 1235, 3, 9_123_456_789, "vmscan", "nid=1")
        );
        assert_eq!(
            of("my-task 88 [003]  9.1: vmscan:mm_vmscan_kswapd_wake:"),
            head("my-task", 88, 3, 9_100_000_000, "vmscan", "")
        );
        assert_eq!(of("<...>-5 [000] 99: mm_vmscan_kswapd_wake: a=1"), head("<...>", 5, 0, 99, "", "a=1"));
    }

    #[test]
    fn other_lines_are_no_events() {
        for line in
            ["", "# tracer: nop", "cpus=2", "dd-1 [0001 1.0: x: y", "dd-1 [000] 1.0 x", "dd [000] 1.0: x: y"]
        {
            assert_eq!(parse(line), None, "{line:?}");
        }
    }

    #[test]
    fn losses_are_noted() {
        assert_eq!(note("CPU:1 [LOST 22 EVENTS]"), Some(Note::Lost { cpu: 1, events: Some(22) }));
        assert_eq!(note("CPU:3 [7 EVENTS DROPPED]"), Some(Note::Lost { cpu: 3, events: Some(7) }));
        assert_eq!(note("CPU:3 [EVENTS DROPPED]"), Some(Note::Lost { cpu: 3, events: None }));
        assert_eq!(note("# entries-in-buffer/entries-written: 205/305   #P:4"), Some(Note::Overwritten(100)));
        assert_eq!(note("CPU 3 is empty"), None);
    }
}
