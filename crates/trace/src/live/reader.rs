use std::collections::VecDeque;
use std::time::Duration;

use super::{CpuPipe, Instance};
use crate::comms::Comms;
use crate::error::TraceError;
use crate::event::Event;
use crate::format::Formats;
use crate::lost::Losses;
use crate::merge::{Merge, SubBufferSource};
use crate::source::EventSource;

/// Reads the enabled events of an instance in time order over all CPUs.
///
/// Each [`LiveReader::poll`] drains the kernel's buffers. [`EventSource::next_event`] then returns the events
/// up to the start of the poll: no CPU can add an earlier one. The instance's clock must be `mono`.
pub struct LiveReader {
    merge: Merge<Queue>,
    formats: Formats,
    comms: Comms,
    /// All events up to this time stamp have been read.
    limit: u64,
    started: bool,
    /// Upper bound of sub-buffers read per CPU in one poll.
    most: usize,
    /// Last field, so that the pipes are closed before the instance is removed: the kernel refuses to remove
    /// an instance in use.
    instance: Instance,
}

/// Sub-buffers that have been read but not decoded.
struct Queue {
    pipe: CpuPipe,
    pages: VecDeque<Vec<u8>>,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
}

impl SubBufferSource for Queue {
    fn next_sub_buffer(&mut self, page: &mut Vec<u8>) -> Result<bool, TraceError> {
        let Some(next) = self.pages.pop_front() else { return Ok(false) };
        self.spare.push(std::mem::replace(page, next));
        Ok(true)
    }
}

impl LiveReader {
    /// Prepares reading. Enable the events in `instance` first; tracing must be off.
    ///
    /// # Errors
    /// [`TraceError`] if formats or buffers cannot be read.
    pub fn new(instance: Instance) -> Result<Self, TraceError> {
        let formats = instance.formats()?;
        let layout = instance.layout()?;
        let mut queues = Vec::new();
        for cpu in instance.cpus()? {
            let pipe = instance.pipe(cpu, layout.sub_buffer_size)?;
            queues.push((cpu, Queue { pipe, pages: VecDeque::new(), spare: Vec::new() }));
        }
        let merge = Merge::new(queues, layout, &formats);
        // The capacity of a buffer, with the sub-buffers being read and written. Later events are left for
        // the next poll: if reads themselves are traced, draining would never end.
        let kib = instance.read("buffer_size_kb")?.trim().parse::<usize>().unwrap_or(1 << 20);
        let most = kib.saturating_mul(1024) / (layout.sub_buffer_size as usize).max(1) + 2;
        Ok(Self { merge, formats, comms: Comms::default(), limit: 0, started: false, most, instance })
    }

    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    /// Starts tracing.
    ///
    /// # Errors
    /// [`TraceError`] if the write fails.
    pub fn start(&mut self) -> Result<(), TraceError> {
        self.started = true;
        self.instance.write("tracing_on", "1")
    }

    /// Stops tracing. The next poll drains the buffers and returns false.
    ///
    /// # Errors
    /// [`TraceError`] if the write fails.
    pub fn stop(&mut self) -> Result<(), TraceError> {
        self.started = false;
        self.instance.write("tracing_on", "0")
    }

    /// Sleeps for `wait`, then drains the buffers. Returns false once tracing is stopped and the buffers are
    /// empty.
    ///
    /// # Errors
    /// [`TraceError`] if a buffer cannot be read.
    pub fn poll(&mut self, wait: Duration) -> Result<bool, TraceError> {
        if self.started {
            std::thread::sleep(wait);
            self.limit = monotonic();
        } else {
            self.limit = u64::MAX;
        }
        let mut any = false;
        for queue in self.merge.sources() {
            for _ in 0..self.most {
                let mut page = queue.spare.pop().unwrap_or_default();
                if !queue.pipe.read(&mut page)? {
                    queue.spare.push(page);
                    break;
                }
                queue.pages.push_back(page);
                any = true;
            }
        }
        self.merge.resume();
        if any {
            self.comms = Comms::parse(&self.instance.tracefs().read("saved_cmdlines")?);
        }
        Ok(any || self.started)
    }
}

impl EventSource for LiveReader {
    fn next_event(&mut self) -> Result<Option<Event<'_>>, TraceError> {
        self.merge.next_event(&self.formats, &self.comms, self.limit)
    }

    fn formats(&self) -> &Formats {
        &self.formats
    }

    fn losses(&self) -> Losses {
        self.merge.losses()
    }
}

/// Returns CLOCK_MONOTONIC in nanoseconds: the trace clock `mono`.
pub fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}
