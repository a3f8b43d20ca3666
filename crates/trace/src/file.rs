//! Trace files of all formats.

use std::path::Path;

use crate::binary::BinaryTrace;
use crate::error::TraceError;
use crate::event::Event;
use crate::format::Formats;
use crate::info::TraceInfo;
use crate::input::Input;
use crate::lost::Losses;
use crate::source::EventSource;
use crate::text::TextReader;
use crate::{dat, pht};

/// An open trace file: a pagehaul recording (`.pht`), a `trace.dat`, or text.
pub struct TraceFile(Reader);

enum Reader {
    Pht(Box<BinaryTrace<pht::Blocks>>),
    Dat(Box<BinaryTrace<dat::CpuData>>),
    Text(Box<TextReader>),
}

impl TraceFile {
    /// Opens a file, or standard input for `-`, and detects its format.
    ///
    /// # Errors
    /// [`TraceError`] if the file cannot be read or is not a trace.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::from_input(Input::open(path)?)
    }

    /// Returns whether a file that starts with these bytes is a pagehaul recording or a `trace.dat`. Text and compressed files are not.
    pub fn is_binary(start: &[u8]) -> bool {
        start.starts_with(pht::MAGIC) || start.starts_with(dat::MAGIC)
    }

    /// Opens an [`Input`] and detects its format.
    ///
    /// # Errors
    /// [`TraceError`] if the input is not a trace, or if its metadata is damaged.
    pub fn from_input(input: Input) -> Result<Self, TraceError> {
        let mut magic = [0; 16];
        let count = input.read_at(0, &mut magic)?;
        let magic = &magic[..count];
        Ok(Self(if magic.starts_with(pht::MAGIC) {
            Reader::Pht(Box::new(pht::open(input)?))
        } else if magic.starts_with(dat::MAGIC) {
            Reader::Dat(Box::new(dat::open(input)?))
        } else if magic.starts_with(b"PERFILE2") {
            let what =
                "perf.data files are not supported: convert it with `perf script > FILE`, and read FILE"
                    .into();
            return Err(TraceError::Unsupported { path: input.path().into(), what });
        } else {
            Reader::Text(Box::new(TextReader::open(input)?))
        }))
    }

    /// Returns what the file says about the machine. For text, this covers the lines read so far.
    pub fn info(&self) -> &TraceInfo {
        match &self.0 {
            Reader::Pht(reader) => &reader.info,
            Reader::Dat(reader) => &reader.info,
            Reader::Text(reader) => reader.info(),
        }
    }

    fn source(&self) -> &dyn EventSource {
        match &self.0 {
            Reader::Pht(reader) => &**reader,
            Reader::Dat(reader) => &**reader,
            Reader::Text(reader) => &**reader,
        }
    }
}

impl EventSource for TraceFile {
    #[inline]
    fn next_event(&mut self) -> Result<Option<Event<'_>>, TraceError> {
        match &mut self.0 {
            Reader::Pht(reader) => reader.next_event(),
            Reader::Dat(reader) => reader.next_event(),
            Reader::Text(reader) => reader.next_event(),
        }
    }

    fn formats(&self) -> &Formats {
        self.source().formats()
    }

    fn losses(&self) -> Losses {
        self.source().losses()
    }

    fn warnings(&self) -> &[String] {
        &self.info().warnings
    }
}
