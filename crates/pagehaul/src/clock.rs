//! The clock of a capture kernel.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pagehaul_elfcore::notes;
use pagehaul_vmcore::Source;
use rustix::time::{ClockId, Timespec, clock_gettime, clock_settime};

/// The memory of the crashed kernel, in its capture kernel only.
const VMCORE: &str = "/proc/vmcore";
/// A clock that is behind by less is left alone.
const SKEW: Duration = Duration::from_secs(60);

/// Sets the clock of a capture kernel that is behind the crash, which the clock of the crashed kernel dates: certificates of
/// servers are not valid yet in 1970, where a machine without a battery begins.
pub(crate) fn correct(source: &Source) {
    if source.path() != Path::new(VMCORE) {
        return;
    }
    let crash = notes::vmcoreinfo_value(source.memory().notes(), "CRASHTIME");
    let Some(crash) = crash.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs) else { return };
    let boot = clock_gettime(ClockId::Boottime);
    let since = Duration::from_secs(boot.tv_sec.try_into().unwrap_or(0));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let Some(time) = later(now, crash + since) else { return };
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: 0 };
    match clock_settime(ClockId::Realtime, time) {
        Ok(()) => tell!("pagehaul: the clock was behind the crash; it is set to the time of the crash"),
        Err(error) => tell!("pagehaul: the clock is behind the crash and cannot be set: {error}"),
    }
}

/// Returns the time to set, if the clock is behind it.
fn later(now: Duration, crash: Duration) -> Option<Duration> {
    (crash > now + SKEW).then_some(crash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_only_set_forward() {
        let at = Duration::from_secs;
        assert_eq!(later(at(631_152_000), at(1_780_000_000)), Some(at(1_780_000_000)));
        assert_eq!(later(at(1_780_000_000), at(1_780_000_030)), None);
        assert_eq!(later(at(1_780_000_000), at(631_152_000)), None);
    }
}
