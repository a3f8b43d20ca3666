//! What is wrong with a set-up: one file per subject.

mod boot;
mod collector;
mod configuration;
mod cpus;
mod encryption;
mod expected;
mod firmware;
mod image;
mod loading;
mod mib;
mod pstore;
mod reservation;
mod ssh;
mod storage;
mod suse;
mod target;
mod triggers;
mod units;

pub use expected::Expected;
pub(crate) use mib::mib;

use crate::chain::{Chain, Examination};
use crate::facts::Facts;
use crate::finding::Finding;
use crate::link::Link;

/// Examines a set-up link by link.
pub fn examine(facts: &Facts, expected: &Expected) -> Chain {
    let mut found = Examination::new();
    firmware::check(facts, found.link(Link::Firmware));
    boot::check(facts, found.link(Link::CommandLine));
    reservation::check(facts, found.link(Link::Reservation));
    loading::check(facts, found.link(Link::Kernel));
    triggers::check(facts, found.link(Link::Trigger));
    pstore::check(facts, found.link(Link::Trigger));
    match &facts.config {
        None => configuration::absent(found.link(Link::Units)),
        Some(config) => {
            configuration::check(config, facts, found.link(Link::CommandLine));
            cpus::check(config, facts, expected, &mut found);
            loading::check_kernel(config, facts, found.link(Link::Kernel));
            image::check(config, facts, found.link(Link::Initramfs));
            units::check(config, facts, found.link(Link::Units));
            storage::check(config, facts, found.link(Link::Mounts));
            suse::check(config, facts, &mut found);
            // A command may do all of it.
            if !suse::transfers(config) {
                target::check(config, facts, expected, found.link(Link::Target));
                collector::check(config, facts, found.link(Link::Program));
            }
            encryption::check(config, facts, found.link(Link::Program));
        }
    }
    found.chain()
}

/// What is wrong with a set-up. Problems come first.
pub fn check(facts: &Facts, expected: &Expected) -> Vec<Finding> {
    examine(facts, expected).findings
}
