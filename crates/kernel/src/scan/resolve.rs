//! Heads of compound pages that lie outside the given struct pages: in an earlier block, or past the end of a window.

use pagehaul_physmem::View;

use super::block::Block;
use crate::kernel::Kernel;
use crate::rules::{Compound, Head, MAX_ORDER, word};

/// Returns the compound page of the next page of `block`, whose head has its struct page at `head_at`.
pub(super) fn compound(
    kernel: &Kernel,
    view: &mut dyn View,
    block: &Block<'_>,
    head_at: u64,
) -> Result<Compound, &'static str> {
    let found = match read(kernel, view, block, head_at)? {
        // The struct page shows a head that is not its own.
        Head::Fake(real_at) if head_at == block.struct_page() => read(kernel, view, block, real_at)?,
        other => other,
    };
    match found {
        Head::Real(compound) if (compound.first_pfn..compound.end_pfn).contains(&block.pfn()) => Ok(compound),
        Head::Real(_) => Err("a tail page names a compound page that ends before it"),
        Head::Fake(_) => Err("a tail page names another tail page as its head"),
        Head::Wrong(what) => Err(what),
    }
}

fn read(kernel: &Kernel, view: &mut dyn View, block: &Block<'_>, head_at: u64) -> Result<Head, &'static str> {
    let rules = kernel.rules();
    let pfn = pfn_of(kernel, view, block, head_at)
        .ok_or("a tail page names a head that is not a struct page near it")?;
    let mut pair = vec![0; rules.layout.size * 2];
    kernel
        .space()
        .translator()
        .read(view, head_at, &mut pair)
        .map_err(|_| "the head of a tail page cannot be read")?;
    if view.take_fault() {
        return Err("the head of a tail page cannot be read");
    }
    if word(&pair, rules.layout.compound) & 1 != 0 || word(&pair, rules.layout.flags) & rules.head == 0 {
        return Err("a tail page names a head without PG_head");
    }
    Ok(rules.head(&pair, head_at, pfn))
}

/// Returns the page whose struct page is at `at`: one of the block, or one before it, at most as far back as the largest
/// compound page reaches.
fn pfn_of(kernel: &Kernel, view: &mut dyn View, block: &Block<'_>, at: u64) -> Option<u64> {
    let pages = kernel.pages_per_block() as u64;
    let size = kernel.rules().layout.size as u64;
    let index = |map: u64| {
        let offset = at.wrapping_sub(map);
        (offset < pages * size && offset.is_multiple_of(size)).then_some(offset / size)
    };
    if let Some(index) = index(block.map()) {
        return Some(block.first_pfn() + index);
    }
    let own = block.first_pfn() / pages;
    // Compound pages are aligned to their size.
    let first = (block.first_pfn() & !((1 << MAX_ORDER) - 1)) / pages;
    (first..own).rev().find_map(|section| {
        let map = kernel.sections().map(kernel.space().translator(), view, section, size).ok()??;
        Some(section * pages + index(map)?)
    })
}
