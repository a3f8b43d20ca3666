//! Memory in swap, and in another node than the CPU of its process.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use super::{BYTES, map, write};
use crate::Result;
use crate::pages::Mapping;
use crate::system::{check, field, set};
use lab_guest::pattern::{IN_SWAP_CACHE, PAGE, PAGES, Pattern};

/// Time for what the kernel does in the background.
const PATIENCE: Duration = Duration::from_secs(60);
/// `MADV_PAGEOUT` (5.4).
const PAGE_OUT: i32 = 21;
/// `set_mempolicy`; libc does not have it everywhere.
const SET_MEMPOLICY: libc::c_long = if cfg!(target_arch = "x86_64") { 238 } else { 237 };
const MPOL_DEFAULT: libc::c_int = 0;
const MPOL_BIND: libc::c_int = 2;

/// Pages of [`Pattern::Swapped`]: in the swap cache since they were written, out, and in the swap cache since they were read again.
pub(super) fn swap(group: &str) -> Result<()> {
    // A page that is read brings no others.
    set("/proc/sys/vm/page-cluster", "0")?;
    let at = map(Pattern::Swapped, None, 0)?;
    let half = BYTES / 2;
    until("pages to be in swap only", || {
        advise(at, half, half, PAGE_OUT)?;
        // Pages that were written to swap stay in the swap cache until memory is reclaimed. Less is reclaimed than asked for; v1 asks
        // for nothing less than all.
        let _ = fs::write(format!("{group}/memory.reclaim"), "4M");
        let _ = fs::write(format!("{group}/memory.force_empty"), "0");
        Ok(resident(at, half, half)? == 0)
    })?;
    let quarter = BYTES / 4;
    let again = IN_SWAP_CACHE.end as usize * PAGE - half;
    advise(at, half, again, libc::MADV_WILLNEED)?;
    until("pages to be read from swap", || Ok(resident(at, half, again)? == again / PAGE))?;
    // Those that were reclaimed as well are mapped again.
    write(at, Pattern::Swapped, 0..PAGES / 2);
    until("pages to be written to swap", || {
        advise(at, 0, half, PAGE_OUT)?;
        Ok(are_unmapped(at, half)? && resident(at, 0, half)? == half / PAGE)
    })?;
    match resident(at, half + again, quarter)? {
        0 => reuse_free_pages(),
        more => Err(format!("{more} pages that are in swap only were read again")),
    }
}

/// Takes more pages than are on the lists of a CPU: what left the swap cache is on them, and looks like kernel memory to a dump.
fn reuse_free_pages() -> Result<()> {
    const MANY: usize = 16 << 20;
    let mut mapping = Mapping::anonymous(MANY, 0)?;
    mapping.advise(libc::MADV_NOHUGEPAGE)?;
    mapping.bytes().chunks_mut(PAGE).for_each(|page| page.fill(1));
    Ok(())
}

/// Memory of the second node, which the kernel makes inaccessible to see whether this process, of the first, still uses it. The process
/// does not.
pub(super) fn balance() -> Result<()> {
    policy(MPOL_BIND, 1 << 1)?;
    map(Pattern::Numa, None, 0)?;
    // Memory with a policy of its own is not balanced.
    policy(MPOL_DEFAULT, 0)?;
    let updates = || field(&fs::read_to_string("/proc/vmstat").unwrap_or_default(), "numa_pte_updates");
    let before = updates();
    // Only a process that runs is looked at.
    until("the memory of a node to be balanced", || Ok(updates() >= before + PAGES))
}

fn until(what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !done()? {
        if start.elapsed() > PATIENCE {
            return Err(format!("waited {} s in vain for {what}", PATIENCE.as_secs()));
        }
        thread::yield_now();
    }
    Ok(())
}

fn advise(at: *mut u8, offset: usize, bytes: usize, advice: i32) -> Result<()> {
    // SAFETY: a part of a mapping of the caller, whose contents stay.
    let result = unsafe { libc::madvise(at.add(offset).cast(), bytes, advice) };
    check(result.into(), &format!("madvise({advice})")).map(drop)
}

/// Returns how many pages are in memory, mapped or in the swap cache.
fn resident(at: *mut u8, offset: usize, bytes: usize) -> Result<usize> {
    let mut pages = vec![0_u8; bytes / PAGE];
    // SAFETY: a part of a mapping of the caller, and a byte for each of its pages.
    check(unsafe { libc::mincore(at.add(offset).cast(), bytes, pages.as_mut_ptr()) }.into(), "mincore")?;
    Ok(pages.iter().filter(|page| **page & 1 == 1).count())
}

/// Whether all pages of a mapping's start are entries of swap in the page table.
fn are_unmapped(at: *mut u8, bytes: usize) -> Result<bool> {
    const PAGEMAP: &str = "/proc/self/pagemap";
    const SWAPPED: u8 = 1 << 6;
    let mut entries = vec![0; bytes / PAGE * 8];
    let offset = (at as usize / PAGE * 8) as u64;
    let read = File::open(PAGEMAP).and_then(|file| file.read_exact_at(&mut entries, offset));
    read.map_err(|e| format!("{PAGEMAP}: {e}"))?;
    Ok(entries.chunks(8).all(|entry| entry.last().is_some_and(|last| last & SWAPPED != 0)))
}

/// Sets the policy by which this process gets memory, of the nodes in a mask.
fn policy(mode: libc::c_int, nodes: libc::c_ulong) -> Result<()> {
    let none: (_, libc::c_ulong) = (std::ptr::null(), 0);
    let (mask, bits) = if nodes == 0 { none } else { (&raw const nodes, 64) };
    // SAFETY: a mask of 64 bits, or none.
    let result = unsafe { libc::syscall(SET_MEMPOLICY, mode, mask, bits) };
    check(result, "set_mempolicy").map(drop)
}
