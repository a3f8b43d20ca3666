//! Tests that three ways to classify struct pages (AVX2 or NEON, portable groups, one by one) agree.

use std::hint::black_box;

use pagehaul_synth::{Era, Machine};
use proptest::prelude::*;
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::block::{Block, Stop};
use super::groups::page_kinds;
use super::kinds::{GROUP, SIZE};
use super::matcher::PageMatcher;
use crate::class::PageClass;
use crate::rules::{Head, Rules, word};
use pagehaul_machine::VmcoreInfo;

const PAGES: usize = 5 * GROUP + 3;
/// Virtual address of the first struct page: in the vmemmap.
const MAP: u64 = 0xffff_ea00_0040_0000;
const FIRST_PFN: u64 = 0x8000;

fn rules(era: Era) -> Rules {
    let info = VmcoreInfo::parse(Machine::new(era).build().vmcoreinfo().as_bytes());
    Rules::new(&info).unwrap().0
}

/// The contents of a generated struct page, and where compound pages and free blocks lead.
fn one() -> impl Strategy<Value = (u8, u8, u64)> {
    (0..12u8, 0..7u8, any::<u64>())
}

/// Generates struct pages, plausible and impossible ones.
fn lay(rules: &Rules, recipe: &[(u8, u8, u64)]) -> Vec<u8> {
    let layout = &rules.layout;
    let mut bytes = vec![0; PAGES * SIZE];
    let mut put = |page: usize, offset: usize, value: &[u8]| {
        if let Some(place) = bytes.get_mut(page * SIZE + offset..page * SIZE + offset + value.len()) {
            place.copy_from_slice(value);
        }
    };
    let types = rules.types.tests();
    let mut page = 0;
    for &(what, order, noise) in recipe.iter().cycle() {
        if page >= PAGES {
            break;
        }
        let own = MAP + (page * SIZE) as u64;
        let known = rules.slab.flag() | rules.cache.lru() | rules.cache.swap() | rules.cache.private();
        put(page, layout.flags, &(noise & (known | rules.reserved)).to_le_bytes());
        put(page, layout.mapcount, &u32::MAX.to_le_bytes());
        let mut pages = 1;
        match what {
            0 => put(page, layout.mapping, &(noise | 1).to_le_bytes()),
            1 | 2 => {
                let typed = types[noise as usize % types.len()].0.map_or(-2_i32 as u32, |(_, want)| want);
                put(page, layout.flags, &(noise & rules.reserved).to_le_bytes());
                put(page, layout.mapcount, &typed.to_le_bytes());
                put(page, layout.private.unwrap_or(0), &u64::from(order).to_le_bytes());
            }
            3 | 4 => {
                // A compound page, or one whose tails end early.
                pages = (1 << order) - usize::from(what == 4 && order > 1);
                put(page, layout.flags, &(rules.head | noise & rules.cache.lru()).to_le_bytes());
                let mask = !((SIZE << order) as u64 - 1) | 1;
                for tail in page + 1..page + pages {
                    let named = if noise & 1 == 0 { own | 1 } else { mask };
                    put(tail, layout.compound, &named.to_le_bytes());
                    put(tail, layout.flags, &u64::from(order).to_le_bytes());
                    for at in [8, 16, 17, 40, 44] {
                        if tail == page + 1 && at != layout.compound {
                            put(tail, at, &[order]);
                        }
                    }
                }
            }
            5 => put(page, layout.compound, &(noise | 1).to_le_bytes()),
            6 => put(page, layout.flags, &rules.poison.flag().to_le_bytes()),
            7 => put(page, layout.flags, &noise.to_le_bytes()),
            _ => {}
        }
        page += pages;
    }
    bytes
}

/// Classifies all of `bytes` in windows of `window` pages.
fn classify(
    rules: &Rules,
    matcher: Option<&PageMatcher>,
    bytes: &[u8],
    window: usize,
) -> (Vec<PageClass>, Option<String>, u64) {
    let mut out = vec![PageClass::Absent; PAGES];
    let mut block = Block::new(rules, matcher, MAP, FIRST_PFN, &mut out);
    while !block.done() {
        let page = (block.struct_page() - MAP) as usize / SIZE;
        let end = (page + window).min(PAGES);
        let Stop::Compound { head_at, flags } = block.advance(&bytes[page * SIZE..end * SIZE]) else {
            continue;
        };
        let at = head_at.wrapping_sub(MAP) as usize;
        let pair = bytes.get(at..).and_then(|rest| rest.get(..2 * SIZE));
        let found = match pair.map(|pair| (pair, rules.head(pair, head_at, FIRST_PFN + (at / SIZE) as u64))) {
            Some((pair, Head::Real(compound))) if word(pair, rules.layout.flags) & rules.head != 0 => {
                Ok(compound)
            }
            _ => Err("no head"),
        };
        let inside = |range: std::ops::Range<u64>| range.contains(&block.pfn());
        let found =
            found.and_then(|c| if inside(c.first_pfn..c.end_pfn) { Ok(c) } else { Err("ends before") });
        block.resolved(head_at, flags, found);
    }
    let (inconsistency, contradictions) = block.inconsistencies();
    (out, inconsistency.map(|inconsistency| format!("{inconsistency:?}")), contradictions)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn groups_and_single_pages_get_the_same_classes(recipe in proptest::collection::vec(one(), 1..80)) {
        for era in Era::ALL {
            let rules = rules(era);
            let matcher = PageMatcher::new(&rules).expect("struct pages of 64 bytes");
            let bytes = lay(&rules, &recipe);
            let singly = classify(&rules, None, &bytes, PAGES);
            for window in [PAGES, 2 * GROUP, GROUP + 7] {
                let grouped = classify(&rules, Some(&matcher), &bytes, window);
                prop_assert_eq!(&grouped.0, &singly.0, "{:?}, windows of {}", era, window);
                prop_assert_eq!(grouped.1.is_some(), singly.1.is_some());
                prop_assert_eq!(grouped.2, singly.2);
            }
        }
    }

    #[test]
    fn wide_and_narrow_matches_agree_on_any_bytes(
        recipe in proptest::collection::vec(one(), 1..40),
        junk in proptest::collection::vec((0..GROUP * SIZE, any::<u8>()), 0..64),
    ) {
        for era in Era::ALL {
            let rules = rules(era);
            let matcher = PageMatcher::new(&rules).expect("struct pages of 64 bytes");
            let mut bytes = lay(&rules, &recipe);
            for (at, byte) in &junk {
                bytes[*at] = *byte;
            }
            let (structs, _) = bytes.as_chunks::<SIZE>();
            for group in structs.chunks_exact(GROUP) {
                let group = group.try_into().expect("a whole group");
                prop_assert_eq!(page_kinds(&matcher, group, &[], MAP), matcher.kinds_one_by_one(group, MAP));
            }
        }
    }
}

type Recipe = &'static [(u8, u8, u64)];

/// Struct pages of one kind, repeated.
const REPEATED: [(&str, Recipe); 3] = [
    ("anonymous pages", &[(0, 0, 0)]),
    (
        "single pages of all classes",
        &[(0, 0, 0), (1, 0, 1), (7, 0, 0x5555), (2, 0, 3), (8, 0, 0), (7, 0, u64::MAX << 32)],
    ),
    ("compound pages of order 3", &[(3, 3, 1)]),
];

#[test]
#[ignore = "bench/instructions.py counts the instructions between two readings of the clock"]
fn each_way_alone() {
    const ROUNDS: usize = 1000;
    let rules = rules(Era::V6_12);
    let matcher = PageMatcher::new(&rules).expect("struct pages of 64 bytes");
    for (name, recipe) in REPEATED {
        let bytes = lay(&rules, recipe);
        let (group, _) = bytes.as_chunks::<SIZE>().0.split_first_chunk::<GROUP>().expect("a whole group");
        let (wide, wide_time) = timed(ROUNDS, || page_kinds(&matcher, black_box(group), &[], MAP));
        let (narrow, narrow_time) = timed(ROUNDS, || matcher.kinds_one_by_one(black_box(group), MAP));
        assert_eq!(wide, narrow, "{name}");
        println!("{name}: {} struct pages, {wide_time} ns, one by one {narrow_time} ns", ROUNDS * GROUP);
    }
}

/// Returns the last result, and the CPU time of all rounds in nanoseconds.
fn timed<T>(rounds: usize, work: impl Fn() -> T) -> (T, i64) {
    let now = || {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ThreadCPUTime);
        tv_sec * 1_000_000_000 + tv_nsec
    };
    let start = now();
    let mut last = work();
    for _ in 1..rounds {
        last = black_box(work());
    }
    (last, now() - start)
}
