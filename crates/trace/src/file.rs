//! A recorded trace of any format.

use std::path::Path;

use crate::dat::DatReader;
use crate::pht::PhtReader;
use crate::text::TextReader;
use crate::{Comms, Event, EventSource, Formats, Input, Losses, TraceError, TraceInfo, dat, pht};

/// An open recording: our own file, a `trace.dat`, or text.
pub struct TraceFile(Reader);

enum Reader {
    Pht(Box<PhtReader>),
    Dat(Box<DatReader>),
    Text(Box<TextReader>),
}

impl TraceFile {
    /// Opens a file, or standard input for `-`, and finds out what it is.
    ///
    /// # Errors
    /// [`TraceError`] if it cannot be read, or is no trace.
    pub fn open(path: &Path) -> Result<Self, TraceError> {
        Self::from_input(Input::open(path)?)
    }

    /// The same for bytes that are at hand.
    ///
    /// # Errors
    /// [`TraceError`] if it is no trace, or damaged where nothing can be read without.
    pub fn from_input(input: Input) -> Result<Self, TraceError> {
        let mut magic = [0; 16];
        let count = input.read_at(0, &mut magic)?;
        let magic = &magic[..count];
        let reader = if magic.starts_with(pht::MAGIC) {
            Reader::Pht(Box::new(PhtReader::open(input)?))
        } else if magic.starts_with(dat::MAGIC) {
            Reader::Dat(Box::new(DatReader::open(input)?))
        } else if magic.starts_with(b"PERFILE2") {
            let what =
                "a perf.data file is not read directly: convert it with `perf script > FILE`, and give that"
                    .into();
            return Err(TraceError::Unsupported { path: input.path().into(), what });
        } else {
            Reader::Text(Box::new(TextReader::open(input)?))
        };
        Ok(Self(reader))
    }

    /// What the file says of the machine and the recording. For text traces, of what was read so far.
    pub fn info(&self) -> &TraceInfo {
        match &self.0 {
            Reader::Pht(reader) => reader.info(),
            Reader::Dat(reader) => reader.info(),
            Reader::Text(reader) => reader.info(),
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
        match &self.0 {
            Reader::Pht(reader) => reader.formats(),
            Reader::Dat(reader) => reader.formats(),
            Reader::Text(reader) => reader.formats(),
        }
    }

    fn comms(&self) -> &Comms {
        match &self.0 {
            Reader::Pht(reader) => reader.comms(),
            Reader::Dat(reader) => reader.comms(),
            Reader::Text(reader) => reader.comms(),
        }
    }

    fn losses(&self) -> Losses {
        match &self.0 {
            Reader::Pht(reader) => reader.losses(),
            Reader::Dat(reader) => reader.losses(),
            Reader::Text(reader) => reader.losses(),
        }
    }
}
