use super::cursor::Cursor;
use super::head::{Buffer, Head};
use super::pages::Pages;
use super::unpack::Codec;
use super::{v6, v7};
use crate::merge::TimeScale;
use crate::recording::{Origin, TraceInfo};
use crate::ring::MAX_PAGE;
use crate::{Comms, Event, EventSource, Formats, Input, Losses, Merge, TraceError};

/// Reads `trace.dat` files.
pub(crate) struct DatReader {
    info: TraceInfo,
    formats: Formats,
    comms: Comms,
    merge: Merge<Pages>,
}

impl DatReader {
    pub(crate) fn open(input: Input) -> Result<Self, TraceError> {
        let mut cursor = Cursor::new(&input, super::MAGIC.len() as u64, false);
        let version = cursor.string("the version")?;
        let big_endian = cursor.u8("the byte order")? != 0;
        cursor.set_big_endian(big_endian);
        cursor.u8("the size of long")?;
        cursor.u32("the page size")?;
        let (mut head, codec, number) = match version.as_str() {
            "6" => (v6::read(&input, &mut cursor, big_endian)?, Codec::None, 6),
            "7" => {
                let (head, codec) = v7::read(&input, &mut cursor, big_endian)?;
                (head, codec, 7)
            }
            _ => {
                let what = format!("it is a trace.dat of version {version:?}; versions 6 and 7 are read");
                return Err(TraceError::Unsupported { path: input.path().into(), what });
            }
        };
        head.info.origin = Origin::TraceDat(number);
        let Some(mut layout) = head.layout else {
            return Err(input.fault(0, "the file does not say how events are laid out: it is cut or damaged"));
        };
        let buffer = head.choose_buffer();
        if let Some(size) =
            buffer.page_size.filter(|&size| (layout.data_offset + 1..=MAX_PAGE).contains(&size))
        {
            layout.page_size = size;
        }
        let mut sources = Vec::new();
        let mut missing = 0;
        for &(cpu, offset, size) in &buffer.cpus {
            if offset.saturating_add(size) > input.len() {
                missing += 1;
            }
            let pages = if buffer.compressed {
                Pages::chunks(input.clone(), layout.page_size, offset, codec, big_endian)
            } else {
                Ok(Pages::plain(input.clone(), layout.page_size, offset, size))
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
            head.info
                .remarks
                .push(format!("the file is cut: data of {missing} of {of} CPUs reaches beyond its end"));
        }
        let mut merge = Merge::new(sources, layout, &head.formats);
        merge.set_time_scale(TimeScale::new(head.tsc, head.offset));
        Ok(Self { info: head.info, formats: head.formats, comms: head.comms, merge })
    }

    pub(crate) fn info(&self) -> &TraceInfo {
        &self.info
    }
}

impl Head {
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
        if self.odd_formats > 0 {
            let count = self.odd_formats;
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
