//! Packing threads serve all parts: the disk that gives buffers back soonest gets the next batch.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use pagehaul_run::Progress;

use super::share::Share;
use crate::Ended;
use crate::batch::BATCH_PAGES;
use crate::pace::Pace;
use crate::pack::Batch;

/// What a packing thread does next.
pub(super) enum Step {
    /// Pack a batch.
    Pack(Task),
    /// Tell this part's writer that nothing more comes for now: what it gathered has to get to its file, because only then
    /// is it certain that nobody has to take it over.
    Flush(usize),
}

/// A batch to be packed: the pages of `unit` but for the first `skip`, as many as a batch holds.
pub(super) struct Task {
    pub(super) part: usize,
    pub(super) unit: usize,
    /// Kept pages of the unit.
    pub(super) pages: u64,
    pub(super) skip: usize,
    pub(super) batch: Batch,
}

/// All batches, and who may have the next.
pub(super) struct Pool<'a> {
    state: Mutex<State>,
    changed: Condvar,
    progress: &'a Progress,
}

struct State {
    share: Share,
    flows: Vec<Flow>,
    free: Vec<Batch>,
    buffers: usize,
    stop: Option<Ended>,
}

/// The batches of one part.
#[derive(Default)]
struct Flow {
    /// The unit being cut into batches, its pages, and how many of them are handed out.
    unit: Option<(usize, u64, usize)>,
    /// The next batch's number.
    sequence: u64,
    /// Batches handed out and not given back.
    in_flight: usize,
    /// Its writer was told to flush, and did not settle anything since.
    asked: bool,
    /// It failed, and it is not known yet what of it remains.
    closing: bool,
}

impl<'a> Pool<'a> {
    pub(super) fn new(share: Share, buffers: usize, progress: &'a Progress) -> Self {
        let flows = (0..share.parts()).map(|_| Flow::default()).collect();
        let free = (0..buffers).map(|_| Batch::new()).collect();
        let state = State { share, flows, free, buffers, stop: None };
        Self { state: Mutex::new(state), changed: Condvar::new(), progress }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something that a thread may wait for.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    /// Waits for something to do; none when all is done, or the capture ends.
    pub(super) fn next(&self, pace: &Pace) -> Option<Step> {
        let mut state = self.lock();
        loop {
            if state.stop.is_some() || self.progress.is_cancelled() {
                self.changed.notify_all();
                return None;
            }
            if let Some(step) = state.next() {
                return Some(step);
            }
            if state.is_done() {
                self.changed.notify_all();
                return None;
            }
            let since = Instant::now();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            pace.waited(since.elapsed());
        }
    }

    /// Takes a batch back.
    pub(super) fn give_back(&self, part: usize, batch: Batch) {
        self.change(|state| {
            state.flows[part].in_flight -= 1;
            state.free.push(batch);
        });
    }

    /// How many batches of a part are on their way.
    pub(super) fn in_flight(&self, part: usize) -> usize {
        self.lock().flows[part].in_flight
    }

    /// The first `units` of what a part took are in its file.
    pub(super) fn settle(&self, part: usize, units: usize) {
        self.change(|state| {
            (0..units).for_each(|_| state.share.settle(part));
            state.flows[part].asked = false;
        });
    }

    /// A part gets no more batches, and what is not in its file is there for others.
    pub(super) fn close(&self, part: usize) {
        self.change(|state| {
            state.share.close(part, 0);
            state.flows[part].unit = None;
            state.flows[part].closing = true;
        });
    }

    /// What is in the file of a closed part stays, or is lost too.
    pub(super) fn closed(&self, part: usize, kept: bool) {
        self.change(|state| {
            if !kept {
                state.share.give_up(part);
            }
            state.flows[part].closing = false;
        });
    }

    /// Nothing more is handed out; a part keeps what is in its file and `begun` units more.
    pub(super) fn end(&self, part: usize, begun: usize) {
        self.lock().share.close(part, begun);
    }

    /// Ends the capture; the first reason counts.
    pub(super) fn stop(&self, why: Ended) {
        self.change(|state| {
            state.stop.get_or_insert(why);
        });
    }

    /// Whether the capture ended before all was done.
    pub(super) fn stopped(&self) -> Option<Ended> {
        let stop = self.lock().stop.clone();
        stop.or_else(|| self.progress.is_cancelled().then_some(Ended::Stopped))
    }

    /// Looks at who has what.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Share) -> T) -> T {
        look(&self.lock().share)
    }

    /// Who has what, at the end.
    pub(super) fn into_share(self) -> Share {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).share
    }
}

impl State {
    fn has_work(&self, part: usize) -> bool {
        self.share.is_open(part) && (self.flows[part].unit.is_some() || self.share.has_work(part))
    }

    fn next(&mut self) -> Option<Step> {
        let working: Vec<usize> = (0..self.flows.len()).filter(|&part| self.has_work(part)).collect();
        // No disk, however slow, holds more than its share of the buffers while others have use for them.
        let most = (self.buffers / working.len().max(1)).max(1);
        let hungriest = working
            .into_iter()
            .filter(|&part| self.flows[part].in_flight < most)
            .min_by_key(|&part| (self.flows[part].in_flight, self.flows[part].sequence));
        if let Some(part) = hungriest
            && let Some(batch) = self.free.pop()
        {
            return self.task(part, batch).map(Step::Pack);
        }
        let idle = |part: &usize| {
            let flow = &self.flows[*part];
            flow.in_flight == 0 && !flow.asked && self.share.is_unsettled(*part) && !self.has_work(*part)
        };
        let part = (0..self.flows.len()).find(idle)?;
        self.flows[part].asked = true;
        Some(Step::Flush(part))
    }

    fn task(&mut self, part: usize, mut batch: Batch) -> Option<Task> {
        let flow = &mut self.flows[part];
        let (unit, pages, skip) = match flow.unit {
            Some(unit) => unit,
            None => match self.share.take(part) {
                Some(unit) => (unit, self.share.units().kept(unit..unit + 1), 0),
                None => {
                    self.free.push(batch);
                    return None;
                }
            },
        };
        let next = skip + BATCH_PAGES;
        flow.unit = (next < pages as usize).then_some((unit, pages, next));
        batch.sequence = flow.sequence;
        flow.sequence += 1;
        flow.in_flight += 1;
        flow.asked = false;
        Some(Task { part, unit, pages, skip, batch })
    }

    /// Whether no thread will be needed again: nothing is to be taken, and nothing can come back.
    fn is_done(&self) -> bool {
        let parts = 0..self.flows.len();
        parts.into_iter().all(|part| {
            let flow = &self.flows[part];
            !flow.closing && flow.in_flight == 0 && !self.share.is_unsettled(part) && !self.has_work(part)
        })
    }
}
