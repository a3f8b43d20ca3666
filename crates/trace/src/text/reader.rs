use std::collections::BTreeSet;
use std::path::Path;

use super::batch::Batch;
use super::chunks::Chunks;
use super::header::LossNotice;
use super::line_format::LineFormats;
use super::parser::Parser;
use super::parser_threads::{ParserThreads, all_threads};
use super::task_names::TaskNames;
use crate::comms::Comms;
use crate::error::TraceError;
use crate::event::{Body, Event};
use crate::format::Formats;
use crate::info::{Origin, TraceInfo};
use crate::input::Input;
use crate::lost::Losses;
use crate::source::EventSource;

/// Reads text traces. Threads parse the lines, unless the file is a single chunk.
pub(crate) struct TextReader {
    /// Source of further batches.
    threads: Option<ParserThreads>,
    /// The current batch, its next event and its next loss notice.
    batch: Batch,
    line: usize,
    note: usize,
    /// Event formats of the batch's line formats; `None` beyond the limits.
    kinds: Vec<Option<usize>>,
    line_formats: LineFormats,
    info: TraceInfo,
    formats: Formats,
    comms: Comms,
    losses: Losses,
    /// CPUs that lost events since their last one.
    gaps: BTreeSet<u32>,
    tasks: TaskNames,
}

/// A trace must have an event in this many bytes at its start.
const SEARCHED: u64 = 1 << 20;

impl TextReader {
    pub(crate) fn open(input: Input) -> Result<Self, TraceError> {
        Self::of_chunks(&Chunks::new(input), all_threads())
    }

    pub(super) fn of_chunks(chunks: &Chunks, threads: usize) -> Result<Self, TraceError> {
        let (mut parser, mut batch) = (Parser::new(chunks.longest()), Batch::default());
        let mut next = 0;
        let mut trace = false;
        while next < chunks.of_first(SEARCHED) && batch.is_empty() {
            chunks.fill(next, &mut batch)?;
            parser.parse(&mut batch);
            // The header identifies an empty trace.
            let text = batch.text();
            trace |= next == 0 && (text.starts_with(b"# tracer:") || text.starts_with(b"cpus="));
            next += 1;
        }
        if batch.is_empty() && !trace {
            return Err(no_trace(chunks.input().path()));
        }
        let mut reader = Self {
            threads: None,
            batch: Batch::default(),
            line: 0,
            note: 0,
            kinds: Vec::new(),
            line_formats: LineFormats::default(),
            info: TraceInfo { origin: Origin::Text, ..TraceInfo::default() },
            formats: Formats::default(),
            comms: Comms::default(),
            losses: Losses::default(),
            gaps: BTreeSet::new(),
            tasks: TaskNames::default(),
        };
        reader.begin(batch);
        if next < chunks.count() {
            reader.threads = Some(ParserThreads::start(chunks, next, threads)?);
        }
        Ok(reader)
    }

    pub(crate) fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn begin(&mut self, batch: Batch) {
        self.kinds.clear();
        for format in &batch.formats {
            self.kinds.push(self.line_formats.index(format, &mut self.formats));
        }
        (self.batch, self.line, self.note) = (batch, 0, 0);
    }

    /// Advances to the next batch. Returns false at the end.
    #[cold]
    fn next_batch(&mut self) -> Result<bool, TraceError> {
        let Some(threads) = &mut self.threads else { return Ok(false) };
        match threads.next(std::mem::take(&mut self.batch))? {
            Some(batch) => self.begin(batch),
            None => {
                self.threads = None;
                (self.line, self.note) = (0, 0);
            }
        }
        Ok(self.threads.is_some())
    }

    /// Processes the loss notices before the next event. Returns whether this batch has another event.
    #[inline]
    fn take_notes(&mut self) -> bool {
        while let Some(&(before, note)) = self.batch.notes.get(self.note) {
            if before > self.line {
                break;
            }
            self.note += 1;
            match note {
                LossNotice::Lost { cpu, events } => {
                    self.gaps.insert(cpu);
                    let losses = self.losses.cpu(cpu);
                    match events {
                        Some(events) => losses.events = losses.events.saturating_add(events),
                        None => losses.gaps += 1,
                    }
                }
                LossNotice::Overwritten(0) => {}
                LossNotice::Overwritten(events) => {
                    let what =
                        format!("{events} events were overwritten in the kernel's buffer before it was read");
                    self.info.warnings.push(what);
                }
            }
        }
        self.line < self.batch.lines.len()
    }
}

fn no_trace(path: &Path) -> TraceError {
    let what = "not a trace: expected a pagehaul recording (.pht), a trace.dat, or text with lines `TASK-PID [CPU] TIME: EVENT: …` \
                as from trace_pipe, `trace-cmd report` or `perf script`";
    TraceError::Unsupported { path: path.into(), what: what.into() }
}

impl EventSource for TextReader {
    #[inline]
    fn next_event(&mut self) -> Result<Option<Event<'_>>, TraceError> {
        let (line, format) = loop {
            while !self.take_notes() {
                if !self.next_batch()? {
                    return Ok(None);
                }
            }
            let Some(line) = self.batch.lines.get(self.line) else { return Ok(None) };
            self.line += 1;
            match self.kinds.get(line.format).copied().flatten() {
                Some(format) => break (line, format),
                None => self.losses.unknown_events += 1,
            }
        };
        let header = &line.header;
        let part = |start: u32, end: u32| {
            self.batch.bytes.get(line.start + start as usize..line.start + end as usize).unwrap_or_default()
        };
        if self.tasks.changes(header.pid, part(header.comm.start, header.comm.end)) {
            let comm = self.tasks.name(header.pid);
            if comm != "<...>" {
                self.comms.insert(header.pid, comm);
            }
        }
        let Some(format) = self.formats.get(format) else { return Ok(None) };
        let body = Body::Text {
            line: part(header.args.start, header.args.end),
            values: self.batch.values.get(line.first..line.first + line.count).unwrap_or_default(),
            pid: header.pid,
            comm: self.tasks.name(header.pid),
        };
        let after_gap = !self.gaps.is_empty() && self.gaps.remove(&header.cpu);
        Ok(Some(Event { ts: header.ts, cpu: header.cpu, after_gap, format, body }))
    }

    fn formats(&self) -> &Formats {
        &self.formats
    }

    fn losses(&self) -> Losses {
        self.losses.clone()
    }
}
