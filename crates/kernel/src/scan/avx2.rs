//! [`PageMatcher`] with AVX2.
//!
//! What a page shows by itself is in the lower halves of its words: eight pages at a time. Which tails have the same head
//! is in whole addresses: four pages at a time, only where there are tails. Of *n* vectors lane *j* of vector *k* is page
//! *n* * *j* + *k*: bytes, shifted to byte *k* of their lanes, are then in order, and the previous page is in the same lane
//! of the previous vector.

use std::arch::x86_64::*;

use super::kinds::{CONTINUES, GROUP, HEAD, MARKED, PageKinds, SIZE, Structs, TAIL, free_of};
use super::matcher::{Bits, LOADED, PageMatcher};
use crate::class::PageClass;
use crate::rules::NO_STRUCT_PAGES;

/// Pages in 32 bytes of kinds.
const HALF: usize = GROUP / 2;
type HalfStructs = [[u8; SIZE]; HALF];

/// Returns the kinds of a group's pages. `ahead` are later struct pages, which are prefetched.
#[target_feature(enable = "avx2")]
pub(super) fn kinds(matcher: &PageMatcher, structs: &Structs, ahead: &[[u8; SIZE]], at: u64) -> PageKinds {
    let mut bytes = [0; GROUP];
    let (mut tails, mut heads, mut free, mut marked, mut continues) = (0, 0, 0, 0, 0);
    let (halves, _) = structs.as_chunks::<HALF>();
    let (places, _) = bytes.as_chunks_mut::<HALF>();
    let mut last = None;
    for (half, (structs, place)) in halves.iter().zip(places).enumerate() {
        let shift = half * HALF;
        let first = at.wrapping_add((shift * SIZE) as u64);
        let soon = ahead.get(shift..).unwrap_or_default();
        let mut kinds = half_kinds(matcher, structs, soon);
        // The highest bit of every byte, after a shift of the wanted bit to it.
        let mask = |bits: __m256i| u64::from(_mm256_movemask_epi8(bits).cast_unsigned()) << shift;
        let found = mask(kinds);
        tails |= found;
        heads |= mask(_mm256_slli_epi64::<1>(kinds));
        free |= mask(_mm256_slli_epi64::<2>(kinds));
        marked |= mask(_mm256_slli_epi64::<3>(kinds));
        last = Some(if found == 0 {
            first.wrapping_add(((HALF - 1) * SIZE) as u64)
        } else {
            let (same, named) = same_heads(matcher, structs, first, last);
            continues |= mask(same);
            kinds = _mm256_or_si256(kinds, _mm256_and_si256(same, _mm256_set1_epi8(CONTINUES.cast_signed())));
            named
        });
        store(kinds, place);
    }
    PageKinds { bytes, tails, heads, free, marked, continues }
}

/// Returns the kinds of 32 pages, a byte each, without [`CONTINUES`].
#[target_feature(enable = "avx2")]
fn half_kinds(matcher: &PageMatcher, structs: &HalfStructs, ahead: &[[u8; SIZE]]) -> __m256i {
    const VECTORS: usize = HALF / 8;
    let (ahead, _) = ahead.as_chunks::<8>();
    let mut kinds = _mm256_setzero_si256();
    for k in 0..VECTORS {
        let load = |at: usize| {
            let part = |lane: usize| {
                structs.get(lane * VECTORS + k).map_or(_mm_setzero_si128(), |page| part(page, at))
            };
            // Later pages in the lower half: the upper is loaded by VINSERTI128, and QEMU before 10.1 (feea87cd6b) emulates
            // it with a read of 32 bytes instead of 16. After the last page there may be nothing to read.
            let pair = |j: usize| _mm256_set_m128i(part(j), part(j + 4));
            let (low, high) =
                (_mm256_unpacklo_epi32(pair(0), pair(1)), _mm256_unpacklo_epi32(pair(2), pair(3)));
            _mm256_unpacklo_epi64(low, high)
        };
        // One cache line per struct page, in an order that the hardware prefetcher does not follow.
        for page in ahead.get(k).into_iter().flatten() {
            _mm_prefetch::<_MM_HINT_T0>(page.as_ptr().cast());
        }
        let (flags, compound) = (load(matcher.flags_at * 8), load(matcher.compound_at * 8));
        let mapcount = load(matcher.mapcount_at * 8 + matcher.mapcount_shift as usize / 8);
        let plain = class(matcher, flags, load(matcher.mapping_at * 8), mapcount);
        let not_head = _mm256_cmpeq_epi32(_mm256_and_si256(flags, all(matcher.head)), _mm256_setzero_si256());
        let kind = _mm256_blendv_epi8(all(HEAD.into()), plain, not_head);
        let is_tail = hold(Bits { mask: 1, want: 1 }, compound);
        let kind = _mm256_blendv_epi8(kind, all(TAIL.into()), is_tail);
        let unmarked =
            _mm256_cmpeq_epi32(_mm256_and_si256(flags, all(matcher.marks)), _mm256_setzero_si256());
        let harm = _mm256_andnot_si256(unmarked, all(MARKED.into()));
        let place = _mm_cvtsi32_si128(k as i32 * 8);
        kinds = _mm256_or_si256(kinds, _mm256_sll_epi32(_mm256_or_si256(kind, harm), place));
    }
    // Swaps the halves.
    _mm256_permute4x64_epi64::<0b01_00_11_10>(kinds)
}

/// Returns which of 32 pages are tails whose head is that of the page before, or that page, a byte each; and the head
/// address in the last one. `before` is the head address in the page before the first.
#[target_feature(enable = "avx2")]
fn same_heads(matcher: &PageMatcher, structs: &HalfStructs, at: u64, before: Option<u64>) -> (__m256i, u64) {
    const VECTORS: usize = HALF / 4;
    let lanes = [0, 1, 2, 3].map(|lane: u64| lane * (VECTORS * SIZE) as u64);
    let (offsets, one) = (from_words(lanes), all_words(1));
    let mut all_same = _mm256_setzero_si256();
    let mut first = (all_same, all_same);
    let mut previous = all_same;
    for k in 0..VECTORS {
        let compound = from_words([0, 1, 2, 3].map(|lane| {
            structs.get(lane * VECTORS + k).map_or(0, |page| matcher.word(page, matcher.compound_at))
        }));
        let own = _mm256_add_epi64(all_words(at.wrapping_add((k * SIZE) as u64)), offsets);
        let is_tail = _mm256_cmpeq_epi64(_mm256_and_si256(compound, one), one);
        let named = _mm256_blendv_epi8(own, head_of(own, compound), is_tail);
        if k == 0 {
            first = (is_tail, named);
        } else {
            let same = _mm256_and_si256(is_tail, _mm256_cmpeq_epi64(named, previous));
            let byte = _mm256_and_si256(same, all_words(0xff << (k * 8)));
            all_same = _mm256_or_si256(all_same, byte);
        }
        previous = named;
    }
    // The first page of each lane follows the last of the previous lane.
    let (is_tail, named) = first;
    let mut before_first = lanes_of(_mm256_permute4x64_epi64::<0b10_01_00_00>(previous));
    before_first[0] = before.unwrap_or(!lanes_of(named)[0]);
    let same = _mm256_and_si256(is_tail, _mm256_cmpeq_epi64(named, from_words(before_first)));
    let byte = _mm256_and_si256(same, all_words(0xff));
    (_mm256_or_si256(all_same, byte), lanes_of(previous)[3])
}

/// [`PageLayout::head_of`](crate::rules::PageLayout::head_of): `word` is a mask if it is an address without struct pages,
/// else the address of the head.
#[target_feature(enable = "avx2")]
fn head_of(own: __m256i, word: __m256i) -> __m256i {
    // As signed numbers those addresses are the ones from -2^31 to -1.
    let high = _mm256_cmpgt_epi64(word, all_words(NO_STRUCT_PAGES - 1));
    let is_mask = _mm256_andnot_si256(_mm256_cmpgt_epi64(word, all_words(u64::MAX)), high);
    let masked = _mm256_and_si256(own, word);
    _mm256_andnot_si256(all_words(1), _mm256_blendv_epi8(word, masked, is_mask))
}

/// Returns the class of each page by its own struct page, and what [`free_of`] adds to it.
#[target_feature(enable = "avx2")]
fn class(matcher: &PageMatcher, flags: __m256i, mapping: __m256i, mapcount: __m256i) -> __m256i {
    let of = |class: PageClass| all(class as u64);
    let cached = _mm256_or_si256(hold(matcher.lru, flags), hold(matcher.swap, flags));
    let cache =
        _mm256_blendv_epi8(of(PageClass::Cache), of(PageClass::CachePrivate), hold(matcher.private, flags));
    let mut class = _mm256_blendv_epi8(of(PageClass::Kernel), cache, cached);
    let is_anon = hold(Bits { mask: 1, want: 1 }, mapping);
    class = _mm256_blendv_epi8(class, of(matcher.anon), is_anon);
    let is_typed = _mm256_cmpgt_epi32(all(u32::MAX.into()), mapcount);
    // Most pages have no type.
    if _mm256_testz_si256(is_typed, is_typed) == 0 {
        let mut typed = of(PageClass::Kernel);
        for (test, class) in matcher.types.iter().rev() {
            let kind = *class as u8 | free_of(*class);
            typed = _mm256_blendv_epi8(typed, all(kind.into()), hold(*test, mapcount));
        }
        class = _mm256_blendv_epi8(class, typed, is_typed);
    }
    _mm256_blendv_epi8(class, of(PageClass::Slab), hold(matcher.slab, flags))
}

/// Tests the lower halves of words.
#[target_feature(enable = "avx2")]
fn hold(bits: Bits, halves: __m256i) -> __m256i {
    _mm256_cmpeq_epi32(_mm256_and_si256(halves, all(bits.mask)), all(bits.want))
}

/// The lower half of a word, in all lanes.
#[target_feature(enable = "avx2")]
fn all(word: u64) -> __m256i {
    _mm256_set1_epi32((word as u32).cast_signed())
}

#[target_feature(enable = "avx2")]
fn all_words(word: u64) -> __m256i {
    _mm256_set1_epi64x(word.cast_signed())
}

#[target_feature(enable = "avx2")]
fn from_words([a, b, c, d]: [u64; 4]) -> __m256i {
    _mm256_setr_epi64x(a.cast_signed(), b.cast_signed(), c.cast_signed(), d.cast_signed())
}

/// Loads the bytes of a struct page that start at byte `at`.
#[target_feature(enable = "avx2")]
fn part(page: &[u8; SIZE], at: usize) -> __m128i {
    // No field is beyond: `PageMatcher::new`.
    let at = at.min(SIZE - LOADED);
    // SAFETY: so many bytes follow, and the load needs no alignment.
    unsafe { _mm_loadu_si128(page.as_ptr().add(at).cast()) }
}

#[target_feature(enable = "avx2")]
fn lanes_of(vector: __m256i) -> [u64; 4] {
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
    for (place, word) in place.as_chunks_mut::<8>().0.iter_mut().zip(lanes_of(vector)) {
        *place = word.to_le_bytes();
    }
}
