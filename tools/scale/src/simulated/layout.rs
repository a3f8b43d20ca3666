//! Where the simulated kernel keeps what VMCOREINFO points to.

/// Release of the simulated kernel.
pub(super) const RELEASE: &str = "7.1.0-simulated";

use pagehaul_machine::arch::x86_64::START_KERNEL_MAP;

/// Physical address of `mem_section`; like the others within the image's mapping and section 0, which belongs to the
/// kernel.
pub(super) const MEM_SECTION: u64 = 0x1a0_0000;
/// Physical address of `init_uts_ns`.
pub(super) const UTS: u64 = 0x1a0_1000;
/// Physical address of the top page table.
pub(super) const TOP_TABLE: u64 = 0x200_0000;

/// Returns the virtual address of a byte of the image.
pub(super) fn image(paddr: u64) -> u64 {
    START_KERNEL_MAP + paddr
}
