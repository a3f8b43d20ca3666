//! The options both versions have.

use super::cursor::Cursor;
use super::metadata::Metadata;
use crate::{Input, TraceError};

/// Numbers of options.
pub(super) mod id {
    pub(in crate::dat) const DONE: u16 = 0;
    pub(in crate::dat) const CPUSTAT: u16 = 2;
    pub(in crate::dat) const BUFFER: u16 = 3;
    pub(in crate::dat) const TRACECLOCK: u16 = 4;
    pub(in crate::dat) const UNAME: u16 = 5;
    pub(in crate::dat) const OFFSET: u16 = 7;
    pub(in crate::dat) const CPUCOUNT: u16 = 8;
    pub(in crate::dat) const TSC2NSEC: u16 = 14;
    pub(in crate::dat) const HEADER_INFO: u16 = 16;
    pub(in crate::dat) const FTRACE_EVENTS: u16 = 17;
    pub(in crate::dat) const EVENT_FORMATS: u16 = 18;
    pub(in crate::dat) const KALLSYMS: u16 = 19;
    pub(in crate::dat) const CMDLINES: u16 = 21;
}

impl Metadata {
    /// An option that stands for itself. Unknown ones are skipped, as the format wants it.
    pub(super) fn option(&mut self, number: u16, data: &Input, big_endian: bool) -> Result<(), TraceError> {
        let mut cursor = Cursor::new(data, 0, big_endian);
        let mut text =
            || cursor.text(data.len(), "an option").map(|text| text.trim_end_matches('\0').trim().to_owned());
        match number {
            id::CPUSTAT => self.cpu_stat(&text()?),
            id::TRACECLOCK => self.info.clock = clock(&text()?),
            id::UNAME => self.uname(&text()?),
            id::OFFSET => self.offset = parse_offset(&text()?),
            id::CPUCOUNT => self.info.cpus = Some(cursor.u32("the count of CPUs")?),
            id::TSC2NSEC => {
                let (mult, shift) = (cursor.u32("the multiplier")?, cursor.u32("the shift")?);
                self.tsc = Some((mult, shift, cursor.u64("the offset")?));
            }
            _ => {}
        }
        Ok(())
    }

    /// `CPU: 0`, then the lines of `per_cpu/cpu0/stats`.
    fn cpu_stat(&mut self, text: &str) {
        let value = |name: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|value| value.trim().parse::<u64>().ok())
        };
        let lost =
            ["overrun", "commit overrun", "dropped events"].iter().filter_map(|name| value(name)).sum();
        if let Some(cpu) = value("CPU").and_then(|cpu| u32::try_from(cpu).ok()) {
            self.info.lost_by_cpu.insert(cpu, lost);
        }
    }

    /// `Linux NODE RELEASE MACHINE`, as trace-cmd joins them.
    fn uname(&mut self, text: &str) {
        let words: Vec<&str> = text.split_whitespace().collect();
        if let [_, hostname, release, .., machine] = words[..] {
            self.info.hostname = Some(hostname.to_owned());
            self.info.release = Some(release.to_owned());
            self.info.machine = Some(machine.to_owned());
        }
    }
}

/// The clock in use stands in brackets in `trace_clock`.
pub(super) fn clock(text: &str) -> Option<String> {
    let inner =
        text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or(text, |(inner, _)| inner);
    let inner = inner.trim();
    (!inner.is_empty()).then(|| inner.to_owned())
}

/// Decimal or hexadecimal, with a sign.
fn parse_offset(text: &str) -> i64 {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let value = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    let value = value.unwrap_or(0) as i64;
    if negative { value.wrapping_neg() } else { value }
}
