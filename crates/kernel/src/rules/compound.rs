//! Compound pages: 2^order pages used as one, described by the struct pages of the first (the head) and the second.

use super::layout::{PageLayout, half, word};
use super::{Rules, Words};
use crate::class::PageClass;
use pagehaul_machine::VmcoreInfo;

/// Largest order: 1 GiB, the largest page of x86_64.
pub(crate) const MAX_ORDER: u32 = 18;

/// Where a compound page keeps its order.
#[derive(Debug, Clone)]
pub(crate) enum OrderAt {
    /// A byte at this offset from the head. 4.4 used 4 bytes in the first tail and 4.16 one (little-endian: one is
    /// enough); 6.3 moved it into struct folio, at the same offset.
    Byte(usize),
    /// The low byte of the first tail's flags (ebc1baf5c9b4, 6.6).
    TailFlags,
    /// Unknown: 4.4.0 to 4.5.0 do not export it (d7f53518f7a2).
    Unknown,
}

impl OrderAt {
    pub(super) fn new(info: &VmcoreInfo, layout: &PageLayout) -> Self {
        let at = info.offset("folio._folio_order").or_else(|| {
            info.offset("page.compound_order").and_then(|offset| offset.checked_add(layout.size as u64))
        });
        if let Some(at) = at {
            return usize::try_from(at)
                .ok()
                .filter(|at| *at < layout.size * 2)
                .map_or(Self::Unknown, Self::Byte);
        }
        let tells_tails = info.offset("page.compound_info").or_else(|| info.offset("page.compound_head"));
        // A kernel with destructor numbers has no order in the flags: PG_hugetlb replaced the numbers in the same series.
        if tells_tails.is_none() || info.number("HUGETLB_PAGE_DTOR").is_some() {
            return Self::Unknown;
        }
        Self::TailFlags
    }

    fn of(&self, layout: &PageLayout, pair: &[u8]) -> Option<u8> {
        match *self {
            Self::Byte(at) => pair.get(at).copied(),
            Self::TailFlags => Some(word(pair, layout.size + layout.flags) as u8),
            Self::Unknown => None,
        }
    }
}

/// A compound page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compound {
    /// Virtual address of the head's struct page.
    pub(crate) head_at: u64,
    /// First PFN.
    pub(crate) first_pfn: u64,
    /// First PFN after it. If the order is unknown, as far as the largest order reaches.
    pub(crate) end_pfn: u64,
    /// The class of all its pages except poisoned ones.
    pub(crate) class: PageClass,
}

/// What a struct page with `PG_head` turned out to be.
pub(crate) enum Head {
    /// The head of a compound page.
    Real(Compound),
    /// A tail whose struct page shows that of the head at this address: HugeTLB's vmemmap
    /// optimization maps the head's page of the vmemmap again instead of the pages that follow (e7d324850bfc, 5.18; gone
    /// in 7.1 with the masks).
    Fake(u64),
    /// Neither; one sentence says why.
    Wrong(&'static str),
}

impl Rules {
    /// Examines `pair`, the struct pages of page `pfn`, which has `PG_head`, and of the next page. The first is at the
    /// virtual address `head_at`.
    pub(crate) fn head(&self, pair: &[u8], head_at: u64, pfn: u64) -> Head {
        let layout = &self.layout;
        let size = layout.size as u64;
        let tail_word = word(pair, layout.size + layout.compound);
        if tail_word & 1 == 0 {
            return Head::Wrong("PG_head is set, but the next page is not its tail");
        }
        let named = PageLayout::head_of(head_at.wrapping_add(size), tail_word);
        if named != head_at {
            // The kernel recognizes fake heads in the same way (e7d324850bfc, 5.18): they are copies of a head at the start of a page.
            return if head_at & 0xfff == 0 {
                Head::Fake(named)
            } else {
                Head::Wrong("PG_head is set, but the next page is another compound page's tail")
            };
        }
        let order = match self.order.of(layout, pair) {
            Some(order @ 1..) if u32::from(order) <= MAX_ORDER => Some(u32::from(order)),
            Some(_) => return Head::Wrong("a compound page has an impossible order"),
            None => None,
        };
        if order.is_some_and(|order| pfn & ((1 << order) - 1) != 0) {
            return Head::Wrong("a compound page starts at a PFN that its order does not divide");
        }
        let words = Words {
            flags: word(pair, layout.flags),
            mapping: word(pair, layout.mapping),
            mapcount: half(pair, layout.mapcount),
        };
        let hugetlb = self.hugetlb.holds(layout, &self.types, pair);
        let mut class = self.class(words);
        let hugetlb = hugetlb && class != PageClass::Slab;
        if hugetlb {
            // At most MAX_ORDER. A kernel that does not export orders does not export the mark either (d7f53518f7a2, 4.6).
            if order.is_some_and(|order| self.hugetlb_orders >> order & 1 == 0) {
                return Head::Wrong("a compound page is marked as hugetlb, which has no pages of its order");
            }
            class = PageClass::HugeTlb;
        }
        // The head of a hugetlb page has a list of its poisoned pages, which is not read (161df60e9e89, 6.0).
        if hugetlb && self.poison.holds(words.flags) {
            class = PageClass::HwPoison;
        }
        let is_user = matches!(
            class,
            PageClass::HugeTlb | PageClass::Anon | PageClass::Cache | PageClass::CachePrivate
        );
        if is_user && words.flags & self.reserved != 0 {
            return Head::Wrong("a compound page of processes or files is reserved, as the kernel image is");
        }
        if matches!(class, PageClass::Free | PageClass::Unaccepted) {
            return Head::Wrong("a compound page is marked as free");
        }
        Head::Real(Compound {
            head_at,
            first_pfn: pfn,
            end_pfn: pfn.saturating_add(1 << order.unwrap_or(MAX_ORDER)),
            class,
        })
    }
}
