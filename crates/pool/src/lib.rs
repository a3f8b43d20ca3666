//! Worker pools that deliver their results in order, with bounded memory.
//!
//! Workers take numbered pieces of [`Work`] and finish them in any order. A [`Lane`] delivers the results in the order
//! of their numbers. Buffers carry the work to the workers and the results to the lane, and go back: there are as many
//! as the caller allocates, and no more are ever made.
//!
//! **A worker takes a buffer first, then the next number.** So the lowest number that is not delivered yet always has
//! its buffer, the lane that waits for it gives the others back, and a pool cannot run out of buffers however few there
//! are.
//!
//! [`ordered`] and [`in_lanes`] are for work that is there; [`Workers`] is for threads that have to exist before their work
//! does. Dropping the lanes ends the workers. A system that cannot create all threads gets fewer, in [`ordered`] none: the
//! calling thread does the work then.

mod spawn;

use std::collections::BTreeMap;
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};

pub use spawn::{map_numbers, spawn_up_to};

/// What a pool works on.
pub trait Work: Sync {
    /// Carries a piece of work to a worker, and its result to the lane.
    type Buffer: Send;
    /// The state of one worker thread.
    type Worker: Default;
    /// Why a piece of work failed.
    type Error: Send;

    /// Puts the next piece of work into `buffer`. Returns `None` once there is no more; blocks if there may be more
    /// later. The numbers of a lane start at 0 and have no gaps.
    fn next(&self, buffer: &mut Self::Buffer) -> Option<Ticket>;

    /// Does the piece of work in `buffer`, and leaves the result there. The lane delivers an error in its turn.
    fn run(&self, worker: &mut Self::Worker, buffer: &mut Self::Buffer) -> Result<(), Self::Error>;

    /// Called after a worker waited for a free buffer.
    fn waited_for_buffer(&self, _time: Duration) {}

    /// Called when a worker panics, to end the others, which may be blocked in [`next`](Self::next).
    fn abort(&self) {}
}

/// The place of a piece of work among all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The lane that delivers the result.
    pub lane: usize,
    /// Its number in the lane.
    pub number: u64,
}

impl Ticket {
    /// Number `number` of the only lane.
    pub fn number(number: u64) -> Self {
        Self { lane: 0, number }
    }
}

/// Delivers the results of one lane in order.
pub struct Lane<W: Work> {
    finished: Receiver<Finished<W>>,
    free: Sender<W::Buffer>,
    /// Results that are ahead of the next number.
    early: BTreeMap<u64, Done<W>>,
    next: u64,
    /// The buffer that the caller has.
    delivered: Option<W::Buffer>,
}

struct Done<W: Work> {
    buffer: W::Buffer,
    result: Result<(), W::Error>,
}

enum Finished<W: Work> {
    Done(u64, Done<W>),
    /// A worker panicked; its result will never come.
    Panicked,
}

impl<W: Work> Lane<W> {
    /// Blocks until the next result is there. Returns `None` after the last. The buffer of the previous result goes
    /// back to the workers.
    pub fn recv(&mut self) -> Option<Result<&mut W::Buffer, W::Error>> {
        self.recycle();
        loop {
            if let Some(Done { buffer, result }) = self.early.remove(&self.next) {
                self.next += 1;
                let buffer = self.delivered.insert(buffer);
                return Some(result.map(|()| buffer));
            }
            match self.finished.recv() {
                Ok(Finished::Done(number, done)) => {
                    self.early.insert(number, done);
                }
                Ok(Finished::Panicked) | Err(_) => return None,
            }
        }
    }

    /// Gives the buffer of the last result back to the workers before the next one is asked for.
    pub fn recycle(&mut self) {
        if let Some(buffer) = self.delivered.take() {
            // Fails only when all workers have ended.
            let _ = self.free.send(buffer);
        }
    }
}

impl<W: Work> Drop for Lane<W> {
    fn drop(&mut self) {
        self.recycle();
        let unread = self.finished.try_iter().filter_map(|finished| match finished {
            Finished::Done(_, done) => Some(done),
            Finished::Panicked => None,
        });
        for done in std::mem::take(&mut self.early).into_values().chain(unread) {
            let _ = self.free.send(done.buffer);
        }
    }
}

/// Delivers the results of a pool with a single lane in order.
pub struct Results<'a, W: Work> {
    lane: Lane<W>,
    /// Does the work on the calling thread, if no worker could be created.
    inline: Option<(WorkerSide<'a, W>, W::Worker)>,
}

impl<W: Work> Results<'_, W> {
    /// Blocks until the next result is there. Returns `None` after the last. The buffer of the previous result goes
    /// back to the workers.
    pub fn recv(&mut self) -> Option<Result<&mut W::Buffer, W::Error>> {
        if let Some((side, worker)) = &mut self.inline {
            self.lane.recycle();
            if !side.step(worker) {
                self.inline = None;
            }
        }
        self.lane.recv()
    }
}

/// A worker's side of the lanes.
struct WorkerSide<'a, W: Work> {
    work: &'a W,
    free: Receiver<W::Buffer>,
    lanes: Vec<Sender<Finished<W>>>,
}

impl<W: Work> Clone for WorkerSide<'_, W> {
    fn clone(&self) -> Self {
        Self { work: self.work, free: self.free.clone(), lanes: self.lanes.clone() }
    }
}

impl<W: Work> WorkerSide<'_, W> {
    /// Does one piece of work. Returns false once there is no more, or its lane is gone.
    fn step(&self, worker: &mut W::Worker) -> bool {
        let Some(mut buffer) = self.buffer() else { return false };
        let Some(Ticket { lane, number }) = self.work.next(&mut buffer) else { return false };
        let result = self.work.run(worker, &mut buffer);
        self.lanes
            .get(lane)
            .is_some_and(|lane| lane.send(Finished::Done(number, Done { buffer, result })).is_ok())
    }

    fn buffer(&self) -> Option<W::Buffer> {
        self.free.try_recv().ok().or_else(|| {
            let since = Instant::now();
            let buffer = self.free.recv().ok();
            self.work.waited_for_buffer(since.elapsed());
            buffer
        })
    }
}

impl<W: Work> Drop for WorkerSide<'_, W> {
    fn drop(&mut self) {
        if thread::panicking() {
            // The result that is lost would be waited for without end.
            self.work.abort();
            for lane in &self.lanes {
                let _ = lane.send(Finished::Panicked);
            }
        }
    }
}

/// The threads of a pool that are created step by step, before there is work for them: [`Work::next`] blocks until there
/// is. The lanes end only once this is dropped.
pub struct Workers<'a, W: Work> {
    side: WorkerSide<'a, W>,
    name: &'a str,
    give: Sender<W::Buffer>,
    /// How many more workers the buffers allow. Each one keeps a buffer when it ends, and those that wait for one must
    /// not be left without.
    allowed: usize,
}

impl<'a, W: Work> Workers<'a, W> {
    /// A pool without a thread and without a lane. Its threads are to be called `name`.
    pub fn new(work: &'a W, name: &'a str, buffers: impl IntoIterator<Item = W::Buffer>) -> Self {
        let (give, free) = unbounded();
        // Cannot fail: the receiver is alive.
        let allowed = buffers.into_iter().map(|buffer| give.send(buffer)).filter(Result::is_ok).count();
        Self { side: WorkerSide { work, free, lanes: Vec::new() }, name, give, allowed }
    }

    /// Adds a lane. All lanes are to be added before the first thread is created.
    pub fn lane(&mut self) -> Lane<W> {
        let (sender, finished) = unbounded();
        self.side.lanes.push(sender);
        Lane { finished, free: self.give.clone(), early: BTreeMap::new(), next: 0, delivered: None }
    }

    /// Creates up to `count` more threads in `scope`. Returns how many the system and the buffers allowed.
    pub fn create<'scope>(&mut self, scope: &'scope Scope<'scope, '_>, count: usize) -> usize
    where
        'a: 'scope,
    {
        let created = spawn_up_to(scope, self.name, count.min(self.allowed), || worker(self.side.clone()));
        self.allowed -= created;
        created
    }
}

/// Works with up to `threads` threads called `name`, on the calling thread if there are none, and has `consume` take
/// the results in order. The pool ends with `consume`.
pub fn ordered<W: Work, R>(
    work: &W,
    name: &str,
    threads: usize,
    buffers: impl IntoIterator<Item = W::Buffer>,
    consume: impl FnOnce(&mut Results<'_, W>) -> R,
) -> R {
    let mut workers = Workers::new(work, name, buffers);
    let lane = workers.lane();
    thread::scope(|scope| {
        let created = workers.create(scope, threads);
        let inline = (created == 0).then(|| (workers.side, W::Worker::default()));
        consume(&mut Results { lane, inline })
    })
}

/// Works with up to `threads` threads called `name`, and has `consume` take the results of `lanes` lanes, each of which
/// may be taken by a thread of its own. `consume` is also given the number of threads, which is 0 if none could be
/// created.
pub fn in_lanes<W: Work, R>(
    work: &W,
    name: &str,
    threads: usize,
    buffers: impl IntoIterator<Item = W::Buffer>,
    lanes: usize,
    consume: impl FnOnce(Vec<Lane<W>>, usize) -> R,
) -> R {
    let mut workers = Workers::new(work, name, buffers);
    let lanes = (0..lanes).map(|_| workers.lane()).collect();
    thread::scope(|scope| {
        let created = workers.create(scope, threads);
        drop(workers);
        consume(lanes, created)
    })
}

fn worker<W: Work>(side: WorkerSide<'_, W>) -> impl FnOnce() + Send {
    move || {
        let mut worker = W::Worker::default();
        while side.step(&mut worker) {}
    }
}
