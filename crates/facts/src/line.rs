//! Lines of a kernel log, from a dump or from text.

use pagehaul_kernel::{Caller, KernelLog};

/// Longest text of a line that is looked at: `LOG_LINE_MAX` is 1,024 bytes.
const MAX_TEXT: usize = 2048;

/// A line that the kernel wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// Nanoseconds since the machine started.
    pub nanoseconds: u64,
    /// Who wrote it, where the kernel keeps it.
    pub caller: Option<Caller>,
    /// The text, without level, time and caller.
    pub text: &'a str,
}

/// Returns the lines of a log that the kernel wrote. What programs wrote to `/dev/kmsg` cannot pass for a crash.
pub fn lines_of(log: &KernelLog) -> Vec<Line<'_>> {
    let kernel = log.records.iter().filter(|record| record.facility == 0);
    let lines = kernel.flat_map(|record| {
        record.text.split('\n').map(|text| Line {
            nanoseconds: record.nanoseconds,
            caller: record.caller,
            text: cut(text.trim_end_matches('\r')),
        })
    });
    lines.collect()
}

/// Returns the lines of a log as text: what `dmesg`, a console or `vmcore-dmesg.txt` has. Level, time and caller are
/// optional: `<4>[    1.234567] [    T1] text`.
pub fn lines_of_text(text: &str) -> Vec<Line<'_>> {
    // A console may add to the end of a line.
    text.lines().map(|line| line_of_text(line.trim_end())).collect()
}

pub(crate) fn line_of_text(line: &str) -> Line<'_> {
    let mut text = without_level(line);
    let mut nanoseconds = 0;
    if let Some((time, rest)) = bracketed(text)
        && let Some(time) = seconds(time)
    {
        nanoseconds = time;
        text = rest.strip_prefix(' ').unwrap_or(rest);
    }
    let mut caller = None;
    if let Some((name, rest)) = bracketed(text)
        && let Some(found) = caller_of(name.trim_start())
    {
        caller = Some(found);
        text = rest.strip_prefix(' ').unwrap_or(rest);
    }
    Line { nanoseconds, caller, text: cut(text) }
}

/// Returns the time of a line as text, if it has one.
pub(crate) fn time_of_text(line: &str) -> Option<u64> {
    seconds(bracketed(without_level(line))?.0)
}

fn without_level(line: &str) -> &str {
    match line.strip_prefix('<').and_then(|rest| rest.split_once('>')) {
        Some((level, rest)) if !level.is_empty() && level.bytes().all(|byte| byte.is_ascii_digit()) => rest,
        _ => line,
    }
}

fn bracketed(text: &str) -> Option<(&str, &str)> {
    text.strip_prefix('[')?.split_once(']')
}

/// `    1.234567` in nanoseconds.
fn seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.trim_start().split_once('.')?;
    if fraction.len() != 6 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction.parse::<u64>().ok()? * 1000)
}

fn caller_of(text: &str) -> Option<Caller> {
    let number = |text: &str| text.parse().ok();
    match text.strip_prefix('T') {
        Some(pid) => number(pid).map(Caller::Task),
        None => number(text.strip_prefix('C')?).map(Caller::Cpu),
    }
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_taken_off() {
        let lines = lines_of_text(
            "<4>[   12.345678] [   T28]  schedule+0x27/0xc0\n[C0] x\n[<ffff>] f\nCall Trace:\r\n",
        );
        let line = |nanoseconds, caller, text| Line { nanoseconds, caller, text };
        assert_eq!(
            lines,
            [
                line(12_345_678_000, Some(Caller::Task(28)), " schedule+0x27/0xc0"),
                line(0, Some(Caller::Cpu(0)), "x"),
                line(0, None, "[<ffff>] f"),
                line(0, None, "Call Trace:"),
            ]
        );
    }
}
