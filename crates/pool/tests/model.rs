//! The pool against a model: whatever threads do when, each lane delivers its numbers in order, once each.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};

use pagehaul_pool::{Ticket, Work, Workers, in_lanes, ordered};
use proptest::prelude::*;

/// Pieces of work with a lane, a delay, and whether they fail.
#[derive(Debug, Clone, Copy)]
struct Piece {
    lane: usize,
    yields: u8,
    fails: bool,
}

struct Model {
    pieces: Vec<Piece>,
    /// The next piece, and the next number of each lane.
    next: Mutex<(usize, Vec<u64>)>,
    /// Buffers that workers have.
    busy: AtomicUsize,
    most_busy: AtomicUsize,
    aborted: AtomicBool,
    panic_at: Option<usize>,
}

#[derive(Debug)]
struct Buffer {
    identity: usize,
    piece: usize,
    number: u64,
    done: bool,
}

impl Model {
    fn new(pieces: Vec<Piece>, lanes: usize) -> Self {
        Self {
            pieces,
            next: Mutex::new((0, vec![0; lanes])),
            busy: AtomicUsize::new(0),
            most_busy: AtomicUsize::new(0),
            aborted: AtomicBool::new(false),
            panic_at: None,
        }
    }

    /// The pieces of a lane, in order.
    fn lane(&self, lane: usize) -> Vec<usize> {
        (0..self.pieces.len()).filter(|&piece| self.pieces[piece].lane == lane).collect()
    }
}

impl Work for Model {
    type Buffer = Buffer;
    type Worker = usize;
    type Error = usize;

    fn next(&self, buffer: &mut Buffer) -> Option<Ticket> {
        let mut next = self.next.lock().unwrap();
        let piece = next.0;
        let lane = self.pieces.get(piece)?.lane;
        next.0 += 1;
        let number = next.1[lane];
        next.1[lane] += 1;
        *buffer = Buffer { piece, number, done: false, ..*buffer };
        self.most_busy.fetch_max(self.busy.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        Some(Ticket { lane, number })
    }

    fn run(&self, runs: &mut usize, buffer: &mut Buffer) -> Result<(), usize> {
        *runs += 1;
        let piece = self.pieces[buffer.piece];
        (0..piece.yields).for_each(|_| std::thread::yield_now());
        assert_ne!(self.panic_at, Some(buffer.piece), "on purpose");
        buffer.done = true;
        self.busy.fetch_sub(1, Ordering::SeqCst);
        if piece.fails { Err(buffer.piece) } else { Ok(()) }
    }

    fn abort(&self) {
        self.aborted.store(true, Ordering::SeqCst);
    }
}

fn buffers(count: usize) -> impl Iterator<Item = Buffer> {
    (0..count).map(|identity| Buffer { identity, piece: 0, number: 0, done: false })
}

/// Takes up to `most` results of a lane. Returns the pieces delivered, the first that failed last, and the identities
/// of the buffers seen.
macro_rules! take {
    ($lane:expr, $most:expr) => {{
        let (mut pieces, mut seen) = (Vec::new(), HashSet::new());
        while pieces.len() < $most
            && let Some(result) = $lane.recv()
        {
            match result {
                Ok(buffer) => {
                    assert!(buffer.done);
                    assert_eq!(buffer.number, pieces.len() as u64);
                    pieces.push(buffer.piece);
                    seen.insert(buffer.identity);
                }
                Err(piece) => {
                    pieces.push(piece);
                    break;
                }
            }
        }
        (pieces, seen)
    }};
}

/// What `take` should find.
fn expected(model: &Model, lane: usize, most: usize) -> Vec<usize> {
    let mut pieces = model.lane(lane);
    if let Some(failed) = pieces.iter().position(|&piece| model.pieces[piece].fails) {
        pieces.truncate(failed + 1);
    }
    pieces.truncate(most);
    pieces
}

fn pieces(lanes: usize) -> impl Strategy<Value = Vec<Piece>> {
    let piece = (0..lanes, 0u8..8, prop::bool::weighted(0.02));
    prop::collection::vec(piece.prop_map(|(lane, yields, fails)| Piece { lane, yields, fails }), 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn results_come_in_order_however_few_buffers_there_are(
        pieces in pieces(1), threads in 0usize..6, count in 1usize..9, most in prop_oneof![Just(usize::MAX), 0usize..40],
    ) {
        let model = Model::new(pieces, 1);
        let (found, seen) = ordered(&model, "model", threads, buffers(count), |lane| take!(lane, most));
        prop_assert_eq!(found, expected(&model, 0, most));
        prop_assert!(seen.len() <= count);
        prop_assert!(model.most_busy.load(Ordering::SeqCst) <= count);
    }

    #[test]
    fn each_lane_has_its_own_order(pieces in pieces(3), threads in 1usize..6, count in 1usize..9) {
        let model = Model::new(pieces, 3);
        let found = in_lanes(&model, "model", threads, buffers(count), 3, |lanes, created| {
            assert_eq!(created, threads.min(count));
            std::thread::scope(|scope| {
                let takers: Vec<_> = lanes
                    .into_iter()
                    // After a failure the lane still gives its buffers back.
                    .map(|mut lane| scope.spawn(move || {
                        let found = take!(lane, usize::MAX).0;
                        while lane.recv().is_some() {}
                        found
                    }))
                    .collect();
                takers.into_iter().map(|taker| taker.join().unwrap()).collect::<Vec<_>>()
            })
        });
        for (lane, found) in found.into_iter().enumerate() {
            prop_assert_eq!(found, expected(&model, lane, usize::MAX));
        }
    }
}

/// A model whose work comes later than the threads.
struct Later {
    model: Model,
    is_there: Mutex<bool>,
    came: Condvar,
}

impl Work for Later {
    type Buffer = Buffer;
    type Worker = usize;
    type Error = usize;

    fn next(&self, buffer: &mut Buffer) -> Option<Ticket> {
        drop(self.came.wait_while(self.is_there.lock().unwrap(), |is_there| !*is_there));
        self.model.next(buffer)
    }

    fn run(&self, runs: &mut usize, buffer: &mut Buffer) -> Result<(), usize> {
        self.model.run(runs, buffer)
    }
}

#[test]
fn threads_wait_for_their_work_and_never_outnumber_the_buffers() {
    let pieces = vec![Piece { lane: 0, yields: 1, fails: false }; 50];
    let later = Later { model: Model::new(pieces, 1), is_there: Mutex::new(false), came: Condvar::new() };
    let mut workers = Workers::new(&later, "model", buffers(3));
    let mut lane = workers.lane();
    let found = std::thread::scope(|scope| {
        assert_eq!((workers.create(scope, 1), workers.create(scope, 4)), (1, 2));
        drop(workers);
        *later.is_there.lock().unwrap() = true;
        later.came.notify_all();
        let found = take!(lane, usize::MAX).0;
        drop(lane);
        found
    });
    assert_eq!(found, (0..50).collect::<Vec<_>>());
}

#[test]
fn a_worker_that_panics_ends_the_pool() {
    let pieces = vec![Piece { lane: 0, yields: 1, fails: false }; 50];
    let model = Model { panic_at: Some(20), ..Model::new(pieces, 1) };
    let mut found = Vec::new();
    let run = AssertUnwindSafe(|| {
        ordered(&model, "model", 2, buffers(2), |lane| found = take!(lane, usize::MAX).0);
    });
    assert!(catch_unwind(run).is_err());
    assert!(found.len() <= 20 && model.aborted.load(Ordering::SeqCst));
}
