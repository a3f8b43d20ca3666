//! Anonymous memory: small, huge, locked, merged, zero, HugeTLB, and pages that are freed again.

use super::Held;
use crate::Result;
use crate::pages::{HUGE, Mapping};
use crate::system::set;
use lab_guest::Class;
use lab_guest::results::Filled;
use lab_guest::stamp::{self, PAGE, Stamp};
use std::time::{Duration, Instant};

const TRANSPARENT: &str = "/sys/kernel/mm/transparent_hugepage";

/// Debian's cloud kernels start with transparent huge pages at `never`.
pub fn prepare() {
    // A kernel without them shows in the manifest: it then has no huge class.
    let _ = set(&format!("{TRANSPARENT}/enabled"), "always");
    let _ = set(&format!("{TRANSPARENT}/defrag"), "always");
    let _ = set(&format!("{TRANSPARENT}/shmem_enabled"), "always");
}

/// Anonymous pages of one class.
pub fn fill(class: Class, bytes: usize, held: &mut Held) -> Result<Filled> {
    let mut mapping = Mapping::anonymous(bytes, 0)?;
    mapping.advise(if class == Class::AnonHuge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE })?;
    let filled = match class {
        Class::AnonZero => {
            for page in mapping.bytes().chunks_mut(PAGE) {
                // Written, not only read: a read would map the kernel's one zero page.
                page.fill(0);
            }
            mapping.filled(class)?
        }
        Class::AnonMerged => merged(&mut mapping)?,
        Class::AnonLocked => {
            let filled = mapping.fill(class)?;
            mapping.lock()?;
            filled
        }
        _ => mapping.fill(class)?,
    };
    held.mappings.push(mapping);
    Ok(filled)
}

/// The same page over and over, until KSM made one of most of them.
fn merged(mapping: &mut Mapping) -> Result<Filled> {
    const KSM: &str = "/sys/kernel/mm/ksm";
    const PATIENCE: Duration = Duration::from_secs(10);
    for page in mapping.bytes().chunks_exact_mut(PAGE) {
        stamp::fill(page, Stamp { class: Class::AnonMerged, sequence: 0 });
    }
    let pages = (mapping.bytes().len() / PAGE) as u64;
    mapping.advise(libc::MADV_MERGEABLE)?;
    set(&format!("{KSM}/pages_to_scan"), "10000")?;
    set(&format!("{KSM}/sleep_millisecs"), "1")?;
    set(&format!("{KSM}/run"), "1")?;
    let start = Instant::now();
    let mut sharing = 0;
    // ksmd works in the background and only a counter says how far it is.
    while sharing < pages / 2 && start.elapsed() < PATIENCE {
        std::thread::yield_now();
        let text = std::fs::read_to_string(format!("{KSM}/pages_sharing")).unwrap_or_default();
        sharing = text.trim().parse().unwrap_or(0);
    }
    set(&format!("{KSM}/run"), "0")?;
    if sharing == 0 {
        return Err("KSM merged nothing".into());
    }
    // Every page has the same sequence number, so the places are listed one by one.
    let mut filled = mapping.filled(Class::AnonMerged)?;
    let pfns: std::collections::BTreeSet<u64> = filled.pages().map(|(pfn, _)| pfn).collect();
    filled.ranges =
        pfns.into_iter().map(|pfn| lab_guest::results::Range { pfn, sequence: 0, pages: 1 }).collect();
    filled.count = filled.ranges.len() as u64;
    Ok(filled)
}

/// HugeTLB pages of 2 MiB.
pub fn huge_tlb(bytes: usize, held: &mut Held) -> Result<Filled> {
    // Twice as many as are used: a pool also has free pages, which belong to no process.
    set("/proc/sys/vm/nr_hugepages", &(bytes / HUGE * 2).to_string())?;
    let text = std::fs::read_to_string("/proc/sys/vm/nr_hugepages").unwrap_or_default();
    let pool: usize = text.trim().parse().unwrap_or(0);
    let pages = (bytes / HUGE).min(pool);
    if pages == 0 {
        return Err("the kernel has no huge pages of 2 MiB to give".into());
    }
    let mut mapping = Mapping::anonymous(pages * HUGE, libc::MAP_HUGETLB)?;
    let filled = mapping.fill(Class::HugeTlb)?;
    held.mappings.push(mapping);
    Ok(filled)
}

/// Stamped pages that are given back later.
pub fn to_free(bytes: usize, held: &mut Held) -> Result<Filled> {
    let mut mapping = Mapping::anonymous(bytes, 0)?;
    let filled = mapping.fill(Class::Free)?;
    held.to_free = Some(mapping);
    Ok(filled)
}
