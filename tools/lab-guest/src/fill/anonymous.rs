//! Fills anonymous memory: small, huge, locked, merged, zero, HugeTLB, and pages to be freed.

use super::Held;
use crate::Result;
use crate::pages::{HUGE, Mapping, page_size};
use crate::system::set;
use lab_guest::Class;
use lab_guest::results::Filled;
use lab_guest::stamp::{self, Stamp};
use std::time::{Duration, Instant};

const TRANSPARENT: &str = "/sys/kernel/mm/transparent_hugepage";

/// Enables transparent huge pages, which Debian's cloud kernels set to `never`.
pub fn prepare() {
    // Without them the manifest lists the huge classes as missing.
    let _ = set(&format!("{TRANSPARENT}/enabled"), "always");
    let _ = set(&format!("{TRANSPARENT}/defrag"), "always");
    let _ = set(&format!("{TRANSPARENT}/shmem_enabled"), "always");
    // Since 6.8 (19eaf44954df) sizes below the PMD's are enabled one by one.
    let _ = set(&format!("{TRANSPARENT}/hugepages-{}kB/enabled", HUGE >> 10), "always");
}

/// Fills anonymous pages of one class.
pub fn fill(class: Class, bytes: usize, held: &mut Held) -> Result<Filled> {
    let mut mapping = Mapping::anonymous(bytes, 0)?;
    mapping.advise(if class == Class::AnonHuge { libc::MADV_HUGEPAGE } else { libc::MADV_NOHUGEPAGE })?;
    let filled = match class {
        Class::AnonZero => {
            for page in mapping.bytes().chunks_mut(page_size()) {
                // A read would map the kernel's shared zero page.
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

/// Fills all pages with the same content, and waits until KSM has merged at least half.
fn merged(mapping: &mut Mapping) -> Result<Filled> {
    const KSM: &str = "/sys/kernel/mm/ksm";
    const PATIENCE: Duration = Duration::from_secs(10);
    for page in mapping.bytes().chunks_exact_mut(page_size()) {
        stamp::fill(page, Stamp { class: Class::AnonMerged, sequence: 0 });
    }
    let pages = (mapping.bytes().len() / page_size()) as u64;
    mapping.advise(libc::MADV_MERGEABLE)?;
    set(&format!("{KSM}/pages_to_scan"), "10000")?;
    set(&format!("{KSM}/sleep_millisecs"), "1")?;
    set(&format!("{KSM}/run"), "1")?;
    let start = Instant::now();
    let mut sharing = 0;
    // ksmd works in the background; only a counter shows its progress.
    while sharing < pages / 2 && start.elapsed() < PATIENCE {
        std::thread::yield_now();
        let text = std::fs::read_to_string(format!("{KSM}/pages_sharing")).unwrap_or_default();
        sharing = text.trim().parse().unwrap_or(0);
    }
    set(&format!("{KSM}/run"), "0")?;
    if sharing == 0 {
        return Err("KSM merged nothing".into());
    }
    // All pages have the same sequence number, so that each is a range.
    let mut filled = mapping.filled(Class::AnonMerged)?;
    let pfns: std::collections::BTreeSet<u64> = filled.pages().map(|(pfn, _)| pfn).collect();
    filled.ranges =
        pfns.into_iter().map(|pfn| lab_guest::results::Range { pfn, sequence: 0, pages: 1 }).collect();
    filled.count = filled.ranges.len() as u64;
    Ok(filled)
}

/// Fills HugeTLB pages of 2 MiB.
pub fn huge_tlb(bytes: usize, held: &mut Held) -> Result<Filled> {
    // Twice as many as are used: real pools have free pages too.
    let pool = format!("/sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages", HUGE >> 10);
    set(&pool, &(bytes / HUGE * 2).to_string())?;
    let text = std::fs::read_to_string(&pool).unwrap_or_default();
    let pool: usize = text.trim().parse().unwrap_or(0);
    let pages = (bytes / HUGE).min(pool);
    if pages == 0 {
        return Err("the kernel has no free HugeTLB pages of 2 MiB".into());
    }
    let mut mapping = Mapping::anonymous(pages * HUGE, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB)?;
    let filled = mapping.fill(Class::HugeTlb)?;
    held.mappings.push(mapping);
    Ok(filled)
}

/// Fills pages that are freed just before the panic.
pub fn to_free(bytes: usize, held: &mut Held) -> Result<Filled> {
    let mut mapping = Mapping::anonymous(bytes, 0)?;
    let filled = mapping.fill(Class::Free)?;
    held.to_free = Some(mapping);
    Ok(filled)
}
