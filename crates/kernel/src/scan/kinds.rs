//! A first look at 64 struct pages at once: what kind each is, as one byte, before anything that depends on its
//! neighbours is decided. The same for all kernels: rules become masks and values to compare with.

use crate::PageClass;
use crate::rules::{PageLayout, Rules};

/// Pages in a group: one page of the vmemmap, and one word of a bitmap.
pub(super) const GROUP: usize = 64;
/// Bytes of the struct pages looked at this way. Others (56 or 80) are rare, and go one by one.
pub(super) const SIZE: usize = 64;
/// The struct pages of a group.
pub(super) type Structs = [[u8; SIZE]; GROUP];

/// Low bits of a kind: the class of a page that is neither tail nor head, `PageClass as u8`.
pub(super) const CLASS: u8 = 0x0f;
/// In a tail's kind, in place of the class: it names the same head as the page before it, or that page itself.
pub(super) const CONTINUES: u8 = 0x01;
/// The page is poisoned, whatever else it is.
pub(super) const POISONED: u8 = 0x10;
/// The page is the first of a free block, if neither tail nor head.
pub(super) const FREE: u8 = 0x20;
/// The page has `PG_head`.
pub(super) const HEAD: u8 = 0x40;
/// The page is the tail of a compound page.
pub(super) const TAIL: u8 = 0x80;

/// A test of some bits of a word.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bits {
    pub(super) mask: u64,
    pub(super) want: u64,
}

impl Bits {
    pub(super) const NEVER: Self = Self { mask: 0, want: 1 };
    pub(super) const ALWAYS: Self = Self { mask: 0, want: 0 };

    /// All bits of `mask`; never where there are none.
    fn all(mask: u64) -> Self {
        if mask == 0 { Self::NEVER } else { Self { mask, want: mask } }
    }

    #[inline(always)]
    pub(super) fn hold(self, word: u64) -> bool {
        word & self.mask == self.want
    }
}

/// The rules of one kernel in this form.
#[derive(Debug, Clone)]
pub(super) struct Look {
    /// Which of the eight words of a struct page each field is.
    pub(super) flags_at: usize,
    pub(super) compound_at: usize,
    pub(super) mapping_at: usize,
    pub(super) mapcount_at: usize,
    /// Bits to shift that word right by, to have `_mapcount` lowest.
    pub(super) mapcount_shift: u32,
    /// `PG_head`: any bit of it counts.
    pub(super) head: u64,
    pub(super) poison: Bits,
    pub(super) slab: Bits,
    pub(super) lru: Bits,
    pub(super) swap: Bits,
    pub(super) private: Bits,
    /// What anonymous pages are.
    pub(super) anon: PageClass,
    /// Tests of `_mapcount` and what a page is that passes. The first counts.
    pub(super) types: [(Bits, PageClass); 6],
}

impl Look {
    /// None where struct pages are of another size, or their fields lie otherwise than on words.
    pub(super) fn new(rules: &Rules) -> Option<Self> {
        let layout = &rules.layout;
        let word = |offset: usize| offset.is_multiple_of(8).then_some(offset / 8);
        if layout.size != SIZE || !layout.mapcount.is_multiple_of(4) {
            return None;
        }
        Some(Self {
            flags_at: word(layout.flags)?,
            compound_at: word(layout.compound)?,
            mapping_at: word(layout.mapping)?,
            mapcount_at: layout.mapcount / 8,
            mapcount_shift: (layout.mapcount % 8) as u32 * 8,
            head: rules.head,
            poison: Bits::all(rules.poison.flag()),
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

    /// The kinds of a group's pages; the struct page of the first is at the virtual address `at`. `ahead` are those that
    /// come after the next few, to be fetched meanwhile.
    pub(super) fn kinds(&self, structs: &Structs, ahead: &[[u8; SIZE]], at: u64) -> Kinds {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, the only thing the function asks for beyond safe Rust.
            return unsafe { super::avx2::kinds(self, structs, ahead, at) };
        }
        self.kinds_one_by_one(structs, at)
    }

    /// The same on any processor.
    pub(super) fn kinds_one_by_one(&self, structs: &Structs, at: u64) -> Kinds {
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
                let free = matches!(class, PageClass::Free | PageClass::Unaccepted);
                class as u8 | if free { FREE } else { 0 }
            };
            if self.poison.hold(flags) {
                *kind |= POISONED;
            }
            previous = Some(named);
        }
        let mask = |bit: u8| {
            bytes.iter().enumerate().fold(0, |mask, (index, kind)| mask | u64::from(kind & bit != 0) << index)
        };
        let tails = mask(TAIL);
        Kinds {
            tails,
            heads: mask(HEAD),
            free: mask(FREE),
            poisoned: mask(POISONED),
            continues: tails & mask(CONTINUES),
            bytes,
        }
    }

    /// Whether none of the pages is poisoned.
    pub(super) fn unharmed(&self, structs: &Structs) -> bool {
        self.poison.mask == 0
            || structs.iter().fold(0, |any, page| any | self.word(page, self.flags_at)) & self.poison.mask
                == 0
    }

    /// Word `index` of a struct page.
    #[inline(always)]
    pub(super) fn word(&self, page: &[u8; SIZE], index: usize) -> u64 {
        // Without a check of bounds, which a mask is cheaper than: this is the innermost loop of all.
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

/// The kinds of a group's pages. In masks bit *i* is page *i*.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kinds {
    pub(super) bytes: [u8; GROUP],
    pub(super) tails: u64,
    pub(super) heads: u64,
    pub(super) free: u64,
    pub(super) poisoned: u64,
    pub(super) continues: u64,
}

impl Kinds {
    /// The class of each page, as far as its own struct page tells.
    pub(super) fn classes(&self) -> [PageClass; GROUP] {
        self.bytes.map(|kind| CLASSES[usize::from(kind & CLASS)])
    }
}

/// Classes by number; the last three are none.
const CLASSES: [PageClass; 16] = {
    let mut classes = [PageClass::Undecided; 16];
    let mut number = 0;
    while number < PageClass::COUNT {
        classes[number] = PageClass::ALL[number];
        number += 1;
    }
    classes
};
