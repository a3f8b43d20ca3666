//! The kind of a struct page: one byte with all that the struct page alone shows, before rules that depend on its
//! neighbours.

use crate::class::PageClass;

/// Pages in a group: one page of the vmemmap, and one word of a bitmap.
pub(super) const GROUP: usize = 64;
/// Bytes of struct pages that are matched in groups. Others (56 or 80) are rare, and are classified one by one.
pub(super) const SIZE: usize = 64;
/// The struct pages of a group.
pub(super) type Structs = [[u8; SIZE]; GROUP];

/// Low bits of a kind: the class of a page that is neither tail nor head, `PageClass as u8`.
pub(super) const CLASS: u8 = 0x0f;
/// In a tail's kind, instead of the class: its head is that of the previous page, or the previous page itself.
pub(super) const CONTINUES: u8 = 0x01;
/// The page is poisoned or reserved: its flags decide.
pub(super) const MARKED: u8 = 0x10;
/// The page is the first of a free block, or seems to be hugetlb without being compound, if neither tail nor head.
pub(super) const FREE: u8 = 0x20;
/// The page has `PG_head`.
pub(super) const HEAD: u8 = 0x40;
/// The page is the tail of a compound page.
pub(super) const TAIL: u8 = 0x80;

/// Returns [`FREE`] for a class that needs more rules than those of single pages.
pub(super) const fn free_of(class: PageClass) -> u8 {
    if matches!(class, PageClass::Free | PageClass::Unaccepted | PageClass::HugeTlb) { FREE } else { 0 }
}

/// The kinds of a group's pages. In masks bit *i* is page *i*.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PageKinds {
    pub(super) bytes: [u8; GROUP],
    pub(super) tails: u64,
    pub(super) heads: u64,
    pub(super) free: u64,
    pub(super) marked: u64,
    pub(super) continues: u64,
}

impl PageKinds {
    /// The class of each page by its own struct page.
    pub(super) fn classes(&self) -> [PageClass; GROUP] {
        self.bytes.map(|kind| PageClass::from_number(kind & CLASS))
    }
}
