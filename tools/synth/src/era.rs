//! Changes of `struct page` and VMCOREINFO by kernel release.

/// Kernel releases with the same rules, named after the first of them that this crate knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]

pub enum Era {
    V4_4,
    V4_10,
    V4_15,
    V4_16,
    V5_10,
    V6_1,
    V6_2,
    V6_3,
    V6_6,
    V6_9,
    V6_10,
    V6_12,
    V6_16,
    V7_1,
}

use Era::*;

impl Era {
    /// Every era, oldest first.
    pub const ALL: [Era; 14] =
        [V4_4, V4_10, V4_15, V4_16, V5_10, V6_1, V6_2, V6_3, V6_6, V6_9, V6_10, V6_12, V6_16, V7_1];

    /// Returns `uname -r` of a kernel of this era.
    pub fn release(self) -> &'static str {
        match self {
            V4_4 => "4.4.302-synth",
            V4_10 => "4.10.17-synth",
            V4_15 => "4.15.18-synth",
            V4_16 => "4.16.18-synth",
            V5_10 => "5.10.218-synth",
            V6_1 => "6.1.94-synth",
            V6_2 => "6.2.16-synth",
            V6_3 => "6.3.13-synth",
            V6_6 => "6.6.35-synth",
            V6_9 => "6.9.6-synth",
            V6_10 => "6.10.14-synth",
            V6_12 => "6.12.30-synth",
            V6_16 => "6.16.9-synth",
            V7_1 => "7.1.2-synth",
        }
    }

    /// Bit numbers of the page flags.
    pub(crate) fn flags(self) -> Flags {
        // PG_waiters came with 4.10 (62906027091f), which also made PG_swapcache an alias of PG_owner_priv_1
        // (6326fec1122c); PG_workingset with 4.20 (1899ad18c607); the low byte was rearranged for the order
        // of compound pages in 6.6; PG_slab left in 6.10 (46df8e73a4a3), PG_error in 6.12; PG_dropbehind came
        // in 6.14.
        match self {
            V4_4 => Flags::new([2, 3, 4, 5, 6, 7, 8, 10, 11, 14, 15, 18, 22]),
            V4_10 | V4_15 | V4_16 => Flags::new([2, 3, 4, 5, 6, 8, 9, 11, 12, 15, 9, 18, 22]),
            V5_10 | V6_1 | V6_2 | V6_3 => Flags::new([1, 2, 3, 4, 5, 9, 10, 12, 13, 16, 10, 19, 23]),
            V6_6 | V6_9 => Flags::new([2, 3, 4, 5, 8, 11, 12, 14, 15, 6, 12, 19, 23]),
            V6_10 => Flags::new([2, 3, 4, 5, 8, NONE, 11, 13, 14, 6, 11, 18, 22]),
            V6_12 => Flags::new([2, 3, 4, 5, 8, NONE, 10, 13, 14, 6, 10, 17, 20]),
            V6_16 | V7_1 => Flags::new([2, 3, 4, 5, 8, NONE, 10, 13, 14, 6, 10, 17, 21]),
        }
    }

    /// Byte offsets of the fields of `struct page`.
    pub(crate) fn fields(self) -> Fields {
        // 4.18 changed the layout (4da1984edbbe and its series).
        if self < V5_10 {
            Fields { mapping: 8, index: 16, mapcount: 24, refcount: 28, lru: 32, private: 48 }
        } else {
            Fields { lru: 8, mapping: 24, index: 32, private: 40, mapcount: 48, refcount: 52 }
        }
    }

    /// Where a compound page keeps its order.
    pub(crate) fn order_at(self) -> OrderAt {
        let lru = self.fields().lru;
        match self {
            // f1e61557f023 and 1d798ca3f164: own fields in the first tail; two unsigned ints on 64 bits.
            V4_4 | V4_10 | V4_15 => OrderAt::Fields { dtor: lru + 8, order: lru + 12, width: 4 },
            // One byte each from 4.16.
            V4_16 | V5_10 | V6_1 | V6_2 => OrderAt::Fields { dtor: lru + 8, order: lru + 9, width: 1 },
            // The names moved to struct folio; same place.
            V6_3 => OrderAt::Fields { dtor: 16, order: 17, width: 1 },
            // ebc1baf5c9b4 (6.6): the low byte of the first tail's flags.
            _ => OrderAt::FlagsByte,
        }
    }

    /// `_mapcount` of a page of this kind, where pages of the kind carry one.
    pub(crate) fn page_type(self, kind: PageType) -> Option<u32> {
        use PageType::*;
        if self >= V6_12 {
            // 4ffca5a96678 (6.12): the type is the top byte.
            let byte: u32 = match kind {
                Buddy => 0xf0,
                Offline => 0xf1,
                Table => 0xf2,
                Hugetlb => 0xf4,
                Slab => 0xf5,
                Zsmalloc => 0xf6,
                Unaccepted => 0xf7,
                // Came with 6.15.
                LargeKmalloc if self >= V6_16 => 0xf8,
                LargeKmalloc => return None,
            };
            return Some(byte << 24);
        }
        if self < V5_10 {
            // Before 4.18 (6e292b9be7f4) the values were plain negative numbers.
            return (kind == Buddy).then_some(-128_i32 as u32);
        }
        // One bit each, cleared where the type is set. PG_kmemcg stood at 0x200 until 5.11.
        Some(!match kind {
            Buddy => 0x80,
            Offline => 0x100,
            Table if self < V6_1 => 0x400,
            Table => 0x200,
            // d99e3140a4d3 (6.9).
            Hugetlb if self >= V6_9 => 0x800,
            // 46df8e73a4a3 (6.10).
            Slab if self >= V6_10 => 0x1000,
            Zsmalloc if self >= V6_10 => 0x4000,
            _ => return None,
        })
    }

    /// Whether tail pages hold a mask in place of a pointer (7.1, for `struct page` sizes that are powers of
    /// two).
    pub(crate) fn has_mask(self, struct_page: u64) -> bool {
        self >= V7_1 && struct_page.is_power_of_two()
    }

    /// Returns how the vmemmap of HugeTLB pages is optimized.
    pub(crate) fn hvo(self) -> Hvo {
        match self {
            // f41f2ed43ca5 (5.14) came first; e7d324850bfc (5.18) mapped the head's page too.
            era if era < V6_1 => Hvo::No,
            era if era < V7_1 => Hvo::FakeHeads,
            _ => Hvo::SharedTails,
        }
    }
}

/// A bit that no page has.
pub(crate) const NONE: u32 = 64;

/// Bit numbers in `page.flags`; [`NONE`] where the kernel has no such flag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flags {
    pub referenced: u32,
    pub uptodate: u32,
    pub dirty: u32,
    pub lru: u32,
    pub active: u32,
    pub slab: u32,
    pub owner_priv_1: u32,
    pub reserved: u32,
    pub private: u32,
    pub head: u32,
    pub swapcache: u32,
    pub swapbacked: u32,
    pub hwpoison: u32,
}

impl Flags {
    fn new(bits: [u32; 13]) -> Self {
        let [
            referenced,
            uptodate,
            dirty,
            lru,
            active,
            slab,
            owner_priv_1,
            reserved,
            private,
            head,
            swapcache,
            swapbacked,
            hwpoison,
        ] = bits;
        Self {
            referenced,
            uptodate,
            dirty,
            lru,
            active,
            slab,
            owner_priv_1,
            reserved,
            private,
            head,
            swapcache,
            swapbacked,
            hwpoison,
        }
    }
}

/// A flag as a word; 0 for one the kernel does not have.
pub(crate) fn bit(number: u32) -> u64 {
    1_u64.checked_shl(number).unwrap_or(0)
}

/// PG_hugetlb of the first tail, 6.6 to 6.8: an alias of PG_active.
pub(crate) const PG_HUGETLB: u32 = 8;

/// Byte offsets of the fields of `struct page`. `lru` is also where `compound_head` lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    pub mapping: u64,
    pub index: u64,
    pub mapcount: u64,
    pub refcount: u64,
    pub lru: u64,
    pub private: u64,
}

/// Place of a compound page's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OrderAt {
    /// In fields of the first tail, at byte offsets, each `width` bytes.
    Fields { dtor: u64, order: u64, width: u64 },
    /// In the low byte of the first tail's flags.
    FlagsByte,
}

/// Page types: marks in `_mapcount`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PageType {
    Buddy,
    Offline,
    Table,
    Hugetlb,
    Slab,
    Zsmalloc,
    Unaccepted,
    LargeKmalloc,
}

/// HugeTLB vmemmap optimization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hvo {
    No,
    /// All vmemmap pages of a huge page map its first one: every 64th struct page looks like a head.
    FakeHeads,
    /// The first vmemmap page belongs to the huge page, the others map one shared page of tails.
    SharedTails,
}
