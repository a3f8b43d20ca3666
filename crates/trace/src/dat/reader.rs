use super::compression::Codec;
use super::cpu_data::CpuData;
use super::cursor::Cursor;
use super::metadata::{Buffer, Metadata};
use super::{v6, v7};
use crate::binary::BinaryTrace;
use crate::error::TraceError;
use crate::info::Origin;
use crate::input::Input;
use crate::merge::{Merge, TimeScale};
use crate::ring::MAX_SUB_BUFFER;

/// Opens a `trace.dat`.
pub(crate) fn open(input: Input) -> Result<BinaryTrace<CpuData>, TraceError> {
    let mut cursor = Cursor::new(&input, super::MAGIC.len() as u64, false);
    let version = cursor.string("the version")?;
    let big_endian = cursor.u8("the byte order")? != 0;
    cursor.set_big_endian(big_endian);
    cursor.u8("the size of long")?;
    let page_size = cursor.u32("the page size")?;
    let (mut metadata, codec, number) = match version.as_str() {
        "6" => (v6::read(&input, &mut cursor, big_endian)?, Codec::None, 6),
        "7" => {
            let (metadata, codec) = v7::read(&input, &mut cursor, big_endian)?;
            (metadata, codec, 7)
        }
        _ => {
            let what = format!(
                "trace.dat version {version:?} is not supported: write version 6 or 7 with `trace-cmd convert`"
            );
            return Err(TraceError::Unsupported { path: input.path().into(), what });
        }
    };
    metadata.info.origin = Origin::TraceDat(number);
    metadata.info.machine.page_size = Some(page_size).filter(|size| size.is_power_of_two());
    let Some(mut layout) = metadata.layout else {
        return Err(input.format_error(0, "it has no header_page: the file is truncated or damaged"));
    };
    let buffer = metadata.select_buffer();
    if let Some(size) =
        buffer.sub_buffer_size.filter(|&size| (layout.data_offset + 1..=MAX_SUB_BUFFER).contains(&size))
    {
        layout.sub_buffer_size = size;
    }
    let mut sources = Vec::new();
    let mut missing = 0;
    for &(cpu, offset, size) in &buffer.cpus {
        if offset.saturating_add(size) > input.len() {
            missing += 1;
        }
        let pages = if buffer.compressed {
            CpuData::chunks(input.clone(), layout.sub_buffer_size, offset, codec, big_endian)
        } else {
            Ok(CpuData::plain(input.clone(), layout.sub_buffer_size, offset, size))
        };
        match pages {
            Ok(pages) => sources.push((cpu, pages)),
            // The file ends before this CPU's data.
            Err(TraceError::Format { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    if missing > 0 {
        let of = buffer.cpus.len();
        metadata
            .info
            .warnings
            .push(format!("the file is truncated: the data of {missing} of {of} CPUs is incomplete"));
    }
    let mut merge = Merge::new(sources, layout, &metadata.formats);
    merge.set_time_scale(TimeScale::new(metadata.tsc, metadata.offset));
    Ok(BinaryTrace { info: metadata.info, formats: metadata.formats, comms: metadata.comms, merge })
}

impl Metadata {
    /// Returns the top instance if it has events, else the first instance that has. Warns about the others.
    fn select_buffer(&mut self) -> Buffer {
        let filled = self.buffers.iter().position(|buffer| !buffer.cpus.is_empty());
        let top = self.buffers.iter().position(|buffer| buffer.name.is_empty() && !buffer.cpus.is_empty());
        let chosen = top.or(filled).map_or_else(Buffer::default, |at| self.buffers.swap_remove(at));
        for other in self.buffers.iter().filter(|buffer| !buffer.cpus.is_empty()) {
            let name = &other.name;
            self.info
                .warnings
                .push(format!("skipped the tracing instance {name:?}: only one instance is read"));
        }
        if chosen.clock.is_some() {
            self.info.machine.clock.clone_from(&chosen.clock);
        }
        if self.unparsed_formats > 0 {
            let count = self.unparsed_formats;
            self.info.warnings.push(format!("skipped {count} event formats that do not parse"));
        }
        chosen
    }
}
