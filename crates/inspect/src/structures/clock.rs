//! The time of the kernel: of its schedulers, and in ticks.

use pagehaul_btf::Fault;

use super::crash_notes::until_crash;
use crate::machine::Machine;

/// The latest time that any CPU's scheduler took (`rq.clock`), in nanoseconds.
pub(crate) fn scheduler_clock(machine: &Machine<'_>) -> Result<u64, Fault> {
    let mut latest = 0;
    for cpu in until_crash(machine)? {
        let queue = machine.space().object(machine.per_cpu("runqueues", cpu)?, "rq")?;
        latest = latest.max(queue.number("clock")?);
    }
    Ok(latest)
}

/// The time in ticks of the timer interrupt.
pub struct Ticks {
    /// `jiffies`.
    pub(crate) now: u64,
    per_second: u64,
}

impl Ticks {
    /// Reads the time, and finds how many ticks a second has.
    pub fn new(machine: &Machine<'_>) -> Result<Self, Fault> {
        let uptime = scheduler_clock(machine)? as f64 / 1e9;
        let now = machine.u64("jiffies_64")?;
        // BTF has no CONFIG_HZ: it is the one that makes both clocks agree. jiffies starts 300 s before 32 bits overflow.
        let error = |hz: &u64| ((now as f64 - (1_u64 << 32) as f64) / *hz as f64 + 300.0 - uptime).abs();
        let rates = [100, 250, 300, 1000].into_iter();
        let per_second = rates.min_by(|a, b| error(a).total_cmp(&error(b))).unwrap_or(250);
        Ok(Self { now, per_second })
    }

    /// Returns the seconds from `jiffies` until now, negative if it is in the future.
    pub(crate) fn seconds_since(&self, jiffies: u64) -> f64 {
        self.now.wrapping_sub(jiffies) as i64 as f64 / self.per_second as f64
    }

    /// Returns the milliseconds from `jiffies` until now; `None` if it is in the future, or before the kernel's first tick.
    pub fn milliseconds_since(&self, jiffies: u64) -> Option<u64> {
        // INITIAL_JIFFIES: 300 s before 32 bits overflow.
        let first = (1_u64 << 32) - 300 * self.per_second;
        let passed = self.now.checked_sub(jiffies).filter(|_| jiffies >= first)?;
        Some(u128::from(passed).saturating_mul(1000).div_euclid(self.per_second.into()) as u64)
    }
}
