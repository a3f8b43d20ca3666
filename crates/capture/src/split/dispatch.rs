//! Which part gets the next batch: the one whose disk keeps up best.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use pagehaul_kdump::write::SplitUnit;
use pagehaul_machine::Pfn;
use pagehaul_pool::Ticket;
use pagehaul_run::Progress;

use super::plan::SplitPlan;
use crate::adaptive::AdaptiveLevel;
use pagehaul_run::Outcome;

/// What a worker does next, for one part.
#[derive(Debug, Clone, Copy)]
pub(super) enum Task {
    /// Pack a batch.
    Pack(BatchTask),
    /// Nothing more comes for now: the part's writer has to flush, because only then are its units certain not to be
    /// taken over by others.
    Flush,
}

/// The pages of a unit after the first `skip`, as many as a batch holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchTask {
    pub(super) part: usize,
    /// The first PFN of the unit.
    pub(super) first_pfn: Pfn,
    pub(super) unit: SplitUnit,
    pub(super) skip: usize,
}

/// Hands out the units of all parts, batch by batch.
pub(super) struct Dispatcher<'a> {
    state: Mutex<State>,
    changed: Condvar,
    progress: &'a Progress,
}

struct State {
    plan: SplitPlan,
    parts: Vec<PartState>,
    batch_pages: usize,
    buffers: usize,
    stop: Option<Outcome>,
}

#[derive(Default)]
struct PartState {
    /// The unit that is being cut into batches, and how many of its pages are handed out.
    unit: Option<(usize, usize)>,
    /// The next task's number.
    sequence: u64,
    /// Tasks that are not finished.
    in_flight: usize,
    /// Whether its writer was told to flush and has recorded nothing since.
    flushing: bool,
    /// Whether it failed, and it is not known yet what remains of it.
    closing: bool,
}

impl<'a> Dispatcher<'a> {
    pub(super) fn new(plan: SplitPlan, batch_pages: usize, buffers: usize, progress: &'a Progress) -> Self {
        let parts = (0..plan.parts()).map(|_| PartState::default()).collect();
        let state = State { plan, parts, batch_pages, buffers, stop: None };
        Self { state: Mutex::new(state), changed: Condvar::new(), progress }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes something that a worker may wait for.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    /// Blocks until there is a task. Returns `None` when everything is done, or the capture ends.
    pub(super) fn next(&self, level: &AdaptiveLevel) -> Option<(Task, Ticket)> {
        let mut state = self.lock();
        loop {
            if state.stop.is_some() || self.progress.is_cancelled() {
                self.changed.notify_all();
                return None;
            }
            if let Some(task) = state.next() {
                return Some(task);
            }
            if state.is_done() {
                self.changed.notify_all();
                return None;
            }
            let since = Instant::now();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            level.waited(since.elapsed());
        }
    }

    /// Ends a task of a part.
    pub(super) fn finish_task(&self, part: usize) {
        self.change(|state| state.parts[part].in_flight -= 1);
    }

    /// Returns how many tasks of a part are not finished.
    pub(super) fn in_flight(&self, part: usize) -> usize {
        self.lock().parts[part].in_flight
    }

    /// Records that the oldest `units` units of a part are in its file.
    pub(super) fn record(&self, part: usize, units: usize) {
        self.change(|state| {
            (0..units).for_each(|_| state.plan.record(part));
            state.parts[part].flushing = false;
        });
    }

    /// Hands out no more tasks for a part, and gives what is not in its file to the others.
    pub(super) fn close(&self, part: usize) {
        self.change(|state| {
            state.plan.close(part, 0);
            state.parts[part].unit = None;
            state.parts[part].closing = true;
        });
    }

    /// Ends the closing of a part. Without `kept` the pages in its file are lost as well, and other parts take them.
    pub(super) fn closed(&self, part: usize, kept: bool) {
        self.change(|state| {
            if !kept {
                state.plan.give_up(part);
            }
            state.parts[part].closing = false;
        });
    }

    /// Hands out nothing more; a part keeps what is in its file and `begun` units more.
    pub(super) fn end(&self, part: usize, begun: usize) {
        self.lock().plan.close(part, begun);
    }

    /// Ends the capture. The first reason counts.
    pub(super) fn stop(&self, why: Outcome) {
        self.change(|state| {
            state.stop.get_or_insert(why);
        });
    }

    /// Returns why the capture ended before everything was done, if it did.
    pub(super) fn stopped(&self) -> Option<Outcome> {
        let stop = self.lock().stop.clone();
        stop.or_else(|| self.progress.is_cancelled().then_some(Outcome::Cancelled))
    }

    /// Reads the plan.
    pub(super) fn with_plan<T>(&self, read: impl FnOnce(&SplitPlan) -> T) -> T {
        read(&self.lock().plan)
    }

    /// Returns the plan, at the end.
    pub(super) fn into_plan(self) -> SplitPlan {
        self.state.into_inner().unwrap_or_else(PoisonError::into_inner).plan
    }
}

impl State {
    fn has_work(&self, part: usize) -> bool {
        self.plan.is_open(part) && (self.parts[part].unit.is_some() || self.plan.has_work(part))
    }

    fn next(&mut self) -> Option<(Task, Ticket)> {
        let working: Vec<usize> = (0..self.parts.len()).filter(|&part| self.has_work(part)).collect();
        // No disk, however slow, holds more than its share of the buffers while others can use them.
        let most = (self.buffers / working.len().max(1)).max(1);
        let next = working
            .into_iter()
            .filter(|&part| self.parts[part].in_flight < most)
            .min_by_key(|&part| (self.parts[part].in_flight, self.parts[part].sequence));
        if let Some(part) = next {
            let task = self.batch(part)?;
            return Some((Task::Pack(task), self.ticket(part)));
        }
        let idle = |&part: &usize| {
            let state = &self.parts[part];
            let quiet = state.in_flight == 0 && !state.flushing && !self.has_work(part);
            quiet && self.plan.has_unrecorded(part)
        };
        let part = (0..self.parts.len()).find(idle)?;
        self.parts[part].flushing = true;
        Some((Task::Flush, self.ticket(part)))
    }

    fn batch(&mut self, part: usize) -> Option<BatchTask> {
        let (unit, skip) = match self.parts[part].unit {
            Some(unit) => unit,
            None => (self.plan.take(part)?, 0),
        };
        let units = self.plan.units();
        let split_unit = SplitUnit { rank: units.before(unit), pages: units.kept(unit..unit + 1) };
        let next = skip + self.batch_pages;
        self.parts[part].unit = (next < split_unit.pages as usize).then_some((unit, next));
        self.parts[part].flushing = false;
        let first_pfn = Pfn::new(units.pfns(&(unit..unit + 1)).start);
        Some(BatchTask { part, first_pfn, unit: split_unit, skip })
    }

    fn ticket(&mut self, part: usize) -> Ticket {
        let state = &mut self.parts[part];
        state.sequence += 1;
        state.in_flight += 1;
        Ticket { lane: part, number: state.sequence - 1 }
    }

    /// Returns whether no worker will be needed again: nothing can be taken, and nothing can come back.
    fn is_done(&self) -> bool {
        (0..self.parts.len()).all(|part| {
            let state = &self.parts[part];
            let quiet = !state.closing && state.in_flight == 0;
            quiet && !self.plan.has_unrecorded(part) && !self.has_work(part)
        })
    }
}
