//! Text of tracefs files that live kernels and `trace.dat` share.

/// Returns the selected clock of `trace_clock`, which is in brackets: `local global [mono]`.
pub(crate) fn selected_clock(text: &str) -> Option<&str> {
    text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(clock, _)| clock.trim())
}

/// Returns a number of `per_cpu/cpuN/stats`.
pub(crate) fn stat(stats: &str, name: &str) -> Option<u64> {
    let value = |line: &str| line.trim().strip_prefix(name)?.strip_prefix(':')?.trim().parse().ok();
    stats.lines().find_map(value)
}

/// Returns the lost events in `per_cpu/cpuN/stats`: overwritten or dropped.
pub(crate) fn lost_events(stats: &str) -> u64 {
    ["overrun", "commit overrun", "dropped events"].iter().filter_map(|name| stat(stats, name)).sum()
}
