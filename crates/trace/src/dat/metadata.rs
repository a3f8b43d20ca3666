//! Metadata that both versions share: headers, formats, symbols, task names.

use super::cursor::Cursor;
use crate::comms::Comms;
use crate::error::TraceError;
use crate::format::{EventFormat, Formats};
use crate::info::TraceInfo;
use crate::ring::SubBufferLayout;
use crate::symbols::Symbols;

/// Everything in the file but the events.
#[derive(Default)]
pub(super) struct Metadata {
    pub(super) info: TraceInfo,
    pub(super) formats: Formats,
    pub(super) comms: Comms,
    pub(super) layout: Option<SubBufferLayout>,
    /// TSC2NSEC: multiplier, shift and offset that convert cycles to nanoseconds.
    pub(super) tsc: Option<(u32, u32, u64)>,
    /// Nanoseconds added to every time stamp.
    pub(super) offset: i64,
    pub(super) buffers: Vec<Buffer>,
    /// Number of event formats that do not parse.
    pub(super) unparsed_formats: u64,
}

/// Trace data of one tracing instance.
#[derive(Debug, Default, Clone)]
pub(super) struct Buffer {
    /// Empty for the top instance.
    pub(super) name: String,
    pub(super) clock: Option<String>,
    /// Size of its sub-buffers, if the file gives it per instance.
    pub(super) sub_buffer_size: Option<u32>,
    /// CPU, file offset and size in bytes.
    pub(super) cpus: Vec<(u32, u64, u64)>,
    pub(super) compressed: bool,
}

impl Metadata {
    /// Reads `header_page` and `header_event`, each preceded by its size.
    pub(super) fn headers(&mut self, cursor: &mut Cursor, big_endian: bool) -> Result<(), TraceError> {
        cursor.expect("header_page\0")?;
        let size = cursor.u64("the size of header_page")?;
        let text = cursor.text(size, "header_page")?;
        self.layout = Some(
            SubBufferLayout::parse(&text, big_endian)
                .map_err(|error| cursor.format_error(error.to_string()))?,
        );
        cursor.expect("header_event\0")?;
        let size = cursor.u64("the size of header_event")?;
        cursor.bytes(size, "header_event")?;
        Ok(())
    }

    /// Reads the formats of the `ftrace` event system.
    pub(super) fn ftrace_formats(&mut self, cursor: &mut Cursor) -> Result<(), TraceError> {
        let count = cursor.u32("the count of ftrace formats")?;
        (0..count).try_for_each(|_| self.format(cursor, "ftrace"))
    }

    /// Reads the formats of all other event systems.
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
            // One invalid format among thousands does not make the others unreadable.
            Err(_) => self.unparsed_formats += 1,
        }
        Ok(())
    }

    /// Reads `/proc/kallsyms`.
    pub(super) fn symbols(&mut self, cursor: &mut Cursor) -> Result<(), TraceError> {
        let size = cursor.u32("the size of the symbols")?;
        self.info.symbols = Symbols::from_kallsyms(cursor.text(size.into(), "the symbols")?);
        Ok(())
    }

    /// Skips `printk_formats`, which no event here needs.
    pub(super) fn printk(cursor: &mut Cursor) -> Result<(), TraceError> {
        let size = cursor.u32("the size of printk_formats")?;
        cursor.bytes(size.into(), "printk_formats").map(drop)
    }

    /// Reads `saved_cmdlines`.
    pub(super) fn tasks(&mut self, cursor: &mut Cursor) -> Result<(), TraceError> {
        let size = cursor.u64("the size of the task names")?;
        self.comms = Comms::parse(&cursor.text(size, "the task names")?);
        Ok(())
    }
}
