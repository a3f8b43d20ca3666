//! The parts both versions share: headers, formats, symbols, tasks.

use super::cursor::Cursor;
use crate::info::TraceInfo;
use crate::ring::SubBufferLayout;
use crate::{Comms, EventFormat, Formats, Symbols, TraceError};

/// What the file says before its events.
#[derive(Default)]
pub(super) struct Metadata {
    pub(super) info: TraceInfo,
    pub(super) formats: Formats,
    pub(super) comms: Comms,
    pub(super) layout: Option<SubBufferLayout>,
    /// Multiply, shift right and add: cycles to nanoseconds (TSC2NSEC).
    pub(super) tsc: Option<(u32, u32, u64)>,
    /// Added to every time stamp, in nanoseconds.
    pub(super) offset: i64,
    pub(super) buffers: Vec<Buffer>,
    /// Formats that could not be understood.
    pub(super) unparsed_formats: u64,
}

/// The trace data of one instance.
#[derive(Debug, Default, Clone)]
pub(super) struct Buffer {
    /// Empty for the top instance.
    pub(super) name: String,
    pub(super) clock: Option<String>,
    /// Bytes of its sub-buffers, where the file says so for each instance.
    pub(super) sub_buffer_size: Option<u32>,
    /// CPU, offset and size in the file.
    pub(super) cpus: Vec<(u32, u64, u64)>,
    pub(super) compressed: bool,
}

impl Metadata {
    /// `header_page` and `header_event`, each with its size.
    pub(super) fn headers(&mut self, cursor: &mut Cursor, big_endian: bool) -> Result<(), TraceError> {
        cursor.expect("header_page\0")?;
        let size = cursor.u64("the size of header_page")?;
        let text = cursor.text(size, "header_page")?;
        self.layout =
            Some(SubBufferLayout::parse(&text, big_endian).map_err(|error| cursor.fault(error.to_string()))?);
        cursor.expect("header_event\0")?;
        let size = cursor.u64("the size of header_event")?;
        cursor.bytes(size, "header_event")?;
        Ok(())
    }

    /// The formats of ftrace's own events.
    pub(super) fn ftrace_formats(&mut self, cursor: &mut Cursor) -> Result<(), TraceError> {
        let count = cursor.u32("the count of ftrace formats")?;
        (0..count).try_for_each(|_| self.format(cursor, "ftrace"))
    }

    /// The formats of all subsystems' events.
    pub(super) fn event_formats(&mut self, cursor: &mut Cursor) -> Result<(), TraceError> {
        let systems = cursor.u32("the count of event systems")?;
        for _ in 0..systems {
            let system = cursor.string("the name of an event system")?;
            let count = cursor.u32("the count of a system's events")?;
            (0..count).try_for_each(|_| self.format(cursor, &system))?;
        }
        Ok(())
    }

    fn format(&mut self, cursor: &mut Cursor, system: &str) -> Result<(), TraceError> {
        let size = cursor.u64("the size of an event format")?;
        let text = cursor.text(size, "an event format")?;
        match EventFormat::parse(system, &text) {
            Ok(format) => drop(self.formats.add(format)),
            // One odd event of thousands is no reason to read none.
            Err(_) => self.unparsed_formats += 1,
        }
        Ok(())
    }

    /// `/proc/kallsyms`.
    pub(super) fn symbols(&mut self, cursor: &mut Cursor) -> Result<(), TraceError> {
        let size = cursor.u32("the size of the symbols")?;
        self.info.symbols = Symbols::from_kallsyms(cursor.text(size.into(), "the symbols")?);
        Ok(())
    }

    /// `printk_formats`, which no event here needs.
    pub(super) fn printk(cursor: &mut Cursor) -> Result<(), TraceError> {
        let size = cursor.u32("the size of printk_formats")?;
        cursor.bytes(size.into(), "printk_formats").map(drop)
    }

    /// `saved_cmdlines`.
    pub(super) fn tasks(&mut self, cursor: &mut Cursor) -> Result<(), TraceError> {
        let size = cursor.u64("the size of the task names")?;
        self.comms = Comms::parse(&cursor.text(size, "the task names")?);
        Ok(())
    }
}
