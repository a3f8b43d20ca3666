//! Merges the events of all CPUs by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::comms::Comms;
use crate::error::TraceError;
use crate::event::{Body, Event};
use crate::format::Formats;
use crate::lost::{CpuLosses, Losses};
use crate::ring::{MissedEvents, Record, SubBufferCursor, SubBufferLayout};

/// The sub-buffers of one CPU, in order.
pub(crate) trait SubBufferSource: Send {
    /// Replaces the contents of `page` with the next sub-buffer. Returns false at the end.
    ///
    /// # Errors
    /// [`TraceError`] if the source cannot be read any further.
    fn next_sub_buffer(&mut self, page: &mut Vec<u8>) -> Result<bool, TraceError>;
}

/// Merges the events of several [`SubBufferSource`]s by time. On a tie the lower CPU goes first.
pub(crate) struct Merge<S> {
    layout: SubBufferLayout,
    /// Location of `common_type`, the event id, in each record.
    id_offset: usize,
    id_size: usize,
    streams: Vec<Stream<S>>,
    /// Time stamps and positions of the streams' next records, without that of `current`.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// The stream whose record was returned last.
    current: Option<usize>,
    /// Every stream without a record has been polled since the last [`Merge::resume`].
    fresh: bool,
    unknown_events: u64,
    scale: TimeScale,
}

/// Converts the trace's time stamps to nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeScale {
    /// Nanoseconds = (time stamp * `mult` >> `shift`) + `offset`.
    mult: u32,
    shift: u32,
    offset: u64,
}

impl TimeScale {
    const NONE: Self = Self { mult: 1, shift: 0, offset: 0 };

    /// Takes the multiplier, shift and offset of TSC2NSEC, and a constant offset in nanoseconds.
    pub(crate) fn new(tsc: Option<(u32, u32, u64)>, offset: i64) -> Self {
        match tsc {
            Some((mult, shift, less)) if shift < 64 => {
                Self { mult, shift, offset: (offset as u64).wrapping_sub(less) }
            }
            _ => Self { offset: offset as u64, ..Self::NONE },
        }
    }

    #[inline]
    fn apply(self, ts: u64) -> u64 {
        let scaled = (u128::from(ts) * u128::from(self.mult)) >> self.shift;
        (scaled as u64).wrapping_add(self.offset)
    }
}

struct Stream<S> {
    pages: S,
    page: Vec<u8>,
    cursor: Option<SubBufferCursor>,
    record: Record,
    losses: CpuLosses,
    /// Records are missing before the next record.
    gap: bool,
    /// Records are missing before the current record.
    after_gap: bool,
}

impl<S: SubBufferSource> Merge<S> {
    /// Merges the sub-buffers of several CPUs. `formats` gives the location of the event id.
    pub(crate) fn new(
        sources: impl IntoIterator<Item = (u32, S)>,
        layout: SubBufferLayout,
        formats: &Formats,
    ) -> Self {
        let streams = sources.into_iter().map(|(cpu, pages)| Stream {
            pages,
            page: Vec::new(),
            cursor: None,
            record: Record { ts: 0, start: 0, end: 0 },
            losses: CpuLosses { cpu, ..CpuLosses::default() },
            gap: false,
            after_gap: false,
        });
        let id = formats.iter().find_map(|format| format.slot("common_type"));
        let mut streams: Vec<_> = streams.collect();
        streams.sort_by_key(|stream| stream.losses.cpu);
        Self {
            layout,
            id_offset: id.map_or(0, |slot| slot.offset as usize),
            id_size: id.map_or(2, |slot| slot.size as usize),
            streams,
            waiting: BinaryHeap::new(),
            current: None,
            fresh: false,
            unknown_events: 0,
            scale: TimeScale::NONE,
        }
    }

    /// Returns the next event that `formats` knows and whose time stamp is at most `limit` nanoseconds.
    ///
    /// # Errors
    /// [`TraceError`] if a source cannot be read any further. Damaged sub-buffers are not errors:
    /// [`Merge::losses`] counts them.
    pub(crate) fn next_event<'a>(
        &'a mut self,
        formats: &'a Formats,
        comms: &'a Comms,
        limit: u64,
    ) -> Result<Option<Event<'a>>, TraceError> {
        loop {
            let Some(at) = self.advance(limit)? else { return Ok(None) };
            let id = self.streams[at].data().get(self.id_offset..).and_then(|data| data.get(..self.id_size));
            let id = id.and_then(|bytes| self.layout.abi.unsigned(bytes));
            if let Some(format) = id.and_then(|id| formats.by_id(id)) {
                let stream = &self.streams[at];
                return Ok(Some(Event {
                    ts: if self.scale == TimeScale::NONE {
                        stream.record.ts
                    } else {
                        self.scale.apply(stream.record.ts)
                    },
                    cpu: stream.losses.cpu,
                    after_gap: stream.after_gap,
                    format,
                    body: Body::Binary { data: stream.data(), abi: self.layout.abi, comms },
                }));
            }
            self.unknown_events += 1;
        }
    }

    /// Returns the losses in the sub-buffers read so far.
    pub(crate) fn losses(&self) -> Losses {
        let cpus = self.streams.iter().map(|stream| &stream.losses);
        let cpus = cpus.filter(|cpu| cpu.events + cpu.gaps + cpu.damaged_sub_buffers > 0);
        Losses { cpus: cpus.cloned().collect(), unknown_events: self.unknown_events }
    }

    pub(crate) fn set_time_scale(&mut self, scale: TimeScale) {
        self.scale = scale;
    }

    /// Returns the sources, for those that are refilled while the merge runs.
    pub(crate) fn sources(&mut self) -> impl Iterator<Item = &mut S> {
        self.streams.iter_mut().map(|stream| &mut stream.pages)
    }

    /// Polls sources again that had reached their end.
    pub(crate) fn resume(&mut self) {
        self.fresh = false;
    }

    /// Advances to the record that is next in time and at most `limit`. Returns its stream.
    #[inline]
    fn advance(&mut self, limit: u64) -> Result<Option<usize>, TraceError> {
        if let Some(at) = self.current.take() {
            self.streams[at].step(self.layout)?;
            if self.streams[at].cursor.is_some() {
                let next = (self.streams[at].record.ts, at);
                // Runs of records from the same CPU are common: the heap is bypassed.
                if self.fresh
                    && next.0 <= limit
                    && self.waiting.peek().is_none_or(|Reverse(first)| next <= *first)
                {
                    self.current = Some(at);
                    return Ok(self.current);
                }
                self.waiting.push(Reverse(next));
            }
        }
        if !self.fresh {
            self.fresh = true;
            for (at, stream) in
                self.streams.iter_mut().enumerate().filter(|(_, stream)| stream.cursor.is_none())
            {
                stream.step(self.layout)?;
                if stream.cursor.is_some() {
                    self.waiting.push(Reverse((stream.record.ts, at)));
                }
            }
        }
        if self.waiting.peek().is_some_and(|Reverse((ts, _))| *ts <= limit) {
            self.current = self.waiting.pop().map(|Reverse((_, at))| at);
        }
        Ok(self.current)
    }
}

impl<S: SubBufferSource> Stream<S> {
    #[inline]
    fn data(&self) -> &[u8] {
        self.page.get(self.record.start..self.record.end).unwrap_or_default()
    }

    /// Advances to the next record; at the end `cursor` is `None`.
    #[inline]
    fn step(&mut self, layout: SubBufferLayout) -> Result<(), TraceError> {
        loop {
            if let Some(cursor) = &mut self.cursor {
                match cursor.next_record(&self.page) {
                    Ok(Some(record)) => {
                        self.record = record;
                        self.after_gap = std::mem::take(&mut self.gap);
                        return Ok(());
                    }
                    Ok(None) => {}
                    Err(error) => self.damaged(&error),
                }
                self.cursor = None;
            }
            if !self.pages.next_sub_buffer(&mut self.page)? {
                return Ok(());
            }
            match SubBufferCursor::new(&self.page, layout) {
                Ok(cursor) => {
                    self.gap |= cursor.missed() != MissedEvents::No;
                    match cursor.missed() {
                        MissedEvents::No => {}
                        MissedEvents::Count(count) => {
                            self.losses.events = self.losses.events.saturating_add(count)
                        }
                        MissedEvents::Unknown => self.losses.gaps += 1,
                    }
                    self.cursor = Some(cursor);
                }
                Err(error) => self.damaged(&error),
            }
        }
    }

    #[cold]
    fn damaged(&mut self, error: &crate::ring::SubBufferError) {
        self.gap = true;
        self.losses.damaged_sub_buffers += 1;
        self.losses.first_damage.get_or_insert_with(|| error.to_string());
    }
}
