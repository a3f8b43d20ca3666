//! Parses the part of a line that precedes the event's fields.

use crate::event::Span;

/// The header of an event line. Spans are byte ranges of the line and may not be UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineHeader {
    pub(super) comm: Span,
    pub(super) pid: i32,
    pub(super) cpu: u32,
    /// Time stamp in nanoseconds.
    pub(super) ts: u64,
    /// The event system; empty if the line does not name it.
    pub(super) system: Span,
    pub(super) name: Span,
    /// The event's fields.
    pub(super) args: Span,
}

/// A line about lost events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LossNotice {
    /// Events were lost on a CPU; `events` is `None` if the line does not give their number.
    Lost { cpu: u32, events: Option<u64> },
    /// `entries-in-buffer/entries-written: A/B`: B - A were overwritten.
    Overwritten(u64),
}

/// Parses `COMM-PID [CPU] FLAGS TIME: EVENT: FIELDS` and `COMM PID [CPU] TIME: SYSTEM:EVENT: FIELDS`. Visits
/// each byte once, because text traces have gigabytes.
#[inline]
pub(super) fn parse(line: &[u8]) -> Option<LineHeader> {
    let (task_end, cpu, at) = split_cpu(line)?;
    let (comm, pid) = split_task(line, task_end)?;
    let (ts, at) = split_time(line, at)?;
    // The name ends at the first colon followed by a space or the end of the line.
    let mut start = at;
    let mut system = Span::new(at, at);
    let end = loop {
        let colon = start + memchr::memchr(b':', line.get(start..)?)?;
        match line.get(colon + 1) {
            None | Some(b' ' | b'\t' | b'\r') => break colon,
            Some(_) => (system, start) = (Span::new(at, colon), colon + 1),
        }
    };
    if start == end || memchr::memchr(b' ', line.get(at..end)?).is_some() {
        return None;
    }
    Some(LineHeader {
        comm,
        pid,
        cpu,
        ts,
        system,
        name: Span::new(start, end),
        args: trim(line, end + 1, line.len()),
    })
}

/// Trims blanks at both ends.
#[inline]
fn trim(line: &[u8], mut start: usize, mut end: usize) -> Span {
    let blank = |at: usize| matches!(line.get(at), Some(b' ' | b'\t' | b'\r'));
    while start < end && blank(start) {
        start += 1;
    }
    while start < end && blank(end - 1) {
        end -= 1;
    }
    Span::new(start, end)
}

/// Finds the CPU: the first number in brackets followed by a space, because task names may contain brackets.
/// Returns the end of the task, the CPU, and the offset of the rest.
#[inline]
fn split_cpu(line: &[u8]) -> Option<(usize, u32, usize)> {
    for open in memchr::memchr_iter(b'[', line) {
        let (mut at, mut cpu) = (open + 1, 0_u32);
        while let Some(digit) = line.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit < 10) {
            cpu = cpu.checked_mul(10)?.checked_add(u32::from(digit))?;
            at += 1;
        }
        if at > open + 1 && line.get(at) == Some(&b']') && line.get(at + 1) == Some(&b' ') {
            return Some((open, cpu, at + 2));
        }
    }
    None
}

#[inline]
fn split_task(line: &[u8], end: usize) -> Option<(Span, i32)> {
    let task = trim(line, 0, end);
    let (start, end) = (task.start as usize, task.end as usize);
    let (mut at, mut pid, mut place) = (end, 0_u32, 1_u32);
    while at > start && at + 9 > end && line[at - 1].is_ascii_digit() {
        at -= 1;
        pid += u32::from(line[at] - b'0') * place;
        place = place.wrapping_mul(10);
    }
    if at < end && at > start && line[at - 1] == b'-' {
        return Some((Span::new(start, at - 1), pid.cast_signed()));
    }
    split_other_task(line, start, end)
}

/// Parses tasks as perf and the option record-tgid print them.
fn split_other_task(line: &[u8], start: usize, end: usize) -> Option<(Span, i32)> {
    let mut task = line.get(start..end)?;
    // The process follows in parentheses: "bash-1234 (1200)", "(-----)".
    if let Some((b')', front)) = task.split_last()
        && let Some(open) = memchr::memrchr(b'(', front)
        && front[open + 1..].iter().all(|byte| byte.is_ascii_digit() || b"- ".contains(byte))
    {
        task = front[..open].trim_ascii_end();
    }
    // perf: PID, or PID/TID, is a separate word.
    if let Some(space) = memchr::memrchr(b' ', task) {
        let word = &task[space + 1..];
        let thread = memchr::memrchr(b'/', word).map_or(word, |slash| &word[slash + 1..]);
        if let Some(pid) = decimal(thread) {
            let comm = task[..space].trim_ascii_end();
            return Some((Span::new(start, start + comm.len()), i32::try_from(pid).ok()?));
        }
    }
    let dash = memchr::memrchr(b'-', task)?;
    let pid = decimal(&task[dash + 1..])?;
    Some((Span::new(start, start + dash), i32::try_from(pid).ok()?))
}

/// Skips latency and context flags. Returns the time stamp in nanoseconds and the offset of the rest.
#[inline]
fn split_time(line: &[u8], mut at: usize) -> Option<(u64, usize)> {
    loop {
        while line.get(at) == Some(&b' ') {
            at += 1;
        }
        if let Some((ts, end)) = nanoseconds(line, at) {
            at = end;
            while line.get(at) == Some(&b' ') {
                at += 1;
            }
            return Some((ts, at));
        }
        at += memchr::memchr(b' ', line.get(at..)?)?;
    }
}

/// Parses seconds with a fraction, followed by a colon and a space. Whole numbers are counts of a clock that
/// is not in seconds, and stay as they are. Returns the time stamp and the offset after the colon.
#[inline]
fn nanoseconds(line: &[u8], start: usize) -> Option<(u64, usize)> {
    let (seconds, at) = digits(line, start);
    let (ts, end) = match line.get(at)? {
        b':' if at > start => (decimal(line.get(start..at)?)?, at),
        b'.' if at > start => {
            let (fraction, end) = digits(line, at + 1);
            let scale = *SCALES.get((end - at - 1).wrapping_sub(1))?;
            let seconds = if at - start < 19 { seconds } else { decimal(line.get(start..at)?)? };
            (seconds.checked_mul(1_000_000_000)?.checked_add(fraction.checked_mul(scale)?)?, end)
        }
        _ => return None,
    };
    let over = line.get(end) == Some(&b':') && line.get(end + 1).is_none_or(|&byte| byte == b' ');
    over.then_some((ts, end + 1))
}

/// Nanoseconds of the last digit of a fraction, by number of digits.
const SCALES: [u64; 9] = [100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];

/// Parses the number at `at`, exact up to 19 digits. Returns it with its end.
#[inline]
fn digits(line: &[u8], mut at: usize) -> (u64, usize) {
    let mut value = 0_u64;
    while let Some(digit) = line.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit < 10) {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    (value, at)
}

fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    text.iter().try_fold(0_u64, |value, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { value.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

/// Parses ftrace's `CPU:1 [LOST 22 EVENTS]` and `# entries-in-buffer/…`, and trace-cmd's `CPU:1 [22 EVENTS
/// DROPPED]`.
pub(super) fn note(line: &[u8]) -> Option<LossNotice> {
    let line = std::str::from_utf8(line).ok()?.trim();
    let decimal = |text: &str| decimal(text.as_bytes());
    if let Some((_, counts)) =
        line.strip_prefix('#').and_then(|line| line.split_once("entries-in-buffer/entries-written:"))
    {
        let (held, written) = counts.split_whitespace().next()?.split_once('/')?;
        return Some(LossNotice::Overwritten(decimal(written)?.saturating_sub(decimal(held)?)));
    }
    let (cpu, rest) = line.strip_prefix("CPU:")?.split_once(' ')?;
    let inner = rest.trim().strip_prefix('[')?.strip_suffix(']')?;
    let lost = inner.contains("LOST") || inner.contains("DROPPED");
    lost.then_some(())?;
    Some(LossNotice::Lost { cpu: cpu.parse().ok()?, events: inner.split(' ').find_map(decimal) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// COMM, PID, CPU, time stamp, event system, fields.
    type Parts<'a> = (&'a str, i32, u32, u64, &'a str, &'a str);

    fn head<'a>(
        comm: &'a str,
        pid: i32,
        cpu: u32,
        ts: u64,
        system: &'a str,
        args: &'a str,
    ) -> Option<Parts<'a>> {
        Some((comm, pid, cpu, ts, system, args))
    }

    fn parts(line: &str) -> Option<Parts<'_>> {
        let head = parse(line.as_bytes())?;
        let of = |span: Span| &line[span.start as usize..span.end as usize];
        assert_eq!(of(head.name), "mm_vmscan_kswapd_wake");
        Some((of(head.comm), head.pid, head.cpu, head.ts, of(head.system), of(head.args)))
    }

    #[test]
    fn every_dialect_is_understood() {
        let of = parts;
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
            assert_eq!(parse(line.as_bytes()), None, "{line:?}");
        }
    }

    #[test]
    fn losses_are_noted() {
        assert_eq!(note(b"CPU:1 [LOST 22 EVENTS]"), Some(LossNotice::Lost { cpu: 1, events: Some(22) }));
        assert_eq!(note(b"CPU:3 [7 EVENTS DROPPED]"), Some(LossNotice::Lost { cpu: 3, events: Some(7) }));
        assert_eq!(note(b"CPU:3 [EVENTS DROPPED]"), Some(LossNotice::Lost { cpu: 3, events: None }));
        assert_eq!(
            note(b"# entries-in-buffer/entries-written: 205/305   #P:4"),
            Some(LossNotice::Overwritten(100))
        );
        assert_eq!(note(b"CPU 3 is empty"), None);
    }
}
