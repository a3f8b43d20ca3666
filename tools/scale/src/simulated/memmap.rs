//! Struct pages: how the pages of a section are used, in a few patterns.

use pagehaul_synth::{Kind, Machine, Noise, mix};

use super::{PATTERNS, SECTION, info};

/// Bytes of the struct pages of a section.
pub(super) const SECTION_MEMMAP: u64 = PAGES * 64;
/// Pages of a section.
const PAGES: u64 = SECTION / 4096;
/// Pages that the kernel keeps for one purpose, movable or not: 2 MiB.
const PAGE_BLOCK: u64 = 512;
/// Uses of section 0, which holds the kernel's image and tables, and its own struct pages.
const FIRST_MEMMAP: u64 = 96 << 20;

/// What a page block is used for, and how many of the 63 of a section are: the first holds the struct pages.
#[derive(Debug, Clone, Copy)]
enum Use {
    HugeAnon,
    Anon,
    Cache,
    Free,
    Unmovable,
}

const USES: [(Use, usize); 5] =
    [(Use::HugeAnon, 16), (Use::Anon, 12), (Use::Cache, 16), (Use::Free, 12), (Use::Unmovable, 7)];

/// Physical address of the struct pages of a section.
pub(super) fn start(section: u64) -> u64 {
    if section == 0 { FIRST_MEMMAP } else { section * SECTION }
}

/// Returns the section whose struct pages contain `paddr`, and the offset in them.
pub(super) fn place(paddr: u64) -> Option<(u64, u64)> {
    let section = paddr / SECTION;
    let at = paddr.checked_sub(start(section))?;
    (at < SECTION_MEMMAP).then_some((section, at))
}

/// Returns the pattern of a section.
pub(super) fn pattern_of(section: u64) -> u64 {
    if section == 0 { 0 } else { 1 + mix(section) % (PATTERNS - 1) }
}

/// The struct pages of pattern `number`: 0 is that of the kernel.
///
/// They are the same in any section: tails of 7.1 name their head by a mask.
pub(super) fn pattern(number: u64) -> Vec<u8> {
    let mut machine = info::machine();
    let own = if number == 0 { PAGES } else { PAGE_BLOCK };
    for page in 0..own {
        machine.page(Kind::Reserved, page, 0);
    }
    let mut noise = Noise::new(number);
    let mut uses: Vec<Use> =
        USES.iter().flat_map(|&(what, blocks)| std::iter::repeat_n(what, blocks)).collect();
    for block in own / PAGE_BLOCK..PAGES / PAGE_BLOCK {
        let what = uses.swap_remove(noise.below(uses.len() as u64) as usize);
        fill_block(&mut machine, block * PAGE_BLOCK, what, &mut noise);
    }
    machine.struct_pages(0..PAGES)
}

fn fill_block(machine: &mut Machine, first: u64, what: Use, noise: &mut Noise) {
    let end = first + PAGE_BLOCK;
    let mut page = first;
    // The shares of smaller things are shares of pages: what is left of each, and one of them drawn in
    // proportion.
    let shares: &[(Kind, u64, u32)] = match what {
        Use::HugeAnon => &[(Kind::Anon, PAGE_BLOCK, 9)],
        Use::Free => &[(Kind::Buddy, PAGE_BLOCK, 9)],
        Use::Anon => &[(Kind::Anon, 410, 0), (Kind::Cache, 51, 0), (Kind::Buddy, 51, 3)],
        Use::Cache => &[(Kind::Cache, 435, 4), (Kind::CachePrivate, 51, 0), (Kind::Buddy, 26, 2)],
        Use::Unmovable => &[(Kind::Slab, 307, 3), (Kind::PageTable, 77, 0), (Kind::Kernel, 128, 0)],
    };
    let mut left: Vec<_> = shares.to_vec();
    while page < end {
        let total: u64 = left.iter().map(|(_, pages, _)| pages).sum();
        let mut at = noise.below(total);
        let Some((kind, pages, order)) = left.iter_mut().find(|(_, pages, _)| {
            let found = at < *pages;
            at = at.saturating_sub(*pages);
            found
        }) else {
            return;
        };
        // No more than is left, and aligned to its size.
        let order = if *order == 9 { 9 } else { noise.below(u64::from(*order) + 1) as u32 };
        let order = order.min(pages.ilog2()).min(page.trailing_zeros());
        *pages -= 1 << order;
        machine.page(*kind, page, order);
        page += 1 << order;
    }
}
