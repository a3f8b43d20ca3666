//! Matches 64 struct pages at once. The code is the same for all kernels: rules become masks and values to compare with.

use super::kinds::{CONTINUES, FREE, GROUP, HEAD, MARKED, PageKinds, SIZE, Structs, TAIL, free_of};
use crate::class::PageClass;
use crate::rules::{PageLayout, Rules};

/// Bytes that are loaded at once for a field, which is at their start.
pub(super) const LOADED: usize = 16;

/// A test of some bits of a word.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bits {
    pub(super) mask: u64,
    pub(super) want: u64,
}

impl Bits {
    pub(super) const NEVER: Self = Self { mask: 0, want: 1 };
    pub(super) const ALWAYS: Self = Self { mask: 0, want: 0 };

    /// Tests that all bits of `mask` are set; an empty mask never matches.
    fn all(mask: u64) -> Self {
        if mask == 0 { Self::NEVER } else { Self { mask, want: mask } }
    }

    #[inline(always)]
    pub(super) fn hold(self, word: u64) -> bool {
        word & self.mask == self.want
    }
}

/// The rules of one kernel as masks and values.
#[derive(Debug, Clone)]
pub(super) struct PageMatcher {
    /// The index of each field among the eight words of a struct page.
    pub(super) flags_at: usize,
    pub(super) compound_at: usize,
    pub(super) mapping_at: usize,
    pub(super) mapcount_at: usize,
    /// Right shift that moves `_mapcount` to the lowest bits of its word.
    pub(super) mapcount_shift: u32,
    /// `PG_head`: any bit of it counts.
    pub(super) head: u64,
    /// The flags of poisoned and of reserved pages: any bit of them counts.
    pub(super) marks: u64,
    /// The flag of poisoned pages, among these.
    pub(super) poison: u64,
    pub(super) slab: Bits,
    pub(super) lru: Bits,
    pub(super) swap: Bits,
    pub(super) private: Bits,
    /// The class of anonymous pages.
    pub(super) anon: PageClass,
    /// Tests of `_mapcount`, each with the class of pages that pass. The first match counts.
    pub(super) types: [(Bits, PageClass); 6],
}

impl PageMatcher {
    /// Returns `None` if struct pages have another size, a field is not a word or begins in the last bytes, or a flag is in the
    /// upper half of its word. No kernel has such a field or flag.
    pub(super) fn new(rules: &Rules) -> Option<Self> {
        let layout = &rules.layout;
        let word = |offset: usize| offset.is_multiple_of(8).then_some(offset / 8);
        let last = layout.flags.max(layout.compound).max(layout.mapping).max(layout.mapcount);
        if layout.size != SIZE || !layout.mapcount.is_multiple_of(4) || last > SIZE - LOADED {
            return None;
        }
        let cache = rules.cache.lru() | rules.cache.swap() | rules.cache.private();
        if rules.head | rules.poison.flag() | rules.reserved | rules.slab.flag() | cache > u32::MAX.into() {
            return None;
        }
        Some(Self {
            flags_at: word(layout.flags)?,
            compound_at: word(layout.compound)?,
            mapping_at: word(layout.mapping)?,
            mapcount_at: layout.mapcount / 8,
            mapcount_shift: (layout.mapcount % 8) as u32 * 8,
            head: rules.head,
            marks: rules.poison.flag() | rules.reserved,
            poison: rules.poison.flag(),
            slab: Bits::all(rules.slab.flag()),
            lru: Bits::all(rules.cache.lru()),
            swap: Bits::all(rules.cache.swap()),
            private: match rules.cache.private() {
                0 => Bits::ALWAYS,
                mask => Bits::all(mask),
            },
            anon: rules.anon.class(),
            types: rules.types.tests().map(|(test, class)| {
                let test =
                    test.map_or(Bits::NEVER, |(mask, want)| Bits { mask: mask.into(), want: want.into() });
                (test, class)
            }),
        })
    }

    /// Returns the kinds of a group's pages, on any processor. The struct page of the first is at the virtual address `at`.
    pub(super) fn kinds_one_by_one(&self, structs: &Structs, at: u64) -> PageKinds {
        let mut bytes = [0; GROUP];
        let mut previous = None;
        for (index, (page, kind)) in structs.iter().zip(&mut bytes).enumerate() {
            let own = at.wrapping_add((index * SIZE) as u64);
            let compound = self.word(page, self.compound_at);
            let flags = self.word(page, self.flags_at);
            let named = if compound & 1 != 0 { PageLayout::head_of(own, compound) } else { own };
            *kind = if compound & 1 != 0 {
                TAIL | if previous == Some(named) { CONTINUES } else { 0 }
            } else if flags & self.head != 0 {
                HEAD
            } else {
                let class = self.class(flags, self.word(page, self.mapping_at), self.mapcount(page));
                class as u8 | free_of(class)
            };
            if flags & self.marks != 0 {
                *kind |= MARKED;
            }
            previous = Some(named);
        }
        let mask = |bit: u8| {
            bytes.iter().enumerate().fold(0, |mask, (index, kind)| mask | u64::from(kind & bit != 0) << index)
        };
        let tails = mask(TAIL);
        PageKinds {
            tails,
            heads: mask(HEAD),
            free: mask(FREE),
            marked: mask(MARKED),
            continues: tails & mask(CONTINUES),
            bytes,
        }
    }

    /// Returns whether none of the pages is poisoned or reserved.
    pub(super) fn unmarked(&self, structs: &Structs) -> bool {
        self.marks == 0 || self.any_flags(structs) & self.marks == 0
    }

    /// Returns whether one of the pages is poisoned.
    pub(super) fn any_poisoned(&self, structs: &Structs) -> bool {
        self.any_flags(structs) & self.poison != 0
    }

    /// Returns the flags that one of the pages has.
    fn any_flags(&self, structs: &Structs) -> u64 {
        structs.iter().fold(0, |any, page| any | self.word(page, self.flags_at))
    }

    /// Returns word `index` of a struct page.
    #[inline(always)]
    pub(super) fn word(&self, page: &[u8; SIZE], index: usize) -> u64 {
        // A mask is cheaper than a bounds check: this is the innermost loop.
        let words = page.as_chunks::<8>().0;
        words.get(index & 7).map_or(0, |word| u64::from_le_bytes(*word))
    }

    #[inline(always)]
    fn mapcount(&self, page: &[u8; SIZE]) -> u32 {
        (self.word(page, self.mapcount_at) >> self.mapcount_shift) as u32
    }

    /// What [`Rules::class`] says.
    #[inline(always)]
    fn class(&self, flags: u64, mapping: u64, mapcount: u32) -> PageClass {
        if self.slab.hold(flags) {
            return PageClass::Slab;
        }
        if (mapcount as i32) < -1 {
            let found = self.types.iter().find(|(test, _)| test.hold(mapcount.into()));
            return found.map_or(PageClass::Kernel, |(_, class)| *class);
        }
        if mapping & 1 != 0 {
            return self.anon;
        }
        match (self.lru.hold(flags) | self.swap.hold(flags), self.private.hold(flags)) {
            (false, _) => PageClass::Kernel,
            (true, false) => PageClass::Cache,
            (true, true) => PageClass::CachePrivate,
        }
    }
}
