use pagehaul_trace::{Origin, TraceInfo};

use crate::counters::VmstatDelta;
use crate::decode::Decoder;
use crate::model::{Model, Pages, Reclaimer, ReclaimerStats};

/// Milliseconds of nanoseconds.
pub(super) fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

/// One run of the command, or the whole trace if there was none.
pub(super) struct Sample {
    pub(super) model: Model,
    pub(super) vmstat: Option<VmstatDelta>,
    /// Seconds of CPU in user mode and in the kernel.
    pub(super) cpu: Option<(f64, f64)>,
    /// `cpu` is that of the whole machine.
    pub(super) cpu_of_machine: bool,
    pub(super) elapsed_s: f64,
}

impl Sample {
    pub(super) fn stats(&self, reclaimer: Reclaimer) -> ReclaimerStats {
        self.model.by_reclaimer.get(&reclaimer).cloned().unwrap_or_default()
    }

    /// Nanoseconds that tasks were in one kind of reclaim.
    pub(super) fn stalled_ns(&self, reclaimer: Reclaimer) -> u64 {
        self.model.by_reclaimer.get(&reclaimer).map_or(0, |stats| stats.intervals.ns)
    }

    /// Nanoseconds that all kswapds were awake.
    pub(super) fn kswapd_ns(&self) -> u64 {
        self.model.kswapd.values().fold(0, |sum, kswapd| sum.saturating_add(kswapd.awake_ns))
    }
}

/// What decides whether a figure is available.
pub(super) struct Context {
    pub(super) decoder: Decoder,
    origin: Origin,
    release: Option<(u32, u32)>,
    pub(super) mglru: Option<bool>,
    /// The trace has no page of a list, though the kernel counted some.
    pub(super) lru_untraced: bool,
}

impl Context {
    pub(super) fn new(
        info: &TraceInfo,
        decoder: Decoder,
        whole: &Model,
        vmstat: Option<&VmstatDelta>,
    ) -> Self {
        let setting = info.machine.settings.get("/sys/kernel/mm/lru_gen/enabled");
        // Bit 0 is the switch; the kernel prints hexadecimal.
        let switched = setting.and_then(|text| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok());
        let seen = whole.completeness.mglru_seen.then_some(true);
        // A kernel without the file has no MGLRU.
        let absent = (info.origin == Origin::Recording).then_some(false);
        let mglru = switched.map(|bits| bits & 1 != 0).or(seen).or(absent);
        let pages: u64 =
            whole.by_reclaimer.values().map(|stats| stats.all().scanned + stats.all().taken).sum();
        let counters = ["pgscan_direct", "pgscan_kswapd", "pgscan_anon", "pgscan_file"];
        let counted = vmstat.and_then(|vmstat| vmstat.sum(&counters)).unwrap_or(0);
        Self {
            decoder,
            origin: info.origin,
            release: info.machine.release.as_deref().and_then(release),
            mglru,
            lru_untraced: mglru == Some(true) && pages == 0 && counted > 0,
        }
    }

    /// Returns the pages scanned as `/proc/vmstat` counts them.
    pub(super) fn scanned(&self, pages: Pages) -> u64 {
        pages.vmstat_scanned(self.mglru == Some(true))
    }

    /// Returns why events are unavailable, if they are.
    pub(super) fn missing(&self, events: &[&str]) -> Option<String> {
        let missing = events.iter().find(|event| !self.decoder.has(event))?;
        match self.origin {
            Origin::Recording | Origin::Live => Some(format!("this kernel has no event {missing}")),
            // Text holds what happened, not what could have.
            Origin::Text => None,
            Origin::TraceDat(_) => Some(format!("the trace has no event {missing}")),
        }
    }

    /// Returns why all of several events are unavailable, if they are.
    pub(super) fn missing_any(&self, events: &[&str]) -> Option<String> {
        if events.iter().any(|event| self.decoder.has(event)) { None } else { self.missing(&events[..1]) }
    }

    /// Returns why an event of the LRU lists is unavailable, if it is: MGLRU of older kernels has none.
    pub(super) fn missing_lru(&self, event: &str) -> Option<String> {
        let untraced = self.lru_untraced.then(|| "MGLRU of this kernel does not trace it".to_owned());
        self.missing(&[event]).or(untraced)
    }

    /// Returns whether reclaim writes no file pages. It stopped calling the file systems' writepage, which is gone: so in
    /// Linux 6.18 and 7.2 (shmem_writeout and swap_writeout in mm/vmscan.c), and not yet in 6.12.
    pub(super) fn no_file_writes(&self) -> bool {
        self.release.is_some_and(|release| release >= (6, 18))
    }
}

/// The first two numbers of `uname -r`.
fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
