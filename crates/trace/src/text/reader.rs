use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::batch::{Batch, Chunks};
use super::head::Note;
use super::parser::Parser;
use super::tasks::TaskNames;
use crate::event::Body;
use crate::recording::{Origin, TraceInfo};
use crate::{Comms, Event, EventSource, Formats, Input, Losses, TraceError};

/// Reads text traces. Lines are taken apart by a thread of its own, unless there are few.
pub(crate) struct TextReader {
    /// Where batches come from, until the last has come.
    ahead: Option<Ahead>,
    /// The batch whose events come now; its next event, and its next note.
    batch: Batch,
    line: usize,
    note: usize,
    info: TraceInfo,
    formats: Formats,
    comms: Comms,
    losses: Losses,
    /// CPUs that lost events since their last one.
    gaps: BTreeSet<u32>,
    tasks: TaskNames,
}

/// The thread that reads ahead.
struct Ahead {
    full: Receiver<Result<Batch, TraceError>>,
    empty: Sender<Batch>,
}

/// Batches on their way, of about 2.5 MiB each.
const BATCHES: usize = 3;

impl TextReader {
    pub(crate) fn open(input: Input) -> Result<Self, TraceError> {
        let path = input.path().to_owned();
        let (mut chunks, mut parser, mut batch) = (Chunks::new(input), Parser::default(), Batch::default());
        chunks.fill(&mut batch)?;
        parser.parse(&mut batch);
        expect_text(&batch, &path)?;
        let mut reader = Self {
            ahead: None,
            batch: Batch::default(),
            line: 0,
            note: 0,
            info: TraceInfo { origin: Origin::Text, ..TraceInfo::default() },
            formats: Formats::default(),
            comms: Comms::default(),
            losses: Losses::default(),
            gaps: BTreeSet::new(),
            tasks: TaskNames::default(),
        };
        reader.begin(batch);
        if !chunks.at_end() {
            reader.ahead =
                Some(Ahead::start(chunks, parser).map_err(TraceError::io(&path, "read ahead in"))?);
        }
        Ok(reader)
    }

    pub(crate) fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn begin(&mut self, mut batch: Batch) -> Batch {
        for format in batch.formats.drain(..) {
            self.formats.add(format);
        }
        self.losses.unknown_events += batch.unknown;
        (self.line, self.note) = (0, 0);
        std::mem::replace(&mut self.batch, batch)
    }

    /// Goes on to the next batch; false at the end.
    #[cold]
    fn next_batch(&mut self) -> Result<bool, TraceError> {
        let Some(ahead) = &self.ahead else { return Ok(false) };
        // Nothing comes any more when the thread has ended.
        let Ok(batch) = ahead.full.recv() else {
            self.ahead = None;
            return Ok(false);
        };
        let used = self.begin(batch?);
        if let Some(ahead) = &self.ahead {
            // Refused only by a thread that has ended.
            let _ = ahead.empty.send(used);
        }
        Ok(true)
    }

    /// Takes the notes before the next event; whether there is an event in this batch.
    #[inline]
    fn take_notes(&mut self) -> bool {
        while let Some(&(before, note)) = self.batch.notes.get(self.note) {
            if before > self.line {
                break;
            }
            self.note += 1;
            match note {
                Note::Lost { cpu, events } => {
                    self.gaps.insert(cpu);
                    let losses = self.losses.cpu(cpu);
                    match events {
                        Some(events) => losses.events = losses.events.saturating_add(events),
                        None => losses.gaps += 1,
                    }
                }
                Note::Overwritten(0) => {}
                Note::Overwritten(events) => {
                    let what =
                        format!("{events} events were overwritten in the kernel's buffer before it was read");
                    self.info.remarks.push(what);
                }
            }
        }
        self.line < self.batch.lines.len()
    }
}

/// A file without an event in its first megabyte is none, unless it says that it is an empty trace.
fn expect_text(batch: &Batch, path: &std::path::Path) -> Result<(), TraceError> {
    let empty = batch.bytes.starts_with(b"# tracer:") || batch.bytes.starts_with(b"cpus=");
    if !batch.lines.is_empty() || !batch.notes.is_empty() || empty {
        return Ok(());
    }
    let what = "no trace: expected a pagehaul recording, a trace.dat, or text with lines `TASK-PID [CPU] TIME: EVENT: …` \
                as from trace_pipe, `trace-cmd report` or `perf script`";
    Err(TraceError::Unsupported { path: path.into(), what: what.into() })
}

impl Ahead {
    fn start(mut chunks: Chunks, mut parser: Parser) -> std::io::Result<Self> {
        let (full_sender, full) = channel();
        let (empty, empties) = channel::<Batch>();
        for _ in 0..BATCHES {
            // The receiver is here.
            let _ = empty.send(Batch::default());
        }
        std::thread::Builder::new().name("text".into()).spawn(move || {
            // Ends with the text, or with the reader.
            while let Ok(mut batch) = empties.recv() {
                let more = chunks.fill(&mut batch);
                if matches!(more, Ok(false)) {
                    return;
                }
                parser.parse(&mut batch);
                let failed = more.is_err();
                if full_sender.send(more.map(|_| batch)).is_err() || failed {
                    return;
                }
            }
        })?;
        Ok(Self { full, empty })
    }
}

impl EventSource for TextReader {
    #[inline]
    fn next_event(&mut self) -> Result<Option<Event<'_>>, TraceError> {
        while !self.take_notes() {
            if !self.next_batch()? {
                return Ok(None);
            }
        }
        let Some(line) = self.batch.lines.get(self.line) else { return Ok(None) };
        self.line += 1;
        let head = &line.head;
        let part = |start: u32, end: u32| {
            self.batch.bytes.get(line.start + start as usize..line.start + end as usize).unwrap_or_default()
        };
        if self.tasks.changes(head.pid, part(head.comm.start, head.comm.end)) {
            let comm = self.tasks.name(head.pid);
            if comm != "<...>" {
                self.comms.insert(head.pid, comm);
            }
        }
        let Some(format) = self.formats.get(line.format) else { return Ok(None) };
        let body = Body::Text {
            line: part(head.args.start, head.args.end),
            values: self.batch.values.get(line.first..line.first + line.count).unwrap_or_default(),
            pid: head.pid,
            comm: self.tasks.name(head.pid),
        };
        let after_gap = !self.gaps.is_empty() && self.gaps.remove(&head.cpu);
        Ok(Some(Event { ts: head.ts, cpu: head.cpu, after_gap, format, body }))
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
