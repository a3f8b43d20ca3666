//! [`PageMatcher`] with AVX2, four struct pages at a time.
//!
//! Lane *j* of vector *k* is page 8*j* + *k*: the kinds, shifted to byte *k* of their lanes, are then in order, and the
//! previous page is in the same lane of the previous vector.

use std::arch::x86_64::*;

use super::kinds::{CONTINUES, FREE, GROUP, HEAD, POISONED, PageKinds, SIZE, Structs, TAIL};
use super::matcher::{Bits, PageMatcher};
use crate::PageClass;
use crate::rules::NO_STRUCT_PAGES;

/// Pages in 32 bytes of kinds.
const HALF: usize = GROUP / 2;
/// Pages between two lanes.
const STRIDE: usize = 8;

/// Returns the kinds of a group's pages. `ahead` are later struct pages, which are prefetched.
#[target_feature(enable = "avx2")]
pub(super) fn kinds(matcher: &PageMatcher, structs: &Structs, ahead: &[[u8; SIZE]], at: u64) -> PageKinds {
    let mut bytes = [0; GROUP];
    let (mut tails, mut heads, mut free, mut poisoned, mut continues) = (0, 0, 0, 0, 0);
    let (halves, _) = structs.as_chunks::<HALF>();
    let (places, _) = bytes.as_chunks_mut::<HALF>();
    let mut last = None;
    for (half, (structs, place)) in halves.iter().zip(places).enumerate() {
        let shift = half * HALF;
        let first = at.wrapping_add((shift * SIZE) as u64);
        let soon = ahead.get(shift..).unwrap_or_default();
        let (kinds, named) = half_kinds(matcher, structs, soon, first, last);
        last = Some(named);
        store(kinds, place);
        // The highest bit of every byte, after a shift of the wanted bit to it.
        let mask = |bits: __m256i| u64::from(_mm256_movemask_epi8(bits).cast_unsigned()) << shift;
        tails |= mask(kinds);
        heads |= mask(_mm256_slli_epi64::<1>(kinds));
        free |= mask(_mm256_slli_epi64::<2>(kinds));
        poisoned |= mask(_mm256_slli_epi64::<3>(kinds));
        continues |= mask(_mm256_slli_epi64::<7>(kinds));
    }
    PageKinds { bytes, tails, heads, free, poisoned, continues: continues & tails }
}

/// Returns the kinds of 32 pages, a byte each, and the head address in the last one. `before` is the head address in the
/// page before the first.
#[target_feature(enable = "avx2")]
fn half_kinds(
    matcher: &PageMatcher,
    structs: &[[u8; SIZE]; HALF],
    ahead: &[[u8; SIZE]],
    at: u64,
    before: Option<u64>,
) -> (__m256i, u64) {
    let lanes = [0, 1, 2, 3].map(|lane: u64| lane * (STRIDE * SIZE) as u64);
    let offsets = from_words(lanes);
    let one = all(1);
    let mut kinds = _mm256_setzero_si256();
    let mut first_tails = kinds;
    let mut first_named = kinds;
    let mut previous = kinds;
    for k in 0..STRIDE {
        let load = |word: usize| {
            from_words(
                [0, 1, 2, 3]
                    .map(|lane| structs.get(lane * STRIDE + k).map_or(0, |page| matcher.word(page, word))),
            )
        };
        // One cache line per struct page, in an order that the hardware prefetcher does not follow.
        for page in ahead.iter().skip(k * 4).take(4) {
            _mm_prefetch::<_MM_HINT_T0>(page.as_ptr().cast());
        }
        let own = _mm256_add_epi64(all(at.wrapping_add((k * SIZE) as u64)), offsets);
        let flags = load(matcher.flags_at);
        let compound = load(matcher.compound_at);
        let is_tail = _mm256_cmpeq_epi64(_mm256_and_si256(compound, one), one);
        let named = _mm256_blendv_epi8(own, head_of(own, compound), is_tail);
        let mut tail = all(TAIL.into());
        if k == 0 {
            (first_tails, first_named) = (is_tail, named);
        } else {
            let same = _mm256_cmpeq_epi64(named, previous);
            tail = _mm256_or_si256(tail, _mm256_and_si256(same, all(CONTINUES.into())));
        }
        previous = named;
        let plain =
            class(matcher, flags, load(matcher.mapping_at), mapcount(matcher, load(matcher.mapcount_at)));
        let not_head = _mm256_cmpeq_epi64(_mm256_and_si256(flags, all(matcher.head)), _mm256_setzero_si256());
        let kind = _mm256_blendv_epi8(all(HEAD.into()), plain, not_head);
        let kind = _mm256_blendv_epi8(kind, tail, is_tail);
        let harm = _mm256_and_si256(hold(matcher.poison, flags), all(POISONED.into()));
        let kind = _mm256_or_si256(kind, harm);
        let place = _mm_cvtsi32_si128(k as i32 * 8);
        kinds = _mm256_or_si256(kinds, _mm256_sll_epi64(kind, place));
    }
    // The first page of each lane follows the last of the previous lane.
    let mut before_first = words(_mm256_permute4x64_epi64::<0b10_01_00_00>(previous));
    before_first[0] = before.unwrap_or(!words(first_named)[0]);
    let same = _mm256_cmpeq_epi64(first_named, from_words(before_first));
    let continues = _mm256_and_si256(_mm256_and_si256(same, first_tails), all(CONTINUES.into()));
    (_mm256_or_si256(kinds, continues), words(previous)[3])
}

/// [`PageLayout::head_of`](crate::rules::PageLayout::head_of): `word` is a mask if it is an address without struct pages,
/// else the address of the head.
#[target_feature(enable = "avx2")]
fn head_of(own: __m256i, word: __m256i) -> __m256i {
    // As signed numbers those addresses are the ones from -2^31 to -1.
    let high = _mm256_cmpgt_epi64(word, all(NO_STRUCT_PAGES - 1));
    let is_mask = _mm256_andnot_si256(_mm256_cmpgt_epi64(word, all(u64::MAX)), high);
    let masked = _mm256_and_si256(own, word);
    _mm256_andnot_si256(all(1), _mm256_blendv_epi8(word, masked, is_mask))
}

#[target_feature(enable = "avx2")]
fn mapcount(matcher: &PageMatcher, words: __m256i) -> __m256i {
    let shifted = _mm256_srl_epi64(words, _mm_cvtsi32_si128(matcher.mapcount_shift as i32));
    _mm256_and_si256(shifted, all(u32::MAX.into()))
}

/// Returns the class of each page by its own struct page, and [`FREE`] at the start of a free block.
#[target_feature(enable = "avx2")]
fn class(matcher: &PageMatcher, flags: __m256i, mapping: __m256i, mapcount: __m256i) -> __m256i {
    let of = |class: PageClass| all(class as u64);
    let cached = _mm256_or_si256(hold(matcher.lru, flags), hold(matcher.swap, flags));
    let cache =
        _mm256_blendv_epi8(of(PageClass::Cache), of(PageClass::CachePrivate), hold(matcher.private, flags));
    let mapped = _mm256_blendv_epi8(of(PageClass::Kernel), cache, cached);
    let is_anon = _mm256_cmpeq_epi64(_mm256_and_si256(mapping, all(1)), all(1));
    let mapped = _mm256_blendv_epi8(mapped, of(matcher.anon), is_anon);
    let mut typed = of(PageClass::Kernel);
    for (test, class) in matcher.types.iter().rev() {
        let free = if matches!(class, PageClass::Free | PageClass::Unaccepted) { FREE } else { 0 };
        typed = _mm256_blendv_epi8(typed, all(*class as u64 | u64::from(free)), hold(*test, mapcount));
    }
    // Below -1 as a signed half word: from 2^31 to 2^32 - 2 as it stands in its lane.
    let negative = _mm256_cmpgt_epi64(mapcount, all(i32::MAX as u64));
    let is_typed = _mm256_andnot_si256(_mm256_cmpeq_epi64(mapcount, all(u32::MAX.into())), negative);
    let class = _mm256_blendv_epi8(mapped, typed, is_typed);
    _mm256_blendv_epi8(class, of(PageClass::Slab), hold(matcher.slab, flags))
}

#[target_feature(enable = "avx2")]
fn hold(bits: Bits, words: __m256i) -> __m256i {
    _mm256_cmpeq_epi64(_mm256_and_si256(words, all(bits.mask)), all(bits.want))
}

#[target_feature(enable = "avx2")]
fn all(word: u64) -> __m256i {
    _mm256_set1_epi64x(word.cast_signed())
}

#[target_feature(enable = "avx2")]
fn from_words([a, b, c, d]: [u64; 4]) -> __m256i {
    _mm256_setr_epi64x(a.cast_signed(), b.cast_signed(), c.cast_signed(), d.cast_signed())
}

#[target_feature(enable = "avx2")]
fn words(vector: __m256i) -> [u64; 4] {
    [
        _mm256_extract_epi64::<0>(vector),
        _mm256_extract_epi64::<1>(vector),
        _mm256_extract_epi64::<2>(vector),
        _mm256_extract_epi64::<3>(vector),
    ]
    .map(i64::cast_unsigned)
}

#[target_feature(enable = "avx2")]
fn store(vector: __m256i, place: &mut [u8; HALF]) {
    for (place, word) in place.as_chunks_mut::<8>().0.iter_mut().zip(words(vector)) {
        *place = word.to_le_bytes();
    }
}
