use super::compression::Codec;
use super::cpu_data::CpuData;
use super::cursor::Cursor;
use super::metadata::{Buffer, Metadata};
use super::{v6, v7};
use crate::info::{Origin, TraceInfo};
use crate::merge::TimeScale;
use crate::ring::MAX_SUB_BUFFER;
use crate::{Comms, Event, EventSource, Formats, Input, Losses, Merge, TraceError};

/// Reads `trace.dat` files.
pub(crate) struct DatReader {
    info: TraceInfo,
    formats: Formats,
    comms: Comms,
    merge: Merge<CpuData>,
}

impl DatReader {
    pub(crate) fn open(input: Input) -> Result<Self, TraceError> {
        let mut cursor = Cursor::new(&input, super::MAGIC.len() as u64, false);
        let version = cursor.string("the version")?;
        let big_endian = cursor.u8("the byte order")? != 0;
        cursor.set_big_endian(big_endian);
        cursor.u8("the size of long")?;
        cursor.u32("the page size")?;
        let (mut metadata, codec, number) = match version.as_str() {
            "6" => (v6::read(&input, &mut cursor, big_endian)?, Codec::None, 6),
            "7" => {
                let (metadata, codec) = v7::read(&input, &mut cursor, big_endian)?;
                (metadata, codec, 7)
            }
            _ => {
                let what = format!("it is a trace.dat of version {version:?}; versions 6 and 7 are read");
                return Err(TraceError::Unsupported { path: input.path().into(), what });
            }
        };
        metadata.info.origin = Origin::TraceDat(number);
        let Some(mut layout) = metadata.layout else {
            return Err(input.fault(0, "the file does not say how events are laid out: it is cut or damaged"));
        };
        let buffer = metadata.choose_buffer();
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
                .remarks
                .push(format!("the file is cut: data of {missing} of {of} CPUs reaches beyond its end"));
        }
        let mut merge = Merge::new(sources, layout, &metadata.formats);
        merge.set_time_scale(TimeScale::new(metadata.tsc, metadata.offset));
        Ok(Self { info: metadata.info, formats: metadata.formats, comms: metadata.comms, merge })
    }

    pub(crate) fn info(&self) -> &TraceInfo {
        &self.info
    }
}

impl Metadata {
    /// The top instance if it has events, else the first that has; what is left out is remarked.
    fn choose_buffer(&mut self) -> Buffer {
        let filled = self.buffers.iter().position(|buffer| !buffer.cpus.is_empty());
        let top = self.buffers.iter().position(|buffer| buffer.name.is_empty() && !buffer.cpus.is_empty());
        let chosen = top.or(filled).map_or_else(Buffer::default, |at| self.buffers.swap_remove(at));
        for other in self.buffers.iter().filter(|buffer| !buffer.cpus.is_empty()) {
            let name = &other.name;
            self.info
                .remarks
                .push(format!("the file holds a further tracing instance, {name:?}, which is left out"));
        }
        if chosen.clock.is_some() {
            self.info.clock.clone_from(&chosen.clock);
        }
        if self.unparsed_formats > 0 {
            let count = self.unparsed_formats;
            self.info
                .remarks
                .push(format!("{count} event formats of the file cannot be understood, and are left out"));
        }
        chosen
    }
}

impl EventSource for DatReader {
    #[inline]
    fn next_event(&mut self) -> Result<Option<Event<'_>>, TraceError> {
        self.merge.next_event(&self.formats, &self.comms, u64::MAX)
    }

    fn formats(&self) -> &Formats {
        &self.formats
    }

    fn comms(&self) -> &Comms {
        &self.comms
    }

    fn losses(&self) -> Losses {
        self.merge.losses()
    }
}
