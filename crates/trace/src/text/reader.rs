use std::collections::{BTreeSet, HashMap};

use super::args::{self, Pair, SHRINKER_NAMES};
use super::head::{self, Note};
use super::names::field_name;
use crate::event::Body;
use crate::recording::{Origin, TraceInfo};
use crate::{
    Comms, Event, EventFormat, EventSource, Field, Formats, Input, Kind, Losses, Slot, Span, TraceError,
};

/// Reads text traces line by line. Kinds of events are learned as they come: one [`EventFormat`] for each event name and
/// sequence of fields.
pub(crate) struct TextReader {
    input: Input,
    info: TraceInfo,
    formats: Formats,
    comms: Comms,
    losses: Losses,
    /// CPUs that lost events since their last one.
    gaps: BTreeSet<u32>,
    kinds: HashMap<Box<str>, Vec<TextKind>>,
    /// What was read ahead, and where in the file that is.
    chunk: Vec<u8>,
    chunk_start: u64,
    at: usize,
    lines: u64,
    events: u64,
    pairs: Vec<Pair>,
    spans: Vec<Span>,
    /// Where fields begin in the current line.
    line: String,
}

/// A sequence of names as the text has them, and the format made for it.
struct TextKind {
    names: Vec<Box<str>>,
    format: usize,
}

/// Bytes read at a time. A line that is longer is left out.
const CHUNK: usize = 1 << 20;

/// Sequences of fields kept for one event name; more is no trace.
const MAX_KINDS: usize = 64;

impl TextReader {
    pub(crate) fn open(input: Input) -> Result<Self, TraceError> {
        let info = TraceInfo { origin: Origin::Text, ..TraceInfo::default() };
        let mut reader = Self {
            input,
            info,
            formats: Formats::default(),
            comms: Comms::default(),
            losses: Losses::default(),
            gaps: BTreeSet::new(),
            kinds: HashMap::new(),
            chunk: Vec::new(),
            chunk_start: 0,
            at: 0,
            lines: 0,
            events: 0,
            pairs: Vec::new(),
            spans: Vec::new(),
            line: String::new(),
        };
        reader.expect_text()?;
        Ok(reader)
    }

    pub(crate) fn info(&self) -> &TraceInfo {
        &self.info
    }

    /// A file without an event in its first megabyte, or with bytes that no text has, is none.
    fn expect_text(&mut self) -> Result<(), TraceError> {
        self.fill()?;
        let chunk = String::from_utf8_lossy(&self.chunk);
        let known = chunk.lines().any(|line| head::parse(line).is_some() || head::note(line).is_some());
        // An empty trace has its comments.
        let empty = self.chunk.starts_with(b"# tracer:") || self.chunk.starts_with(b"cpus=");
        if known || empty {
            return Ok(());
        }
        let what = "no trace: expected a pagehaul recording, a trace.dat, or text with lines `TASK-PID [CPU] TIME: EVENT: …` \
                    as from trace_pipe, `trace-cmd report` or `perf script`";
        Err(TraceError::Unsupported { path: self.input.path().into(), what: what.into() })
    }

    /// Moves what is left to the front and reads on; false at the end.
    fn fill(&mut self) -> Result<bool, TraceError> {
        self.chunk.drain(..self.at);
        self.chunk_start += self.at as u64;
        self.at = 0;
        if self.chunk.len() >= CHUNK {
            // One line of a megabyte: it is dropped.
            self.chunk_start += self.chunk.len() as u64;
            self.chunk.clear();
            self.lines += 1;
        }
        let held = self.chunk.len();
        self.chunk.resize(CHUNK, 0);
        let count = self.input.read_at(self.chunk_start + held as u64, &mut self.chunk[held..])?;
        self.chunk.truncate(held + count);
        Ok(count > 0)
    }

    /// The next line, without its end, as a range of `chunk`.
    fn next_line(&mut self) -> Result<Option<(usize, usize)>, TraceError> {
        loop {
            let rest = &self.chunk[self.at..];
            if let Some(len) = memchr::memchr(b'\n', rest) {
                let start = self.at;
                self.at += len + 1;
                self.lines += 1;
                return Ok(Some((start, start + len)));
            }
            if !self.fill()? {
                if self.chunk.is_empty() {
                    return Ok(None);
                }
                self.at = self.chunk.len();
                self.lines += 1;
                return Ok(Some((0, self.at)));
            }
        }
    }

    /// Takes a line apart into `spans`; what it says, and its format, if it is an event.
    fn take(&mut self, start: usize, end: usize) -> Option<Taken> {
        let bytes = &self.chunk[start..end];
        let line = match std::str::from_utf8(bytes) {
            Ok(line) => line,
            Err(_) => {
                self.line = String::from_utf8_lossy(bytes).into_owned();
                &self.line
            }
        };
        let Some(head) = head::parse(line) else {
            match head::note(line) {
                Some(Note::Lost { cpu, events }) => {
                    self.gaps.insert(cpu);
                    let losses = self.losses.cpu(cpu);
                    match events {
                        Some(events) => losses.events = losses.events.saturating_add(events),
                        None => losses.gaps += 1,
                    }
                }
                Some(Note::Overwritten(events)) if events > 0 => {
                    let what =
                        format!("{events} events were overwritten in the kernel's buffer before it was read");
                    self.info.remarks.push(what);
                }
                _ => {}
            }
            return None;
        };
        // `trace-cmd report -R` has all fields as pairs.
        let shrinker = head.name.starts_with("mm_shrink_slab_") && !head.args.contains('=');
        if shrinker {
            args::shrinker(head.args, &mut self.pairs);
        } else {
            args::pairs(head.args, &mut self.pairs);
        }
        self.spans.clear();
        self.spans.extend(self.pairs.iter().map(|&(_, value)| value));
        let known = self.kinds.get(head.name);
        let same = |kind: &&TextKind| {
            let names = kind.names.iter().zip(&self.pairs);
            kind.names.len() == self.pairs.len()
                && names
                    .enumerate()
                    .all(|(at, (name, pair))| **name == *pair_name(head.args, *pair, at, shrinker))
        };
        let format = match known.and_then(|kinds| kinds.iter().find(same)) {
            Some(kind) => kind.format,
            None => {
                if known.is_some_and(|kinds| kinds.len() >= MAX_KINDS) {
                    self.losses.unknown_events += 1;
                    return None;
                }
                let names = self.pairs.iter().enumerate();
                let names: Vec<_> =
                    names.map(|(at, &pair)| pair_name(head.args, pair, at, shrinker).into()).collect();
                let format = self.formats.add(text_format(head.system, head.name, &names));
                self.kinds.entry(head.name.into()).or_default().push(TextKind { names, format });
                format
            }
        };
        if self.comms.get(head.pid) != Some(head.comm) && head.comm != "<...>" {
            self.comms.insert(head.pid, head.comm);
        }
        let offset_of = |part: &str| (part.as_ptr() as usize - line.as_ptr() as usize) as u32;
        Some(Taken {
            ts: head.ts,
            cpu: head.cpu,
            pid: head.pid,
            comm: Span { start: offset_of(head.comm), end: offset_of(head.comm) + head.comm.len() as u32 },
            args: offset_of(head.args),
            format,
        })
    }
}

/// What [`TextReader::take`] found in a line.
struct Taken {
    ts: u64,
    cpu: u32,
    pid: i32,
    comm: Span,
    args: u32,
    format: usize,
}

fn pair_name(args: &str, (name, _): Pair, at: usize, shrinker: bool) -> &str {
    match SHRINKER_NAMES.get(at) {
        Some(name) if shrinker => name,
        _ => args.get(name.start as usize..name.end as usize).unwrap_or_default(),
    }
}

fn text_format(system: &str, name: &str, names: &[Box<str>]) -> EventFormat {
    let field = |at: usize| Field {
        name: field_name(name, &names[at]).to_owned(),
        type_name: "text".into(),
        slot: Slot { offset: at as u32, size: 0, kind: Kind::Text },
    };
    EventFormat {
        index: 0,
        system: system.to_owned(),
        name: name.to_owned(),
        id: u32::MAX,
        fields: (0..names.len()).map(field).collect(),
        print: String::new(),
        common_pid: None,
    }
}

impl EventSource for TextReader {
    fn next_event(&mut self) -> Result<Option<Event<'_>>, TraceError> {
        let (taken, start, end) = loop {
            let Some((start, end)) = self.next_line()? else { return Ok(None) };
            if let Some(taken) = self.take(start, end) {
                break (taken, start, end);
            }
        };
        self.events += 1;
        let bytes = &self.chunk[start..end];
        let line = std::str::from_utf8(bytes).unwrap_or(&self.line);
        let part = |start: u32, end: usize| line.get(start as usize..end).unwrap_or_default();
        let Some(format) = self.formats.get(taken.format) else { return Ok(None) };
        let body = Body::Text {
            line: part(taken.args, line.len()),
            spans: &self.spans,
            pid: taken.pid,
            comm: part(taken.comm.start, taken.comm.end as usize),
        };
        let after_gap = !self.gaps.is_empty() && self.gaps.remove(&taken.cpu);
        Ok(Some(Event { ts: taken.ts, cpu: taken.cpu, after_gap, format, body }))
    }

    fn formats(&self) -> &Formats {
        &self.formats
    }

    fn comms(&self) -> &Comms {
        &self.comms
    }

    fn losses(&self) -> Losses {
        self.losses.clone()
    }
}
