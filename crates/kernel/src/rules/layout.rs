//! Offsets of the fields of `struct page`.

use pagehaul_machine::{InfoError, VmcoreInfo};

/// Virtual addresses from here on hold the kernel image, modules and fixed mappings, never struct pages: x86_64 has none in
/// the last 2 GiB, arm64 none in the last 1 GiB (`VMEMMAP_END`).
pub(crate) const NO_STRUCT_PAGES: u64 = 0xffff_ffff_f800_0000;

/// Byte offsets in `struct page`. Each field lies within `size`.
#[derive(Debug, Clone)]
pub(crate) struct PageLayout {
    /// Bytes per struct page. Not always 64: 56 without memory control groups, 80 with KMSAN …
    pub(crate) size: usize,
    pub(crate) flags: usize,
    pub(crate) mapping: usize,
    pub(crate) mapcount: usize,
    /// `compound_head`, `compound_info` since 7.1.
    pub(crate) compound: usize,
    /// The field with the order of a free block.
    pub(crate) private: Option<usize>,
}

impl PageLayout {
    pub(crate) fn new(info: &VmcoreInfo) -> Result<Self, InfoError> {
        const PURPOSE: &str = "reading struct pages";
        let size = info.required(info.size("page"), "SIZE(page)", PURPOSE)?;
        if !(32..=512).contains(&size) || size % 8 != 0 {
            return Err(InfoError::BadValue {
                key: "SIZE(page)".into(),
                value: size.to_string(),
                expected: "a struct page has 32 to 512 bytes, in whole words",
            });
        }
        let field = |offset: Option<u64>, key: &'static str, bytes: u64| {
            let offset = info.required(offset, key, PURPOSE)?;
            if offset > size - bytes {
                return Err(InfoError::BadValue {
                    key: key.to_owned(),
                    value: offset.to_string(),
                    expected: "the field lies within the struct page",
                });
            }
            Ok(offset as usize)
        };
        // d50569612c29 (7.1) renamed compound_head to compound_info. 4.4.0 to 4.5.0 export neither (8639a847b0e1, 4.6 and
        // stable), but there the word was already the first of `lru` (1d798ca3f164, 4.4): list pointers are even.
        let compound = info
            .offset("page.compound_info")
            .or_else(|| info.offset("page.compound_head"))
            .or_else(|| info.offset("page.lru"));
        Ok(Self {
            size: size as usize,
            flags: field(info.offset("page.flags"), "OFFSET(page.flags)", 8)?,
            mapping: field(info.offset("page.mapping"), "OFFSET(page.mapping)", 8)?,
            mapcount: field(info.offset("page._mapcount"), "OFFSET(page._mapcount)", 4)?,
            compound: field(compound, "OFFSET(page.compound_head)", 8)?,
            private: match info.offset("page.private") {
                Some(_) => Some(field(info.offset("page.private"), "OFFSET(page.private)", 8)?),
                None => None,
            },
        })
    }

    /// Returns the address of the head of a tail page, from the tail's own address and its `compound_head`/`compound_info`
    /// (bit 0 of which is set in tails, and only there).
    ///
    /// Since 8c846c879e22 (7.1) the word is a mask for the tail's address where `struct page` is a power of two *and*
    /// CONFIG_HUGETLB_PAGE_OPTIMIZE_VMEMMAP is set, which VMCOREINFO does not say; otherwise a pointer, as before. The
    /// two cannot be confused: a mask for 2^18 pages of 512 bytes still lies in the last 128 MiB of the address space,
    /// where no struct page is.
    #[inline]
    pub(crate) fn head_of(tail_at: u64, compound: u64) -> u64 {
        if compound >= NO_STRUCT_PAGES { tail_at & compound & !1 } else { compound & !1 }
    }
}

/// Returns the address of the head of the compound page that the page at `at` is in, its own if it is in none. `compound` is its
/// `compound_head`, `compound_info` since 7.1.
pub fn page_head(at: u64, compound: u64) -> u64 {
    if compound & 1 == 0 { at } else { PageLayout::head_of(at, compound) }
}

/// Returns the little-endian word at `offset`; 0 past the end, which offsets of [`PageLayout`] never reach.
#[inline(always)]
pub(crate) fn word(page: &[u8], offset: usize) -> u64 {
    match page.get(offset..).and_then(|rest| rest.first_chunk::<8>()) {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => 0,
    }
}

/// Returns the little-endian half word at `offset`; 0 past the end.
#[inline(always)]
pub(crate) fn half(page: &[u8], offset: usize) -> u32 {
    match page.get(offset..).and_then(|rest| rest.first_chunk::<4>()) {
        Some(bytes) => u32::from_le_bytes(*bytes),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_named_by_pointers_and_by_masks() {
        let (head, tail) = (0xffff_ea00_0000_4000, 0xffff_ea00_0000_4140);
        assert_eq!(page_head(tail, 0), tail, "in no compound page");
        assert_eq!(page_head(tail, head | 1), head);
        // 8 pages of 64 bytes.
        assert_eq!(page_head(tail, !(8 * 64 - 1) | 1), head);
    }
}
