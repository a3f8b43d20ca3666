//! What is wrong with a set-up: one file per subject.

mod collector;
mod configuration;
mod cpus;
mod image;
mod loading;
mod reservation;
mod target;
mod triggers;

use crate::facts::Facts;
use crate::finding::Finding;

/// What the administrator expects beyond a dump.
#[derive(Debug, Clone, Copy, Default)]
pub struct Expected {
    /// CPUs that the capture is to use.
    pub cpus: Option<u32>,
    /// Bytes per second that the target is to take.
    pub disk: Option<u64>,
}

/// Checks a set-up. Problems come first.
pub fn check(facts: &Facts, expected: &Expected) -> Vec<Finding> {
    let mut found = Vec::new();
    reservation::check(facts, &mut found);
    loading::check(facts, &mut found);
    triggers::check(facts, &mut found);
    match &facts.config {
        None => configuration::absent(&mut found),
        Some(config) => {
            configuration::check(config, facts, &mut found);
            collector::check(config, facts, &mut found);
            cpus::check(config, facts, expected, &mut found);
            image::check(config, facts, &mut found);
            target::check(config, facts, expected, &mut found);
        }
    }
    found.sort_by_key(|finding| finding.severity);
    found
}

/// A size in MiB, as `crashkernel=` and distributions write it.
pub(crate) fn mib(bytes: u64) -> String {
    format!("{}M", bytes.div_ceil(1 << 20))
}
