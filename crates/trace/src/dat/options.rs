//! Options that both versions share.

use super::cursor::Cursor;
use super::metadata::Metadata;
use crate::error::TraceError;
use crate::input::Input;
use crate::kernel_files::{lost_events, selected_clock, stat};

/// Option ids.
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
    /// Reads a self-contained option. Unknown ones are skipped, as the format demands.
    pub(super) fn option(&mut self, number: u16, data: &Input, big_endian: bool) -> Result<(), TraceError> {
        let mut cursor = Cursor::new(data, 0, big_endian);
        let mut text =
            || cursor.text(data.len(), "an option").map(|text| text.trim_end_matches('\0').trim().to_owned());
        match number {
            id::CPUSTAT => self.cpu_stat(&text()?),
            id::TRACECLOCK => self.info.machine.clock = clock(&text()?),
            id::UNAME => self.uname(&text()?),
            id::OFFSET => self.offset = parse_offset(&text()?),
            id::CPUCOUNT => self.info.machine.cpus = Some(cursor.u32("the count of CPUs")?),
            id::TSC2NSEC => {
                let (mult, shift) = (cursor.u32("the multiplier")?, cursor.u32("the shift")?);
                self.tsc = Some((mult, shift, cursor.u64("the offset")?));
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads `CPU: 0`, followed by the lines of `per_cpu/cpu0/stats`.
    fn cpu_stat(&mut self, text: &str) {
        if let Some(cpu) = stat(text, "CPU").and_then(|cpu| u32::try_from(cpu).ok()) {
            self.info.lost_by_cpu.insert(cpu, lost_events(text));
        }
    }

    /// Reads `Linux NODE RELEASE MACHINE`, as trace-cmd joins them.
    fn uname(&mut self, text: &str) {
        let words: Vec<&str> = text.split_whitespace().collect();
        if let [_, hostname, release, .., machine] = words[..] {
            self.info.machine.hostname = Some(hostname.to_owned());
            self.info.machine.release = Some(release.to_owned());
            self.info.machine.machine = Some(machine.to_owned());
        }
    }
}

/// Returns the clock of an option: its name, or the text of `trace_clock`.
pub(super) fn clock(text: &str) -> Option<String> {
    let clock = selected_clock(text).unwrap_or(text.trim());
    (!clock.is_empty()).then(|| clock.to_owned())
}

/// Parses a signed decimal or hexadecimal number.
fn parse_offset(text: &str) -> i64 {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let value = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => digits.parse(),
    };
    let value = value.unwrap_or(0) as i64;
    if negative { value.wrapping_neg() } else { value }
}
