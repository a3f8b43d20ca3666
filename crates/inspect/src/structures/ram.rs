//! How much memory the machine has, as a bound: larger numbers are damage.

use pagehaul_machine::PageCount;

use crate::machine::Machine;

/// Pages that are believed: 4 PiB with pages of 4 KiB.
const MAX_PAGES: u64 = 1 << 40;

/// Returns the bytes of memory that the kernel's allocator has or had, or what no machine has if that is not known.
pub(crate) fn ram_bytes(machine: &Machine<'_>) -> u64 {
    // 5.0 renamed totalram_pages.
    let pages = machine.u64("_totalram_pages").or_else(|_| machine.u64("totalram_pages"));
    let pages = pages.ok().filter(|pages| (1..MAX_PAGES).contains(pages)).unwrap_or(MAX_PAGES);
    PageCount::new(pages).bytes(machine.page_size())
}
