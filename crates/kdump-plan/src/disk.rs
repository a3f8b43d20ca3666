//! The rate of the disk that a dump goes to.

use std::path::Path;
use std::time::Duration;

use pagehaul_bench::{BenchError, disk};
use pagehaul_kdump_setup::Target;

use crate::goal::{Goal, Machine};
use crate::memory::Origin;

/// What is written to measure a disk: at most this much, for this long.
const BYTES: u64 = 256 << 20;
const TIME: Duration = Duration::from_secs(2);
/// Bytes per second of a disk that was neither given nor measured.
const ASSUMED: u64 = 200_000_000;

/// Measures how many bytes per second the disk of a directory takes.
pub fn disk_rate(directory: &Path) -> Result<u64, BenchError> {
    Ok((disk::write(directory, BYTES, TIME)?.rate() as u64).max(1))
}

/// The rate of the target's disk: given, measured, or assumed.
pub(crate) fn of_target(machine: &Machine<'_>, goal: &Goal, reasons: &mut Vec<String>) -> (u64, Origin) {
    if let Some(rate) = goal.disk {
        return (rate.max(1), Origin::Given);
    }
    match &machine.config.target {
        Target::Directory(path) if machine.is_here && !machine.is_described => match disk_rate(path) {
            Ok(rate) => return (rate, Origin::Measured),
            Err(error) => reasons.push(format!("the disk's rate is assumed: {error}")),
        },
        _ => reasons.push("the rate of the target is assumed: give --disk".into()),
    }
    (ASSUMED, Origin::Assumed)
}
