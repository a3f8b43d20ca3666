//! Version 7: sections at any offset, found through chained option tables; sections may be compressed.

use super::compression::Codec;
use super::cursor::Cursor;
use super::metadata::{Buffer, Metadata};
use super::options::{clock, id};
use super::{MAX_CHUNK, MAX_SECTION};
use crate::error::TraceError;
use crate::input::Input;

/// Section flag: compressed.
const COMPRESSED: u16 = 1;
/// Bytes per CPU in a buffer option: CPU, offset and size of the data.
const CPU_ENTRY: u64 = 20;
/// Upper bound of the length of the chain; trace-cmd writes one or two tables.
const MAX_TABLES: usize = 256;

/// Reads sections of the file.
pub(super) struct Sections<'a> {
    pub(super) input: &'a Input,
    pub(super) codec: Codec,
    pub(super) big_endian: bool,
}

pub(super) fn read(
    input: &Input,
    cursor: &mut Cursor,
    big_endian: bool,
) -> Result<(Metadata, Codec), TraceError> {
    let name = cursor.string("the name of the compression")?;
    cursor.string("the version of the compression")?;
    let codec = Codec::named(&name).ok_or_else(|| TraceError::Unsupported {
        path: input.path().into(),
        what: format!(
            "compression {name:?} is not supported: convert the file with `trace-cmd convert --compression none`"
        ),
    })?;
    let mut metadata = Metadata::default();
    let sections = Sections { input, codec, big_endian };
    let mut next = cursor.u64("the offset of the options")?;
    let mut tables = 0;
    let mut sections_at = Vec::new();
    while next != 0 {
        tables += 1;
        if tables > MAX_TABLES {
            return Err(input.format_error(next, "the option tables form a loop"));
        }
        next = sections.options(next, &mut metadata, &mut sections_at)?;
    }
    // Sorted so that the headers come first: the rest depends on the layout.
    sections_at.sort_by_key(|&(number, _)| number);
    for (number, at) in sections_at {
        let section = sections.open(at)?;
        let mut cursor = Cursor::new(&section, 0, big_endian);
        match number {
            id::HEADER_INFO => metadata.headers(&mut cursor, big_endian)?,
            id::FTRACE_EVENTS => metadata.ftrace_formats(&mut cursor)?,
            id::EVENT_FORMATS => metadata.event_formats(&mut cursor)?,
            id::KALLSYMS => metadata.symbols(&mut cursor)?,
            _ => metadata.tasks(&mut cursor)?,
        }
    }
    Ok((metadata, codec))
}

impl Sections<'_> {
    /// Reads one option table. Returns the offset of the next one, 0 at the end.
    fn options(
        &self,
        at: u64,
        metadata: &mut Metadata,
        sections_at: &mut Vec<(u16, u64)>,
    ) -> Result<u64, TraceError> {
        let section = self.open(at)?;
        let mut cursor = Cursor::new(&section, 0, self.big_endian);
        loop {
            let number = cursor.u16("an option")?;
            let size = cursor.u32("the size of an option")?;
            let data = Input::memory(cursor.bytes(size.into(), "an option")?, "an option");
            let mut inner = Cursor::new(&data, 0, self.big_endian);
            match number {
                id::DONE => return inner.u64("the offset of the next options"),
                id::BUFFER => metadata.buffers.push(self.buffer(&mut inner)?),
                id::HEADER_INFO | id::FTRACE_EVENTS | id::EVENT_FORMATS | id::KALLSYMS | id::CMDLINES => {
                    sections_at.push((number, inner.u64("the offset of a section")?));
                }
                _ => metadata.option(number, &data, self.big_endian)?,
            }
        }
    }

    fn buffer(&self, option: &mut Cursor) -> Result<Buffer, TraceError> {
        let at = option.u64("the offset of the events")?;
        let name = option.string("the name of an instance")?;
        let clock = clock(&option.string("the clock of an instance")?);
        // trace-cmd writes the size of sub-buffers here; the manual page, and files that follow it, omit it.
        let sub_buffer_size =
            if option.left() % CPU_ENTRY == 8 { Some(option.u32("the size of sub-buffers")?) } else { None };
        let count = option.u32("the count of CPUs")?;
        let mut cpus = Vec::new();
        for _ in 0..count {
            let cpu = option.u32("a CPU")?;
            let (offset, size) =
                (option.u64("the offset of a CPU's data")?, option.u64("the size of a CPU's data")?);
            if size > 0 {
                cpus.push((cpu, offset, size));
            }
        }
        let flags = self.header(at)?.0;
        Ok(Buffer { name, clock, sub_buffer_size, cpus, compressed: flags & COMPRESSED != 0 })
    }

    /// Reads a section header. Returns flags, offset and size of the contents. (trace-cmd writes 8 bytes of
    /// size; the manual page says 4.)
    fn header(&self, at: u64) -> Result<(u16, u64, u64), TraceError> {
        let mut cursor = Cursor::new(self.input, at, self.big_endian);
        cursor.u16("the number of a section")?;
        let flags = cursor.u16("the flags of a section")?;
        cursor.u32("the description of a section")?;
        let size = cursor.u64("the size of a section")?;
        Ok((flags, cursor.at, size))
    }

    /// Returns the contents of a section.
    fn open(&self, at: u64) -> Result<Input, TraceError> {
        let (flags, start, size) = self.header(at)?;
        let bytes = if flags & COMPRESSED != 0 {
            self.chunk(&mut Cursor::new(self.input, start, self.big_endian), MAX_SECTION)?
        } else {
            self.input.read_exact_at(start, size, "a section")?
        };
        Ok(Input::memory(bytes, &self.input.path().to_string_lossy()))
    }

    /// Reads a chunk: compressed size, uncompressed size, data.
    fn chunk(&self, cursor: &mut Cursor, limit: u32) -> Result<Vec<u8>, TraceError> {
        let (stored, raw) = (cursor.u32("a compressed size")?, cursor.u32("an uncompressed size")?);
        let at = cursor.at;
        if raw > limit {
            return Err(self.input.format_error(at, format!("{raw} bytes exceed the limit of a section")));
        }
        let bytes = cursor.bytes(stored.into(), "compressed data")?;
        self.codec.decompress(&bytes, raw as usize).map_err(|what| self.input.format_error(at, what))
    }

    /// Reads the next chunk of trace data.
    pub(super) fn data_chunk(&self, at: &mut u64) -> Result<Vec<u8>, TraceError> {
        let mut cursor = Cursor::new(self.input, *at, self.big_endian);
        let chunk = self.chunk(&mut cursor, MAX_CHUNK)?;
        *at = cursor.at;
        Ok(chunk)
    }
}
