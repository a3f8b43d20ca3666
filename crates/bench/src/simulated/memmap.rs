//! Struct pages: how the pages of a section are used, in a few patterns.

use pagehaul_kernel::PageClass;

use super::{PATTERNS, SECTION};
use crate::pages::{Noise, mix};

/// Bytes of the struct pages of a section.
pub(super) const SECTION_MEMMAP: u64 = SECTION / 4096 * SIZE as u64;
const SIZE: usize = 64;
/// Pages that the kernel keeps for one purpose, movable or not: 2 MiB.
const PAGE_BLOCK: usize = 512;
/// Section 0 is the kernel's: its image, its tables, and its struct pages here.
const FIRST_MEMMAP: u64 = 96 << 20;

/// Page flags of a 7.1 kernel.
pub(super) mod flag {
    pub(crate) const UPTODATE: u64 = 1 << 3;
    pub(crate) const LRU: u64 = 1 << 5;
    pub(crate) const HEAD: u64 = 1 << 6;
    pub(crate) const SWAPCACHE: u64 = 1 << 10;
    pub(crate) const RESERVED: u64 = 1 << 13;
    pub(crate) const PRIVATE: u64 = 1 << 14;
    pub(crate) const SWAPBACKED: u64 = 1 << 17;
    pub(crate) const HWPOISON: u64 = 1 << 21;
}

/// Page types: the top byte of `_mapcount`.
pub(super) const BUDDY: u32 = 0xf0 << 24;
pub(super) const OFFLINE: u32 = 0xf1 << 24;
const PAGE_TABLE: u32 = 0xf2 << 24;
pub(super) const HUGETLB: u32 = 0xf4 << 24;
pub(super) const SLAB: u32 = 0xf5 << 24;
pub(super) const UNACCEPTED: u32 = 0xf7 << 24;

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

/// Share of the pages of a section per class, about: what the patterns are made of.
pub fn mix_of_pages() -> Vec<(PageClass, f64)> {
    let share = |blocks: f64| blocks / 64.0;
    vec![
        (PageClass::Anon, share(16.0 + 12.0 * 0.8)),
        (PageClass::Cache, share(12.0 * 0.1 + 16.0 * 0.85)),
        (PageClass::CachePrivate, share(16.0 * 0.1)),
        (PageClass::Free, share(12.0 * 0.1 + 16.0 * 0.05 + 12.0)),
        (PageClass::Slab, share(7.0 * 0.6)),
        (PageClass::PageTable, share(7.0 * 0.15)),
        (PageClass::Kernel, share(1.0 + 7.0 * 0.25)),
    ]
}

/// Physical address of the struct pages of a section.
pub(super) fn start(section: u64) -> u64 {
    if section == 0 { FIRST_MEMMAP } else { section * SECTION }
}

/// The section whose struct pages `paddr` is among, and the offset there.
pub(super) fn place(paddr: u64) -> Option<(u64, u64)> {
    let section = paddr / SECTION;
    let at = paddr.checked_sub(start(section))?;
    (at < SECTION_MEMMAP).then_some((section, at))
}

/// The pattern a section follows.
pub(super) fn pattern_of(section: u64) -> u64 {
    if section == 0 { 0 } else { 1 + mix(section) % (PATTERNS - 1) }
}

/// The struct pages of pattern `number`: 0 is all the kernel's.
pub(super) fn pattern(number: u64) -> Vec<u8> {
    let mut map = Map { bytes: vec![0; SECTION_MEMMAP as usize] };
    let pages = SECTION_MEMMAP as usize / SIZE;
    let own = if number == 0 { pages } else { PAGE_BLOCK };
    for page in 0..own {
        map.put(page, Page { flags: flag::RESERVED, ..Page::default() });
    }
    let mut noise = Noise::new(number);
    let mut uses: Vec<Use> =
        USES.iter().flat_map(|&(what, blocks)| std::iter::repeat_n(what, blocks)).collect();
    for block in (own / PAGE_BLOCK)..pages / PAGE_BLOCK {
        let what = uses.swap_remove(noise.below(uses.len() as u64) as usize);
        fill_block(&mut map, block * PAGE_BLOCK, what, &mut noise);
    }
    map.bytes
}

fn fill_block(map: &mut Map, first: usize, what: Use, noise: &mut Noise) {
    let end = first + PAGE_BLOCK;
    let mut page = first;
    // The shares of smaller things are shares of pages: what is left of each, and one of them drawn in proportion.
    let shares: &[(Kind, usize, u32)] = match what {
        Use::HugeAnon => &[(Kind::Anon, PAGE_BLOCK, 9)],
        Use::Free => &[(Kind::Free, PAGE_BLOCK, 9)],
        Use::Anon => &[(Kind::Anon, 410, 0), (Kind::Cache, 51, 0), (Kind::Free, 51, 3)],
        Use::Cache => &[(Kind::Cache, 435, 4), (Kind::CachePrivate, 51, 0), (Kind::Free, 26, 2)],
        Use::Unmovable => &[(Kind::Slab, 307, 3), (Kind::PageTable, 77, 0), (Kind::Kernel, 128, 0)],
    };
    let mut left: Vec<_> = shares.to_vec();
    while page < end {
        let total: usize = left.iter().map(|(_, pages, _)| pages).sum();
        let mut at = noise.below(total as u64) as usize;
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
        map.block(page, order, *kind);
        page += 1 << order;
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Anon,
    Cache,
    CachePrivate,
    Free,
    Slab,
    PageTable,
    Kernel,
}

/// The fields of a struct page that say something.
#[derive(Debug, Clone, Copy)]
struct Page {
    flags: u64,
    compound: u64,
    mapping: u64,
    private: u64,
    mapcount: u32,
    refcount: u32,
}

impl Default for Page {
    fn default() -> Self {
        Self { flags: 0, compound: 0, mapping: 0, private: 0, mapcount: u32::MAX, refcount: 1 }
    }
}

struct Map {
    bytes: Vec<u8>,
}

impl Map {
    fn block(&mut self, first: usize, order: u32, kind: Kind) {
        // Objects of the kernel's in the direct map; lists run through the struct pages.
        let object = 0xff11_0000_0100_0000 + (first as u64 % 4096) * 64;
        let mut head = match kind {
            Kind::Anon => Page {
                flags: flag::UPTODATE | flag::LRU | flag::SWAPBACKED,
                mapping: object | 1,
                mapcount: 0,
                ..Page::default()
            },
            Kind::Cache => Page { flags: flag::UPTODATE | flag::LRU, mapping: object, ..Page::default() },
            Kind::CachePrivate => Page {
                flags: flag::UPTODATE | flag::LRU | flag::PRIVATE,
                mapping: object,
                private: object + 64,
                ..Page::default()
            },
            Kind::Free => Page { mapcount: BUDDY, private: order.into(), refcount: 0, ..Page::default() },
            Kind::Slab => Page { mapcount: SLAB, mapping: 5, ..Page::default() },
            Kind::PageTable => Page { mapcount: PAGE_TABLE, ..Page::default() },
            Kind::Kernel => Page::default(),
        };
        head.compound = object & !1;
        if order > 0 && kind != Kind::Free {
            head.flags |= flag::HEAD;
            let mask = !(((SIZE as u64) << order) - 1) | 1;
            for tail in first + 1..first + (1 << order) {
                self.put(
                    tail,
                    Page { compound: mask, refcount: 0, mapcount: head.mapcount | 0xff, ..Page::default() },
                );
            }
            // The order stands in the low byte of the first tail's flags.
            self.bytes[(first + 1) * SIZE] = order as u8;
        } else if kind == Kind::Free {
            for page in first + 1..first + (1 << order) {
                self.put(page, Page { refcount: 0, ..Page::default() });
            }
        }
        self.put(first, head);
    }

    fn put(&mut self, page: usize, fields: Page) {
        let bytes = &mut self.bytes[page * SIZE..(page + 1) * SIZE];
        bytes[..8].copy_from_slice(&fields.flags.to_le_bytes());
        bytes[8..16].copy_from_slice(&fields.compound.to_le_bytes());
        bytes[24..32].copy_from_slice(&fields.mapping.to_le_bytes());
        bytes[40..48].copy_from_slice(&fields.private.to_le_bytes());
        bytes[48..52].copy_from_slice(&fields.mapcount.to_le_bytes());
        bytes[52..56].copy_from_slice(&fields.refcount.to_le_bytes());
    }
}
