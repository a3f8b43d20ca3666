//! Captures on a simulated clock, to simulated disks.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use pagehaul_output::{FinishBound, WriteMeter};
use proptest::prelude::*;

use super::Deadline;
use crate::options::Limits;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// As in `SingleFileWriter` and `WriteBehind`.
const CHUNK: u64 = 2 * MIB;
const IN_FLIGHT: usize = 4;
const TABLE_CHUNK: u64 = 256 * KIB;
const BUFFERS: usize = 16;

/// A disk. Times are seconds since the capture began.
#[derive(Debug, Clone)]
struct Disk {
    /// Bytes per second at first.
    speed: f64,
    /// From when on it is slower, and how many times.
    slower: (f64, f64),
    /// How long nothing is written at first.
    first_stall: f64,
    /// How long it pauses again and again, and how long it writes between two pauses.
    pauses: Option<(f64, f64)>,
    sync: f64,
}

impl Disk {
    fn steady(speed: f64) -> Self {
        Self { speed, slower: (f64::MAX, 1.0), first_stall: 0.0, pauses: None, sync: 0.005 }
    }

    /// Returns when what takes `seconds` from `start` on is done.
    fn stalled(&self, start: f64, seconds: f64) -> f64 {
        let mut now = start.max(self.first_stall);
        let Some((pause, between)) = self.pauses else { return now + seconds };
        // Each period but the first begins with its pause.
        let mut left = seconds;
        let mut period = (now / (pause + between)).floor();
        loop {
            let begin = period * (pause + between);
            if period > 0.0 {
                now = now.max(begin + pause);
            }
            let room = (begin + pause + between - now).max(0.0);
            if left <= room {
                return now + left;
            }
            left -= room;
            period += 1.0;
        }
    }

    /// Returns when a write of `bytes` that starts at `start` is done.
    fn write(&self, start: f64, bytes: u64) -> f64 {
        let speed = if start < self.slower.0 { self.speed } else { self.speed / self.slower.1 };
        self.stalled(start, 0.0002 + bytes as f64 / speed)
    }
}

#[derive(Debug, Clone)]
struct Capture {
    limit: f64,
    /// Seconds of the scan without its writes.
    scan: f64,
    /// Seconds to pack a batch, and bytes of one.
    batch: (f64, u64),
    batches: u64,
    /// Bytes of both bitmaps.
    bitmaps: u64,
    /// Every so many steps, the processor is away for so long.
    away: (u64, f64),
    disk: Disk,
}

/// How a capture ended.
#[derive(Debug)]
struct End {
    /// When the last batch was taken, and when the limit was checked before that.
    stop: f64,
    checked: f64,
    /// When packing began, and when enough syncs were measured.
    begun: f64,
    proven: Option<f64>,
    end: f64,
    batches: u64,
    complete: bool,
}

/// Writes of the thread behind, oldest first: start and end.
struct Behind {
    writes: VecDeque<(f64, f64)>,
    last: f64,
    flushed: u64,
}

impl Behind {
    /// Retires what is done at `now`.
    fn retire(&mut self, now: f64, meter: &WriteMeter) {
        while let Some((start, end)) = self.writes.pop_front_if(|(_, end)| *end <= now) {
            meter.wrote(CHUNK as usize, 0, seconds(end - start));
            self.flushed += CHUNK;
        }
    }

    /// Adds a chunk, and returns when there is room for the next.
    fn submit(&mut self, now: f64, disk: &Disk, meter: &WriteMeter) -> f64 {
        self.retire(now, meter);
        let mut now = now;
        if self.writes.len() == IN_FLIGHT {
            now = self.writes[0].1;
            self.retire(now, meter);
        }
        let start = self.last.max(now);
        self.last = disk.write(start, CHUNK);
        self.writes.push_back((start, self.last));
        now
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.max(0.0))
}

impl Capture {
    fn on(disk: Disk, limit: f64) -> Self {
        Self {
            limit,
            scan: 0.2,
            batch: (0.002, 400 * KIB),
            batches: u64::MAX,
            bitmaps: 256 * KIB,
            away: (u64::MAX, 0.0),
            disk,
        }
    }

    fn tables(&self, batches: u64) -> u64 {
        self.bitmaps + 4 * KIB + batches * 256 * 24
    }

    fn run(&self) -> End {
        let start = Instant::now();
        let at = |time: f64| start + seconds(time);
        let disk = &self.disk;
        let limits = Limits { time: Some(seconds(self.limit)), size: None };
        let meter = WriteMeter::default();
        let mut now = 0.0;
        for _ in 0..self.bitmaps / TABLE_CHUNK {
            let end = disk.write(now, TABLE_CHUNK);
            meter.wrote(TABLE_CHUNK as usize, 0, seconds(end - now));
            now = end;
        }
        now += self.scan;
        let (packing, begun, mut proven) = (at(now), now, None);
        let mut deadline = Deadline {
            limits,
            start,
            checked: packing,
            longest_step: Duration::ZERO,
            saved: packing,
            buffered: 0,
        };
        let mut behind = Behind { writes: VecDeque::new(), last: 0.0, flushed: 0 };
        let (mut ready, mut gathered) = (now, 0);
        let (mut saved, mut saved_end, mut checked) = (now, 0, now);
        let mut taken: VecDeque<f64> = VecDeque::new();
        let mut batches = 0;
        let bound = |behind: &Behind, batches, gathered: u64| FinishBound {
            bytes: self.tables(batches) + (behind.writes.len() as u64 * CHUNK + gathered).min(CHUNK),
            syncs: 4,
        };
        let stop = loop {
            if batches == self.batches {
                break None;
            }
            if taken.len() == BUFFERS {
                ready = ready.max(taken.pop_front().unwrap_or(0.0));
            }
            ready += self.batch.0;
            now = now.max(ready);
            if batches % self.away.0 == self.away.0 - 1 {
                now += self.away.1;
            }
            behind.retire(now, &meter);
            if meter.costs().syncs >= super::PROOF {
                proven = proven.or(Some(now));
            }
            if deadline.no_time(at(now), bound(&behind, batches, gathered), meter.costs()) {
                break Some(now);
            }
            checked = now;
            taken.push_back(now);
            batches += 1;
            gathered += self.batch.1;
            while gathered >= CHUNK {
                gathered -= CHUNK;
                now = behind.submit(now, disk, &meter);
            }
            behind.retire(now, &meter);
            let is_time = now - saved >= 1.0 || behind.flushed - saved_end >= 32 * MIB;
            if is_time && behind.flushed > saved_end {
                now = self.sync(now, &meter);
                now = self.short_write(now, &meter);
                (saved, saved_end) = (now, behind.flushed);
            }
        };
        let until = deadline.data_until(bound(&behind, batches, gathered), meter.costs()).unwrap();
        let until = (until - start).as_secs_f64();
        let in_time = |&(start, _): &(f64, f64)| start < until;
        let mut written = behind.writes.iter().all(in_time);
        now = behind.writes.iter().filter(|write| in_time(write)).fold(now, |now, (_, end)| now.max(*end));
        if now < until {
            now = disk.write(now, gathered);
        } else {
            written &= gathered == 0;
        }
        let complete = stop.is_none() && written;
        let stop = stop.unwrap_or(if complete { now } else { until });
        if !complete {
            let tables = self.tables(batches);
            for at in (0..tables).step_by(TABLE_CHUNK as usize) {
                now = disk.write(now, TABLE_CHUNK.min(tables - at));
            }
        }
        for _ in 0..4 {
            now = self.sync(now, &meter);
        }
        End { stop, checked, begun, proven, end: now, batches, complete }
    }

    fn sync(&self, now: f64, meter: &WriteMeter) -> f64 {
        let end = self.disk.stalled(now, self.disk.sync);
        meter.synced(seconds(end - now));
        end
    }

    fn short_write(&self, now: f64, meter: &WriteMeter) -> f64 {
        let end = self.disk.write(now, 24 * KIB);
        meter.wrote(24 << 10, 0, seconds(end - now));
        end
    }

    /// What may be left of the limit when a capture ends, unless more was measured to be needed.
    fn share(&self) -> f64 {
        (self.limit / 5.0).max(2.0)
    }

    /// Asserts that the capture did not end early without need: its last step and its end take a third of what was left, at
    /// least, unless the write in progress was nearly done.
    /// `pause` is how long each sync and each chunk may take longer, if all of those measured did.
    fn assert_not_early(&self, end: &End, pause: f64) {
        let left = self.limit - end.stop;
        let pauses = 4 + self.tables(end.batches).div_ceil(CHUNK);
        let needed =
            end.end - end.checked + self.disk.write(end.stop, CHUNK) - end.stop + pauses as f64 * pause;
        assert!(
            end.complete || left <= self.share() + 1e-6 || needed >= left / 3.0,
            "{left} s were left, and {needed} s were needed: {end:?} {self:?}"
        );
    }

    /// Asserts that the capture ended in time, if it could: its last step and its end took no more than there is for them once
    /// packing has begun, and once enough was measured. It may be `allowed` seconds late.
    fn assert_in_time(&self, end: &End, allowed: f64) {
        let least = (self.limit / 5.0).min(2.0).min(self.limit - end.begun);
        let left = end.proven.map_or(least, |proven| least.max((self.limit / 2.0).min(self.limit - proven)));
        let used = end.end - end.checked;
        assert!(
            end.end <= self.limit + allowed || used > left,
            "{} s late: {end:?} {self:?}",
            end.end - self.limit
        );
    }
}

#[test]
fn a_first_write_that_stalls_costs_nothing_but_its_time() {
    for stall in [0.6, 1.0, 3.0, 5.0] {
        let disk = Disk { first_stall: 0.2 + stall, ..Disk::steady(200e6) };
        // Two seconds of work, and hours of it.
        let short = Capture { batches: 1000, ..Capture::on(disk.clone(), 10.0) };
        let end = short.run();
        assert!(end.complete && end.end <= 10.0, "{end:?}");
        let long = Capture::on(disk, 10.0);
        let end = long.run();
        assert!(!end.complete && end.stop >= 8.0, "{end:?}");
        long.assert_in_time(&end, 0.0);
    }
}

#[test]
fn a_loaded_processor_is_no_slow_disk() {
    // 24 busy loops on two processors.
    let capture =
        Capture { batch: (0.05, 400 * KIB), away: (3, 0.3), ..Capture::on(Disk::steady(300e6), 10.0) };
    let end = capture.run();
    assert!(end.stop >= 8.0, "{end:?}");
    capture.assert_in_time(&end, 0.0);
}

#[test]
fn a_slow_disk_gets_the_time_it_needs() {
    // 3 MiB take 3 s at the end.
    let capture = Capture { bitmaps: 3 * MIB, ..Capture::on(Disk::steady(1e6), 20.0) };
    let end = capture.run();
    assert!(end.stop < 18.0 && end.batches > 0, "{end:?}");
    capture.assert_in_time(&end, 0.0);
    capture.assert_not_early(&end, 0.0);
}

fn disks() -> impl Strategy<Value = Disk> {
    let speed = (5.5f64..9.3).prop_map(|power| 10f64.powf(power));
    let first = prop_oneof![Just(0.0), Just(0.6), 0.0..4.0f64];
    (speed, first, 0.0..0.1f64).prop_map(|(speed, first, sync)| Disk {
        first_stall: first,
        sync,
        ..Disk::steady(speed)
    })
}

fn captures(disks: impl Strategy<Value = Disk>) -> impl Strategy<Value = Capture> {
    let batch = ((-3.3f64..-1.0).prop_map(|power| 10f64.powf(power)), 1..=MIB);
    let away = prop_oneof![Just((u64::MAX, 0.0)), (1..20u64, 0.0..0.4f64)];
    let bitmaps = prop_oneof![Just(64 * KIB), 64 * KIB..64 * MIB];
    let batches = prop_oneof![Just(u64::MAX), 1..10_000u64];
    (disks, 1.0..90.0f64, 0.0..0.3f64, batch, batches, bitmaps, away).prop_map(
        |(disk, limit, scan, batch, batches, bitmaps, away)| Capture {
            limit,
            scan: scan * limit,
            batch,
            batches,
            bitmaps,
            away,
            disk,
        },
    )
}

/// Disks that pause again and again, for up to a second, and at most half of the time: of the last writes, the only one that
/// met a pause does not count, and what is left is taken twice.
fn bursty_disks() -> impl Strategy<Value = Disk> {
    (disks(), 0.1..1.0f64, 1.0..10.0f64)
        .prop_map(|(disk, pause, times)| Disk { pauses: Some((pause, times * pause)), ..disk })
}

/// Disks that are slower from some time on.
fn slowing_disks() -> impl Strategy<Value = Disk> {
    (disks(), 0.0..60.0f64, prop_oneof![1.0..2.0f64, 2.0..20.0f64])
        .prop_map(|(disk, at, times)| Disk { slower: (at, times), ..disk })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn captures_end_in_time_and_not_early(capture in captures(disks())) {
        let end = capture.run();
        capture.assert_not_early(&end, 0.0);
        capture.assert_in_time(&end, 0.0);
    }

    #[test]
    fn captures_to_bursty_disks_end_in_time_and_not_early(capture in captures(bursty_disks())) {
        let end = capture.run();
        let pause = capture.disk.pauses.map_or(0.0, |(pause, _)| pause);
        capture.assert_not_early(&end, pause);
        capture.assert_in_time(&end, 2.0 * pause);
    }

    #[test]
    fn captures_to_slowing_disks_end_in_time_and_not_early(capture in captures(slowing_disks())) {
        let end = capture.run();
        capture.assert_not_early(&end, 0.0);
        // The limit holds for a disk that is half as fast as it was measured. For any other, at least nothing but the end is
        // written after it.
        if capture.disk.slower.1 <= 2.0 {
            capture.assert_in_time(&end, 0.0);
        }
        prop_assert!(end.checked <= capture.limit || end.batches == 0);
    }
}
