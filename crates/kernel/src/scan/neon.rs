//! [`PageMatcher`] with NEON, two struct pages at a time.
//!
//! Lane *j* of vector *k* is page 8*j* + *k*: the kinds, shifted to byte *k* of their lanes, are then in order, and the
//! previous page is in the same lane of the previous vector.

use std::arch::aarch64::*;

use super::kinds::{CONTINUES, FREE, GROUP, HEAD, MARKED, PageKinds, SIZE, Structs, TAIL, free_of};
use super::matcher::{Bits, PageMatcher};
use crate::class::PageClass;
use crate::rules::NO_STRUCT_PAGES;

/// Pages between two lanes.
const STRIDE: usize = 8;
/// Pages in the lanes of one vector of kinds.
const PART: usize = 2 * STRIDE;

/// Returns the kinds of a group's pages.
#[target_feature(enable = "neon")]
pub(super) fn kinds(matcher: &PageMatcher, structs: &Structs, at: u64) -> PageKinds {
    let mut bytes = [0; GROUP];
    let mut words = [0; GROUP / STRIDE];
    let mut last = None;
    let parts = structs.as_chunks::<PART>().0.iter();
    for ((structs, words), part) in parts.zip(words.as_chunks_mut::<2>().0).zip(0..) {
        let (kinds, named) = part_kinds(matcher, structs, at.wrapping_add(part * (PART * SIZE) as u64), last);
        last = Some(named);
        *words = [vgetq_lane_u64::<0>(kinds), vgetq_lane_u64::<1>(kinds)];
    }
    for (place, word) in bytes.as_chunks_mut::<STRIDE>().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    let mask = |bit: u8| {
        let words = words.iter().rev();
        words.fold(0, |mask, word| mask << STRIDE | gather(word >> bit.trailing_zeros()))
    };
    let tails = mask(TAIL);
    PageKinds {
        bytes,
        tails,
        heads: mask(HEAD),
        free: mask(FREE),
        marked: mask(MARKED),
        continues: mask(CONTINUES) & tails,
    }
}

/// Returns the lowest bits of all bytes, in order: NEON has no instruction for it.
fn gather(word: u64) -> u64 {
    (word & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

/// Returns the kinds of 16 pages, a byte each, and the head address in the last one. `before` is the head address in the
/// page before the first.
#[target_feature(enable = "neon")]
fn part_kinds(
    matcher: &PageMatcher,
    structs: &[[u8; SIZE]; PART],
    at: u64,
    before: Option<u64>,
) -> (uint64x2_t, u64) {
    let (low, high) = structs.split_at(STRIDE);
    let mut kinds = all(0);
    let (mut first_tails, mut first_named, mut previous) = (kinds, kinds, kinds);
    let mut own = from_words([at, at.wrapping_add((STRIDE * SIZE) as u64)]);
    for (k, (first, second)) in low.iter().zip(high).enumerate() {
        let load = |word| from_words([matcher.word(first, word), matcher.word(second, word)]);
        let flags = load(matcher.flags_at);
        let compound = load(matcher.compound_at);
        let is_tail = vtstq_u64(compound, all(1));
        let named = vbslq_u64(is_tail, head_of(own, compound), own);
        let mut tail = all(TAIL.into());
        if k == 0 {
            (first_tails, first_named) = (is_tail, named);
        } else {
            tail = vorrq_u64(tail, vandq_u64(vceqq_u64(named, previous), all(CONTINUES.into())));
        }
        previous = named;
        let mapcount = mapcount(matcher, load(matcher.mapcount_at));
        let plain = class(matcher, flags, load(matcher.mapping_at), mapcount);
        let kind = vbslq_u64(vtstq_u64(flags, all(matcher.head)), all(HEAD.into()), plain);
        let kind = vbslq_u64(is_tail, tail, kind);
        let harm = vandq_u64(vtstq_u64(flags, all(matcher.marks)), all(MARKED.into()));
        let place = vdupq_n_s64(k as i64 * 8);
        kinds = vorrq_u64(kinds, vshlq_u64(vorrq_u64(kind, harm), place));
        own = vaddq_u64(own, all(SIZE as u64));
    }
    // The first page of each lane follows the last of the previous lane.
    let before = before.unwrap_or(!vgetq_lane_u64::<0>(first_named));
    let same = vceqq_u64(first_named, from_words([before, vgetq_lane_u64::<0>(previous)]));
    let continues = vandq_u64(vandq_u64(same, first_tails), all(CONTINUES.into()));
    (vorrq_u64(kinds, continues), vgetq_lane_u64::<1>(previous))
}

/// [`PageLayout::head_of`](crate::rules::PageLayout::head_of): `word` is a mask if it is an address without struct pages,
/// else the address of the head.
#[target_feature(enable = "neon")]
fn head_of(own: uint64x2_t, word: uint64x2_t) -> uint64x2_t {
    let is_mask = vcgeq_u64(word, all(NO_STRUCT_PAGES));
    vbicq_u64(vbslq_u64(is_mask, vandq_u64(own, word), word), all(1))
}

#[target_feature(enable = "neon")]
fn mapcount(matcher: &PageMatcher, words: uint64x2_t) -> uint64x2_t {
    let shifted = vshlq_u64(words, vdupq_n_s64(-i64::from(matcher.mapcount_shift)));
    vandq_u64(shifted, all(u32::MAX.into()))
}

/// Returns the class of each page by its own struct page, and [`FREE`] at the start of a free block.
#[target_feature(enable = "neon")]
fn class(matcher: &PageMatcher, flags: uint64x2_t, mapping: uint64x2_t, mapcount: uint64x2_t) -> uint64x2_t {
    let of = |class: PageClass| all(class as u64);
    let cached = vorrq_u64(hold(matcher.lru, flags), hold(matcher.swap, flags));
    let private = hold(matcher.private, flags);
    let cache = vbslq_u64(private, of(PageClass::CachePrivate), of(PageClass::Cache));
    let mapped = vbslq_u64(cached, cache, of(PageClass::Kernel));
    let mapped = vbslq_u64(vtstq_u64(mapping, all(1)), of(matcher.anon), mapped);
    // Below -1 as a signed half word: from 2^31 to 2^32 - 2 as it stands in its lane.
    let negative = vcgtq_u64(mapcount, all(i32::MAX as u64));
    let is_typed = vbicq_u64(negative, vceqq_u64(mapcount, all(u32::MAX.into())));
    let mut class = mapped;
    // Six tests, which most pages need none of.
    if vmaxvq_u32(vreinterpretq_u32_u64(is_typed)) != 0 {
        class = vbslq_u64(is_typed, type_class(matcher, mapcount), mapped);
    }
    vbslq_u64(hold(matcher.slab, flags), of(PageClass::Slab), class)
}

/// Returns the class of pages with a type.
#[target_feature(enable = "neon")]
fn type_class(matcher: &PageMatcher, mapcount: uint64x2_t) -> uint64x2_t {
    matcher.types.iter().rev().fold(all(PageClass::Kernel as u64), |typed, (test, class)| {
        vbslq_u64(hold(*test, mapcount), all((*class as u8 | free_of(*class)).into()), typed)
    })
}

#[target_feature(enable = "neon")]
fn hold(bits: Bits, words: uint64x2_t) -> uint64x2_t {
    vceqq_u64(vandq_u64(words, all(bits.mask)), all(bits.want))
}

#[target_feature(enable = "neon")]
fn all(word: u64) -> uint64x2_t {
    vdupq_n_u64(word)
}

#[target_feature(enable = "neon")]
fn from_words([a, b]: [u64; 2]) -> uint64x2_t {
    vcombine_u64(vcreate_u64(a), vcreate_u64(b))
}
