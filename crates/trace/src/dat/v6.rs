//! Version 6: sequential; the options precede the offsets of the CPUs' data.

use super::cursor::Cursor;
use super::metadata::{Buffer, Metadata};
use super::options::{clock, id};
use crate::error::TraceError;
use crate::input::Input;

/// Upper bound of the number of CPUs; no kernel supports more.
const MAX_CPUS: u32 = 1 << 16;

pub(super) fn read(input: &Input, cursor: &mut Cursor, big_endian: bool) -> Result<Metadata, TraceError> {
    let mut metadata = Metadata::default();
    metadata.headers(cursor, big_endian)?;
    metadata.ftrace_formats(cursor)?;
    metadata.event_formats(cursor)?;
    metadata.symbols(cursor)?;
    Metadata::printk(cursor)?;
    metadata.tasks(cursor)?;
    let cpus = cursor.u32("the count of CPUs")?;
    if cpus > MAX_CPUS {
        return Err(cursor
            .format_error(format!("{cpus} CPUs are more than any kernel supports: the file is damaged")));
    }
    metadata.info.machine.cpus = Some(cpus);
    let mut instances = Vec::new();
    let mut kind = cursor.bytes(10, "the type of the data")?;
    if kind == b"options  \0" {
        loop {
            let number = cursor.u16("an option")?;
            if number == id::DONE {
                break;
            }
            let size = cursor.u32("the size of an option")?;
            let data = Input::memory(cursor.bytes(size.into(), "an option")?, "an option");
            if number == id::BUFFER {
                let mut inner = Cursor::new(&data, 0, big_endian);
                instances.push((
                    inner.u64("the offset of an instance")?,
                    inner.string("the name of an instance")?,
                ));
            } else {
                metadata.option(number, &data, big_endian)?;
            }
        }
        kind = cursor.bytes(10, "the type of the data")?;
    }
    if kind == b"latency  \0" {
        let what = "latency traces are not supported: read the output of `trace-cmd report`".to_owned();
        return Err(TraceError::Unsupported { path: input.path().into(), what });
    }
    if kind != b"flyrecord\0" {
        let found = String::from_utf8_lossy(&kind).into_owned();
        return Err(cursor.format_error(format!("expected \"flyrecord\", found {found:?}")));
    }
    metadata.buffers.push(buffer(cursor, cpus, String::new())?);
    for (at, name) in instances {
        let mut cursor = Cursor::new(input, at, big_endian);
        cursor.expect("flyrecord\0")?;
        metadata.buffers.push(buffer(&mut cursor, cpus, name)?);
    }
    Ok(metadata)
}

/// Reads offset and size of every CPU's data and, in files of some trace-cmd versions, the clock with its
/// length.
fn buffer(cursor: &mut Cursor, cpus: u32, name: String) -> Result<Buffer, TraceError> {
    let mut buffer = Buffer { name, ..Buffer::default() };
    for cpu in 0..cpus {
        let (offset, size) =
            (cursor.u64("the offset of a CPU's data")?, cursor.u64("the size of a CPU's data")?);
        if size > 0 {
            buffer.cpus.push((cpu, offset, size));
        }
    }
    // The clock is optional.
    if let Ok(len @ 1..=1024) = cursor.u64("the clock")
        && let Ok(text) = cursor.text(len, "the clock")
    {
        buffer.clock = text.contains('[').then(|| clock(&text)).flatten();
    }
    Ok(buffer)
}
