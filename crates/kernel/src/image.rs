//! The text of the kernel image, by the kernel's page tables.
//!
//! What the kernel allocated before it had struct pages, its image included, is marked `PG_reserved` until the kernel frees it, as
//! it does with init sections and the gaps around read-only data. Only of text it is certain without that mark that it is never
//! freed, and where it is: it is executable, and nothing else of the image is once the machine runs (`mark_rodata_ro`; on x86_64
//! 45e2a9d4701d, 3.18, ended the mapping at `_etext`).

use std::ops::Range;

use pagehaul_machine::{Entry, Extent};
use pagehaul_physmem::View;

use crate::address_space::AddressSpace;
use crate::translate::Translator;

/// Bytes of text at most: damaged page tables must not name all of memory.
const MAX_TEXT: u64 = 128 << 20;

/// Returns the pages from `_stext` on that are executable: runs of PFNs, ascending. Empty if the image is not where it should be.
pub(crate) fn text(space: &AddressSpace, view: &mut dyn View) -> Vec<Range<u64>> {
    let page = space.page_size();
    let translator = space.translator();
    let Some(start) = space.info().symbol("_stext").map(|start| start & !(page.bytes() as u64 - 1)) else {
        return Vec::new();
    };
    let mut text: Option<Range<u64>> = None;
    let mut at = start;
    // The image is one piece of physical memory.
    while let Some(extent) = executable(translator, view, at)
        .filter(|found| at - start < MAX_TEXT && text.as_ref().is_none_or(|text| text.end == found.paddr))
    {
        let end = extent.paddr.saturating_add(extent.len);
        text = Some(text.map_or(extent.paddr, |text| text.start)..end);
        let Some(next) = at.checked_add(extent.len) else { break };
        at = next;
    }
    text.into_iter().map(|text| text.start >> page.shift()..text.end >> page.shift()).collect()
}

/// Returns the executable page that `vaddr` lies in, from there on.
fn executable(translator: &Translator, view: &mut dyn View, vaddr: u64) -> Option<Extent> {
    let tables = translator.tables();
    let inner = translator.layout().canonical(vaddr)?;
    let mut table = tables.root;
    for level in (1..=tables.levels).rev() {
        let entry = view.read_u64(table.checked_add(tables.index(inner, level) * 8)?).ok()?;
        match translator.layout().decode(entry, level, vaddr) {
            Entry::Table(next) if level > 1 => table = next,
            Entry::Page { paddr, text: true } => {
                let inside = (1 << tables.shift(level)) - 1;
                return Some(Extent { paddr: paddr | vaddr & inside, len: inside + 1 - (vaddr & inside) });
            }
            _ => return None,
        }
    }
    None
}
