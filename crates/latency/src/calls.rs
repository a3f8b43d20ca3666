use std::collections::HashMap;

use serde::Serialize;

/// Calls open in one task at most; deeper ones are counted as missed.
const DEEPEST: usize = 1024;
/// How much higher the stack pointer is just after a function returned than at its first instruction: on x86 the return
/// address has been popped.
const POPPED: u64 = if cfg!(target_arch = "x86_64") { 8 } else { 0 };

/// What could not be timed, and why.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Missed {
    /// Returns of calls that began before tracing did, or whose begin was lost.
    pub without_start: u64,
    /// Calls whose return was not seen: the kernel had no room to catch it.
    pub without_end: u64,
    /// Calls that may have been open where events were lost.
    pub around_losses: u64,
    /// Calls still open at the end.
    pub unfinished: u64,
    /// Calls inside another call of the same function by the same task. Each of them is timed.
    pub nested: u64,
    /// Calls the kernel did not let its probe see (`kprobe_profile`).
    pub probe_misses: u64,
    /// Durations and start times for which the kernel's tables had no room.
    pub full_maps: u64,
    /// Events the kernel lost because its buffers were full.
    pub lost_events: u64,
}

/// Calls of functions that began and did not end yet, by task.
#[derive(Debug, Default)]
pub struct Calls {
    open: HashMap<u64, Vec<Call>>,
    missed: Missed,
}

#[derive(Debug, Clone, Copy)]
struct Call {
    function: u32,
    ts: u64,
    sp: Option<u64>,
}

/// Where a task is: the idle tasks of all CPUs share the pid 0.
pub fn task(pid: i32, cpu: u32) -> u64 {
    if pid == 0 { 1 << 32 | u64::from(cpu) } else { u64::from(pid.cast_unsigned()) }
}

impl Calls {
    /// A function begins. `sp` is the stack pointer, where the event has it.
    pub fn enter(&mut self, task: u64, function: u32, ts: u64, sp: Option<u64>) {
        let calls = self.open.entry(task).or_default();
        if calls.len() >= DEEPEST {
            // Nobody calls this deep: their returns were missed.
            calls.remove(0);
            self.missed.without_end += 1;
        }
        calls.push(Call { function, ts, sp });
    }

    /// A function returns: how long it took, if its begin was seen.
    ///
    /// With stack pointers the call is found by its stack frame, so that a missed return, or one function within another,
    /// never pairs the wrong events. Without, the innermost open call of the function is taken.
    pub fn leave(&mut self, task: u64, function: u32, ts: u64, sp: Option<u64>) -> Option<u64> {
        let Some(calls) = self.open.get_mut(&task) else {
            self.missed.without_start += 1;
            return None;
        };
        let same = |call: &Call| {
            call.function == function
                && match (call.sp, sp) {
                    (Some(began), Some(ended)) => began.wrapping_add(POPPED) == ended,
                    _ => true,
                }
        };
        let Some(at) = calls.iter().rposition(same) else {
            self.missed.without_start += 1;
            return None;
        };
        let call = calls[at];
        // What the function called has returned before it; where that was not seen, it never will be.
        let stale = if sp.is_some() { calls.len() - at - 1 } else { 0 };
        self.missed.without_end += stale as u64;
        if sp.is_some() {
            calls.truncate(at);
        } else {
            calls.remove(at);
        }
        if calls.iter().any(|outer| outer.function == function) {
            self.missed.nested += 1;
        }
        if calls.is_empty() {
            self.open.remove(&task);
        }
        Some(ts.saturating_sub(call.ts))
    }

    /// Events were lost: what is open now may have ended unseen.
    pub fn forget(&mut self) {
        self.missed.around_losses += self.count();
        self.open.clear();
    }

    /// What was missed since the last time; calls that go on are not part of it.
    pub fn take_missed(&mut self) -> Missed {
        std::mem::take(&mut self.missed)
    }

    /// Calls open now.
    pub fn count(&self) -> u64 {
        self.open.values().map(|calls| calls.len() as u64).sum()
    }
}

impl std::ops::AddAssign for Missed {
    fn add_assign(&mut self, other: Self) {
        self.without_start += other.without_start;
        self.without_end += other.without_end;
        self.around_losses += other.around_losses;
        self.unfinished += other.unfinished;
        self.nested += other.nested;
        self.probe_misses += other.probe_misses;
        self.full_maps += other.full_maps;
        self.lost_events += other.lost_events;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recursion_times_every_call() {
        let mut calls = Calls::default();
        calls.enter(7, 0, 100, Some(0x1000));
        calls.enter(7, 0, 110, Some(0xf00));
        assert_eq!(calls.leave(7, 0, 115, Some(0xf00 + POPPED)), Some(5));
        assert_eq!(calls.leave(7, 0, 150, Some(0x1000 + POPPED)), Some(50));
        assert_eq!(calls.take_missed(), Missed { nested: 1, ..Missed::default() });
        assert_eq!(calls.count(), 0);
    }

    #[test]
    fn a_missed_return_does_not_spoil_its_callers() {
        let mut calls = Calls::default();
        calls.enter(7, 0, 100, Some(0x1000));
        calls.enter(7, 1, 110, Some(0xf00));
        // The return of 1 is not seen.
        assert_eq!(calls.leave(7, 0, 150, Some(0x1000 + POPPED)), Some(50));
        assert_eq!(calls.take_missed().without_end, 1);
        // Another frame of the same function: its begin was not seen.
        calls.enter(7, 0, 200, Some(0x800));
        assert_eq!(calls.leave(7, 0, 210, Some(0x900 + POPPED)), None);
        assert_eq!(calls.take_missed().without_start, 1);
        assert_eq!(calls.leave(7, 0, 220, Some(0x800 + POPPED)), Some(20));
    }

    #[test]
    fn tasks_and_idle_cpus_are_apart_and_losses_forget() {
        let mut calls = Calls::default();
        calls.enter(task(0, 0), 0, 1, None);
        calls.enter(task(0, 1), 0, 2, None);
        calls.enter(task(1, 1), 0, 3, None);
        assert_eq!(calls.leave(task(0, 1), 0, 10, None), Some(8));
        assert_eq!(calls.leave(task(0, 0), 0, 10, None), Some(9));
        calls.forget();
        assert_eq!(calls.leave(task(1, 1), 0, 10, None), None);
        assert_eq!(calls.take_missed().around_losses, 1);
    }

    #[test]
    fn endless_entries_do_not_take_endless_memory() {
        let mut calls = Calls::default();
        for ts in 0..10_000 {
            calls.enter(1, 0, ts, None);
        }
        assert_eq!(calls.count(), DEEPEST as u64);
        assert_eq!(calls.take_missed().without_end, 10_000 - DEEPEST as u64);
    }
}
