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

/// Understands `COMM-PID [CPU] FLAGS TIME: EVENT: ARGS` and `COMM PID [CPU] TIME: SYSTEM:EVENT: ARGS`. Walks bytes: text
/// traces have gigabytes. All cuts are beside ASCII characters, so that they never split a longer one.
#[inline]
pub(super) fn parse(line: &str) -> Option<Head<'_>> {
    let (task, cpu, at) = split_cpu(line)?;
    let (comm, pid) = split_task(task)?;
    let (ts, at) = split_time(line, at)?;
    let bytes = line.as_bytes();
    // The name ends at the first colon that nothing or a space follows.
    let mut end = at;
    let mut system_end = None;
    loop {
        match bytes.get(end)? {
            b':' => match bytes.get(end + 1) {
                None | Some(b' ' | b'\t') => break,
                Some(_) => system_end = Some(end),
            },
            b' ' => return None,
            _ => {}
        }
        end += 1;
    }
    let (system, start) =
        system_end.map_or(("", at), |colon| (line.get(at..colon).unwrap_or_default(), colon + 1));
    let name = line.get(start..end).filter(|name| !name.is_empty())?;
    Some(Head { comm, pid, cpu, ts, system, name, args: trim(line.get(end + 1..)?) })
}

/// Without spaces at both ends.
#[inline]
fn trim(text: &str) -> &str {
    let bytes = text.as_bytes();
    let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r');
    let start = bytes.iter().position(|byte| !blank(byte)).unwrap_or(bytes.len());
    let end = bytes.iter().rposition(|byte| !blank(byte)).map_or(start, |last| last + 1);
    text.get(start..end).unwrap_or_default()
}

/// The first number in brackets with a space behind it is the CPU: task names may have brackets too. The task, the CPU, and
/// where the line goes on.
#[inline]
fn split_cpu(line: &str) -> Option<(&str, u32, usize)> {
    let bytes = line.as_bytes();
    for open in memchr::memchr_iter(b'[', bytes) {
        let (mut at, mut cpu) = (open + 1, 0_u32);
        while let Some(digit) = bytes.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit < 10)
        {
            cpu = cpu.checked_mul(10)?.checked_add(u32::from(digit))?;
            at += 1;
        }
        if at > open + 1 && bytes.get(at) == Some(&b']') && bytes.get(at + 1) == Some(&b' ') {
            return Some((trim(line.get(..open)?), cpu, at + 2));
        }
    }
    None
}

#[inline]
fn split_task(task: &str) -> Option<(&str, i32)> {
    let bytes = task.as_bytes();
    let digits = bytes.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let start = bytes.len() - digits;
    if digits > 0 && start > 0 && bytes.get(start - 1) == Some(&b'-') {
        let pid = i32::try_from(decimal(task.get(start..)?)?).ok()?;
        return Some((task.get(..start - 1)?, pid));
    }
    split_other_task(task)
}

/// Tasks as perf and the option record-tgid have them.
fn split_other_task(task: &str) -> Option<(&str, i32)> {
    // The process follows in brackets: "bash-1234 (1200)", "(-----)".
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

/// Skips the flags of latency and context; nanoseconds, and where what follows begins.
#[inline]
fn split_time(line: &str, mut at: usize) -> Option<(u64, usize)> {
    let bytes = line.as_bytes();
    loop {
        while bytes.get(at) == Some(&b' ') {
            at += 1;
        }
        let rest = bytes.get(at..)?;
        let len = memchr::memchr(b' ', rest).unwrap_or(rest.len());
        if len == 0 {
            return None;
        }
        if rest[len - 1] == b':'
            && let Some(ts) = line.get(at..at + len - 1).and_then(nanoseconds)
        {
            at += len;
            while bytes.get(at) == Some(&b' ') {
                at += 1;
            }
            return Some((ts, at));
        }
        at += len;
    }
}

/// Seconds with a fraction; whole numbers are counts of a clock without seconds, and stay as they are.
#[inline]
fn nanoseconds(time: &str) -> Option<u64> {
    let Some(point) = memchr::memchr(b'.', time.as_bytes()) else { return decimal(time) };
    let (seconds, fraction) = (time.get(..point)?, time.get(point + 1..)?);
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
