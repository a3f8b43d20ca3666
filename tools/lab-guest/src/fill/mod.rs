//! Fills memory with stamped pages of every class.

mod anonymous;
pub mod balloon;
mod cache;
pub mod files;
mod kernel;
pub mod poison;
mod shmem;

use crate::pages::{HUGE, Mapping};
use crate::system::field;
use crate::{Result, notify_host};
use lab_guest::Class;
use lab_guest::plan::message;
use lab_guest::results::{Filled, Manifest};

/// Mappings and pipes that keep the pages allocated until the crash.
#[derive(Default)]
pub struct Held {
    mappings: Vec<Mapping>,
    pipes: Vec<kernel::Pipe>,
    /// Stamped pages to free just before the panic.
    to_free: Option<Mapping>,
}

impl Held {
    /// Frees the pages of class `Free`.
    pub fn free(&mut self) {
        if let Some(mapping) = self.to_free.take() {
            mapping.unmap();
        }
    }
}

/// Percentage of the budget for each class, in the order of filling: huge pages need unfragmented memory, and the
/// pages freed last must not be reused by later classes.
const SHARES: [(Class, u64); 14] = [
    (Class::HugeTlb, 8),
    (Class::AnonHuge, 16),
    (Class::ShmemHuge, 6),
    (Class::Anon, 16),
    (Class::AnonLocked, 3),
    (Class::AnonMerged, 1),
    (Class::AnonZero, 3),
    (Class::Shmem, 7),
    (Class::Cache, 12),
    (Class::CachePrivate, 6),
    (Class::Pipe, 1),
    (Class::Message, 1),
    (Class::HwPoison, 0),
    (Class::Free, 20),
];

/// Fills `percent` of available memory with stamped pages.
pub fn fill(percent: u32) -> Result<(Manifest, Held)> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").map_err(|e| format!("/proc/meminfo: {e}"))?;
    let budget = field(&meminfo, "MemAvailable") * 1024 / 100 * u64::from(percent.min(90));
    let mut manifest = Manifest { release: crate::system::release(), ..Manifest::default() };
    let mut held = Held::default();
    anonymous::prepare();
    for (class, share) in SHARES {
        let bytes = usize::try_from(budget / 100 * share).unwrap_or(0).next_multiple_of(HUGE);
        notify_host(message::STEP, &format!("filling {} KiB of {class}", bytes >> 10));
        match one(class, bytes, &mut held) {
            Ok(filled) => manifest.classes.push(filled),
            Err(why) => manifest.missing.push((class, why)),
        }
    }
    Ok((manifest, held))
}

fn one(class: Class, bytes: usize, held: &mut Held) -> Result<Filled> {
    match class {
        Class::Anon | Class::AnonHuge | Class::AnonLocked | Class::AnonMerged | Class::AnonZero => {
            anonymous::fill(class, bytes, held)
        }
        Class::HugeTlb => anonymous::huge_tlb(bytes, held),
        Class::Shmem | Class::ShmemHuge => shmem::fill(class, bytes, held),
        Class::Cache | Class::CachePrivate => cache::fill(class, bytes),
        Class::Pipe => kernel::pipes(bytes, held),
        Class::Message => kernel::messages(bytes),
        Class::HwPoison => poison::fill(),
        Class::Free => anonymous::to_free(bytes, held),
        Class::Offline => Err("the host's balloon fills it".into()),
    }
}
