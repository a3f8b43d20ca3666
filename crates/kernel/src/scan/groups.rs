//! Classifies a block 64 pages at a time: most pages need only their own struct page, the others go through the rules.

use super::block::{Block, Stop};
use super::kinds::{CLASS, GROUP, PageKinds, SIZE, Structs};
use super::matcher::PageMatcher;
use crate::class::PageClass;

/// How far ahead struct pages are prefetched, in pages: 4 KiB of them.
const AHEAD: usize = 64;

impl Block<'_> {
    /// Classifies pages in whole groups, as many as `structs` and the block hold; they begin with that of the
    /// next page. None if less than a group is left.
    pub(super) fn groups(&mut self, matcher: &PageMatcher, structs: &[[u8; SIZE]]) -> Option<Stop> {
        let base = self.next;
        loop {
            let rest = structs.get(self.next.wrapping_sub(base)..).unwrap_or_default();
            let group = rest.first_chunk::<GROUP>()?;
            let end = self.next + GROUP;
            if end > self.out.len() {
                return None;
            }
            if end <= self.free_end && matcher.unmarked(group) {
                self.fill(end, self.free);
                continue;
            }
            let stop = self.group(matcher, rest);
            if stop.is_some() {
                return stop;
            }
        }
    }

    /// The group that starts with the next page; `structs` has its struct pages, and perhaps later ones.
    fn group(&mut self, matcher: &PageMatcher, structs: &[[u8; SIZE]]) -> Option<Stop> {
        let first = self.next;
        let group = structs.first_chunk::<GROUP>()?;
        let ahead = structs.get(AHEAD..).unwrap_or_default();
        let kinds = page_kinds(matcher, group, ahead, self.address(first));
        if let Some(out) = self.out.get_mut(first..first + GROUP) {
            out.copy_from_slice(&kinds.classes());
        }
        let special = kinds.tails | kinds.heads | kinds.free;
        let mut stop = None;
        while stop.is_none() {
            if self.next < self.free_end {
                self.fill(self.free_end.min(first + GROUP), self.free);
            }
            // The next page that needs more than its struct page.
            let skipped = self.next - first;
            let Some(left) = special.checked_shr(skipped as u32).filter(|left| *left != 0) else {
                self.next = first + GROUP;
                break;
            };
            let index = skipped + left.trailing_zeros() as usize;
            self.next = first + index;
            let Some(page) = group.get(index) else { break };
            let bit = 1 << index;
            if kinds.tails & bit != 0 {
                stop = self.tail(page);
                if stop.is_none() {
                    self.tails_after(page, kinds.continues, index);
                }
            } else if kinds.heads & bit != 0 {
                let pair = structs.get(index..index + 2).map(<[_]>::as_flattened);
                stop = self.head(page, pair);
                if stop.is_none() {
                    self.tails_after_head(kinds.continues, index);
                }
            } else {
                let kind = kinds.bytes.get(index).copied().unwrap_or(0) & CLASS;
                self.starts(page, PageClass::from_number(kind));
            }
        }
        let done = self.next.min(first + GROUP) - first;
        let marked = kinds.marked & u64::MAX.checked_shr((GROUP - done) as u32).unwrap_or(0);
        if marked != 0 {
            self.marked(matcher, group, first, marked);
        }
        stop
    }

    /// Corrects the classes of the pages of `marked`, in the group that starts with page `first`.
    #[cold]
    #[inline(never)]
    fn marked(&mut self, matcher: &PageMatcher, group: &Structs, first: usize, marked: u64) {
        let classes = self.out.get(first..first + GROUP).unwrap_or_default();
        // Most reserved pages are next to reserved ones, all of them the kernel's.
        let any_filtered = classes.iter().fold(false, |any, class| any | class.is_filtered());
        if !any_filtered && !matcher.any_poisoned(group) {
            return;
        }
        for index in pagehaul_physmem::bits::ones(&[marked]) {
            let flags = group.get(index).map_or(0, |page| matcher.word(page, matcher.flags_at));
            let page = first + index;
            let Some(class) = self.out.get(page).copied() else { break };
            let class = self.of_marked(page, flags, class);
            if let Some(slot) = self.out.get_mut(page) {
                *slot = class;
            }
        }
    }

    /// Does the same for the tails after head `index`, unless it is not a head or a copy of another.
    fn tails_after_head(&mut self, continues: u64, index: usize) {
        let more = (continues >> index >> 1).trailing_ones() as usize;
        if let Some(class) = self.headed_by(self.next - 1) {
            self.fill((self.next + more).min(self.compound_end), class);
        }
    }

    /// Classifies the tails after tail `index` of the group that have the same head.
    fn tails_after(&mut self, page: &[u8], continues: u64, index: usize) {
        let more = (continues >> index >> 1).trailing_ones() as usize;
        if more == 0 {
            return;
        }
        if let Some(class) = self.tails_of(self.next - 1, page) {
            self.fill((self.next + more).min(self.compound_end), class);
        }
    }
}

/// Returns the kinds of a group's pages; the struct page of the first is at the virtual address `at`. `ahead` are later
/// struct pages, which are prefetched.
pub(super) fn page_kinds(
    matcher: &PageMatcher,
    structs: &Structs,
    ahead: &[[u8; SIZE]],
    at: u64,
) -> PageKinds {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, the only requirement of the function.
        return unsafe { super::avx2::kinds(matcher, structs, ahead, at) };
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("neon") {
        // SAFETY: the processor has NEON, the only requirement of the function.
        return unsafe { super::neon::kinds(matcher, structs, at) };
    }
    let _ = ahead;
    matcher.kinds_one_by_one(structs, at)
}
