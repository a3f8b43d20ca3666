use std::collections::HashMap;

use serde::Serialize;

/// Upper bound of open calls per task; the outermost ones beyond it are counted as missed.
const MAX_DEPTH: usize = 1024;
/// Difference of the stack pointer between a function's return and its entry: on x86 the return address has
/// been popped.
const POPPED: u64 = if cfg!(target_arch = "x86_64") { 8 } else { 0 };

/// What could not be measured, and why.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Missed {
    /// Ends without a start: calls that began before tracing, or whose start was missed.
    pub ends_without_start: u64,
    /// Starts whose end was not seen: the kernel had no room to probe the return.
    pub starts_without_end: u64,
    /// CallTracker open at a gap in the events.
    pub open_at_gap: u64,
    /// CallTracker open when tracing ended.
    pub open_at_end: u64,
    /// CallTracker within a call of the same function by the same task. All of them are measured.
    pub nested: u64,
    /// CallTracker that the kernel's probes missed (`kprobe_profile`).
    pub probe_misses: u64,
    /// Start times and latencies that did not fit into a table.
    pub dropped: u64,
    /// Events lost because the kernel's buffers were full.
    pub lost_events: u64,
}

/// Open calls by task.
#[derive(Debug, Default)]
pub struct CallTracker {
    open: HashMap<u64, Vec<Call>>,
    missed: Missed,
}

#[derive(Debug, Clone, Copy)]
struct Call {
    function: u32,
    ts: u64,
    sp: Option<u64>,
}

/// Returns the key of a task. The idle tasks of all CPUs share PID 0, so that the CPU identifies them.
pub fn task(pid: i32, cpu: u32) -> u64 {
    if pid == 0 { 1 << 32 | u64::from(cpu) } else { u64::from(pid.cast_unsigned()) }
}

impl CallTracker {
    /// Processes a function's entry. `sp` is the stack pointer, if the event has it.
    pub fn enter(&mut self, task: u64, function: u32, ts: u64, sp: Option<u64>) {
        let calls = self.open.entry(task).or_default();
        if calls.len() >= MAX_DEPTH {
            // No task nests this deep: returns were missed.
            calls.remove(0);
            self.missed.starts_without_end += 1;
        }
        calls.push(Call { function, ts, sp });
    }

    /// Processes a function's return. Returns the latency if the entry was seen.
    ///
    /// With stack pointers, a call is identified by its stack frame: a missed return or a recursive call
    /// cannot pair the wrong events. Without, the innermost open call of the function is taken.
    pub fn leave(&mut self, task: u64, function: u32, ts: u64, sp: Option<u64>) -> Option<u64> {
        let Some(calls) = self.open.get_mut(&task) else {
            self.missed.ends_without_start += 1;
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
            self.missed.ends_without_start += 1;
            return None;
        };
        let call = calls[at];
        // Callees have returned already; their missed returns will not come.
        let stale = if sp.is_some() { calls.len() - at - 1 } else { 0 };
        self.missed.starts_without_end += stale as u64;
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

    /// Forgets open calls, because events were lost: their returns may be among them.
    pub fn forget(&mut self) {
        self.missed.open_at_gap += self.count();
        self.open.clear();
    }

    /// Returns what was missed since the last call, without open calls.
    pub(crate) fn take_missed(&mut self) -> Missed {
        std::mem::take(&mut self.missed)
    }

    /// Returns the number of open calls.
    pub fn count(&self) -> u64 {
        self.open.values().map(|calls| calls.len() as u64).sum()
    }
}

impl std::ops::AddAssign for Missed {
    fn add_assign(&mut self, other: Self) {
        self.ends_without_start += other.ends_without_start;
        self.starts_without_end += other.starts_without_end;
        self.open_at_gap += other.open_at_gap;
        self.open_at_end += other.open_at_end;
        self.nested += other.nested;
        self.probe_misses += other.probe_misses;
        self.dropped += other.dropped;
        self.lost_events += other.lost_events;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recursion_times_every_call() {
        let mut calls = CallTracker::default();
        calls.enter(7, 0, 100, Some(0x1000));
        calls.enter(7, 0, 110, Some(0xf00));
        assert_eq!(calls.leave(7, 0, 115, Some(0xf00 + POPPED)), Some(5));
        assert_eq!(calls.leave(7, 0, 150, Some(0x1000 + POPPED)), Some(50));
        assert_eq!(calls.take_missed(), Missed { nested: 1, ..Missed::default() });
        assert_eq!(calls.count(), 0);
    }

    #[test]
    fn a_missed_return_does_not_spoil_its_callers() {
        let mut calls = CallTracker::default();
        calls.enter(7, 0, 100, Some(0x1000));
        calls.enter(7, 1, 110, Some(0xf00));
        // The return of 1 is missed.
        assert_eq!(calls.leave(7, 0, 150, Some(0x1000 + POPPED)), Some(50));
        assert_eq!(calls.take_missed().starts_without_end, 1);
        // Another frame of the same function, whose entry was missed.
        calls.enter(7, 0, 200, Some(0x800));
        assert_eq!(calls.leave(7, 0, 210, Some(0x900 + POPPED)), None);
        assert_eq!(calls.take_missed().ends_without_start, 1);
        assert_eq!(calls.leave(7, 0, 220, Some(0x800 + POPPED)), Some(20));
    }

    #[test]
    fn tasks_and_idle_cpus_are_apart_and_losses_forget() {
        let mut calls = CallTracker::default();
        calls.enter(task(0, 0), 0, 1, None);
        calls.enter(task(0, 1), 0, 2, None);
        calls.enter(task(1, 1), 0, 3, None);
        assert_eq!(calls.leave(task(0, 1), 0, 10, None), Some(8));
        assert_eq!(calls.leave(task(0, 0), 0, 10, None), Some(9));
        calls.forget();
        assert_eq!(calls.leave(task(1, 1), 0, 10, None), None);
        assert_eq!(calls.take_missed().open_at_gap, 1);
    }

    #[test]
    fn endless_entries_do_not_take_endless_memory() {
        let mut calls = CallTracker::default();
        for ts in 0..10_000 {
            calls.enter(1, 0, ts, None);
        }
        assert_eq!(calls.count(), MAX_DEPTH as u64);
        assert_eq!(calls.take_missed().starts_without_end, 10_000 - MAX_DEPTH as u64);
    }
}
