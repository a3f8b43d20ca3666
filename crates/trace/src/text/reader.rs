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
    /// Kinds by event name, and where in `named` they are.
    kinds: HashMap<Box<str>, usize>,
    named: Vec<Named>,
    /// Places in `named` by a hash of a name's end: saves the look-up for most lines.
    recent: [usize; RECENT],
    last_task: (i32, Box<str>),
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

/// The kinds of one event name.
struct Named {
    name: Box<str>,
    kinds: Vec<TextKind>,
}

const RECENT: usize = 64;

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
            named: Vec::new(),
            recent: [usize::MAX; RECENT],
            last_task: (-1, "".into()),
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

    /// Takes the fields of a line apart that is not as known; its format, made if there is none. None if there are too many.
    fn learn(&mut self, at: usize, start: usize, end: usize) -> Option<usize> {
        let line = std::str::from_utf8(&self.chunk[start..end]).unwrap_or(&self.line);
        let head = head::parse(line)?;
        // `trace-cmd report -R` has all fields as pairs.
        let shrinker = head.name.starts_with("mm_shrink_slab_") && !head.args.contains('=');
        if shrinker {
            args::shrinker(head.args, &mut self.pairs);
        } else {
            args::pairs(head.args, &mut self.pairs);
        }
        self.spans.clear();
        self.spans.extend(self.pairs.iter().map(|&(_, value)| value));
        let name_of = |at: usize, pair: Pair| pair_name(head.args, pair, at, shrinker);
        let same = |kind: &&TextKind| {
            let names = kind.names.iter().zip(&self.pairs).enumerate();
            kind.names.len() == self.pairs.len()
                && names.into_iter().all(|(at, (name, &pair))| **name == *name_of(at, pair))
        };
        let kinds = &self.named[at].kinds;
        if let Some(kind) = kinds.iter().find(same) {
            return Some(kind.format);
        }
        if kinds.len() >= MAX_KINDS {
            self.losses.unknown_events += 1;
            return None;
        }
        let names: Vec<Box<str>> =
            self.pairs.iter().enumerate().map(|(at, &pair)| name_of(at, pair).into()).collect();
        let format = self.formats.add(text_format(head.system, head.name, &names));
        self.named[at].kinds.push(TextKind { names, format });
        Some(format)
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
        let at = place(&mut self.kinds, &mut self.named, &mut self.recent, head.name);
        let known =
            self.named[at].kinds.iter().find(|kind| args::expected(head.args, &kind.names, &mut self.spans));
        let format = match known {
            Some(kind) => kind.format,
            None => self.learn(at, start, end)?,
        };
        // Borrowed anew, for `learn` needs all of the reader.
        let line = std::str::from_utf8(&self.chunk[start..end]).unwrap_or(&self.line);
        let head = head::parse(line)?;
        if self.last_task.0 != head.pid || *self.last_task.1 != *head.comm {
            self.last_task = (head.pid, head.comm.into());
            if head.comm != "<...>" {
                self.comms.insert(head.pid, head.comm);
            }
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

/// Where a name's kinds are, made if there are none.
#[inline]
fn place(
    kinds: &mut HashMap<Box<str>, usize>,
    named: &mut Vec<Named>,
    recent: &mut [usize; RECENT],
    name: &str,
) -> usize {
    let bytes = name.as_bytes();
    let end = bytes.last_chunk::<4>().map_or(0, |end| u32::from_le_bytes(*end));
    let hash = (end.wrapping_mul(0x9e37_79b1) >> 26) as usize ^ (bytes.len() % RECENT);
    let slot = &mut recent[hash % RECENT];
    if named.get(*slot).is_some_and(|known| *known.name == *name) {
        return *slot;
    }
    *slot = match kinds.get(name) {
        Some(&at) => at,
        None => {
            named.push(Named { name: name.into(), kinds: Vec::new() });
            kinds.insert(name.into(), named.len() - 1);
            named.len() - 1
        }
    };
    *slot
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
