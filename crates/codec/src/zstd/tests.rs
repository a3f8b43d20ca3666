//! Decodes frames with libzstd: of pages, and of parses that no match finder would make.

use proptest::collection::vec;
use proptest::prelude::*;
use zstd_safe::DCtx;

use super::limits::PAGE;
use super::{Encoder, FRAME_HEADER};

/// Literals length, match length, offset.
type Sequence = (usize, usize, usize);

/// Pseudo-random numbers.
fn noise(seed: u64) -> impl Iterator<Item = u64> {
    std::iter::successors(Some(seed), |state| {
        Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    })
    .skip(1)
    .map(|state| state >> 33)
}

fn decode(frame: &[u8]) -> Vec<u8> {
    let mut content = Vec::with_capacity(PAGE);
    let code = DCtx::create().decompress(&mut content, frame);
    code.map_err(zstd_safe::get_error_name).expect("libzstd decodes the frame");
    content
}

#[track_caller]
fn round_trip(page: &[u8]) -> Option<usize> {
    let page: &[u8; PAGE] = page.try_into().expect("a page");
    let mut encoder = Encoder::new();
    let frame = encoder.encode(page);
    assert!(Encoder::new().encode_portable(page) == frame, "the frame depends on the processor");
    let frame = frame?;
    assert!(frame.len() < PAGE);
    assert!(decode(frame) == page, "the page came back altered");
    Some(frame.len())
}

/// Encodes content given as sequences and literals, the last of which follow the last sequence.
#[track_caller]
fn encode_parsed(literals: &[u8], sequences: &[Sequence]) -> Option<usize> {
    let mut encoder = Encoder::new();
    encoder.parse.clear();
    let mut content = Vec::new();
    let mut at = 0;
    for &(count, length, offset) in sequences {
        encoder.parse.sequences.add(count, length, offset);
        content.extend_from_slice(&literals[at..at + count]);
        at += count;
        assert!((1..=content.len()).contains(&offset));
        for _ in 0..length {
            content.push(content[content.len() - offset]);
        }
    }
    content.extend_from_slice(&literals[at..]);
    assert!(content.len() <= PAGE, "{}", content.len());
    let mut page = [0; PAGE];
    page[..literals.len()].copy_from_slice(literals);
    encoder.parse.add_literals(&page, 0, literals.len());
    let frame = encoder.encode_parse()?;
    assert!(decode(frame) == content, "the content came back altered");
    Some(frame.len())
}

/// Literals in which each byte occurs as often as its count says, shuffled.
fn with_counts(counts: &[(u8, usize)]) -> Vec<u8> {
    let mut literals: Vec<u8> = counts.iter().flat_map(|&(byte, count)| vec![byte; count]).collect();
    for (at, n) in (1..literals.len()).zip(noise(1)) {
        literals.swap(at, n as usize % (at + 1));
    }
    literals
}

fn page_of(bytes: impl Iterator<Item = u8>) -> Vec<u8> {
    bytes.take(PAGE).collect()
}

#[test]
fn frame_headers_are_libzstds() {
    let mut context = zstd_safe::CCtx::create();
    context.set_parameter(zstd_safe::CParameter::ContentSizeFlag(false)).expect("a parameter");
    let mut frame = Vec::with_capacity(2 * PAGE);
    context.compress2(&mut frame, &[0; PAGE]).expect("room");
    assert_eq!(frame[..FRAME_HEADER.len()], FRAME_HEADER);
}

#[test]
fn pages_of_many_kinds_come_back() {
    let words = ["the ", "page ", "of ", "a ", "kernel ", "struct ", "\n", "list_head ", "0x%lx ", "return "];
    let text = page_of(noise(2).flat_map(|n| words[n as usize % words.len()].bytes()));
    assert!(round_trip(&text).is_some_and(|size| size < 2000));

    let pointers = page_of(noise(3).flat_map(|n| (0xffff_8880_0000_0000 | (n & 0xff_ffc0)).to_le_bytes()));
    assert!(round_trip(&pointers).is_some_and(|size| size < 3000));

    let structures = page_of((0_u64..).flat_map(|n| {
        [0xffff_ea00_0000_0000 + n * 64, 0x17_ffff_c000_0000, n, 1, 0, 0xffff_ffff, 0, n % 7]
            .into_iter()
            .flat_map(u64::to_le_bytes)
    }));
    assert!(round_trip(&structures).is_some_and(|size| size < 1000));

    for byte in [0, 1, 255] {
        assert!(round_trip(&[byte; PAGE]).is_some_and(|size| size < 30));
    }
    for at in [0, 1, 7, 8, 2000, 4080, 4087, 4088, 4091, 4095] {
        let mut page = [0; PAGE];
        page[at] = 1;
        assert!(round_trip(&page).is_some_and(|size| size < 40), "{at}");
    }
    for bits in 1..8 {
        let few = page_of(noise(4).map(|n| n as u8 & ((1 << bits) - 1)));
        assert!(round_trip(&few).is_some_and(|size| size < PAGE * (bits + 1) / 8 + 100), "{bits} bits");
    }
    assert_eq!(round_trip(&page_of(noise(5).map(|n| n as u8))), None);
    for repeated in 1..64 {
        let start: Vec<u8> = noise(6).map(|n| n as u8).take(repeated).collect();
        assert!(round_trip(&page_of(start.into_iter().cycle())).is_some_and(|size| size < 120), "{repeated}");
    }
    // A match up to the page's very end, or almost.
    for back in 0..40 {
        let mut page = page_of(noise(7).map(|n| n as u8).take(300).chain(std::iter::repeat(0)));
        page.copy_within(100..200 + back, PAGE - 100 - back);
        assert!(round_trip(&page).is_some(), "{back}");
        page.copy_within(100..200, PAGE - 100 - back);
        assert!(round_trip(&page).is_some(), "{back}");
    }
}

#[test]
fn the_number_of_literals_may_be_anything() {
    for count in
        [0, 1, 2, 31, 32, 33, 47, 48, 49, 63, 64, 255, 256, 257, 1022, 1023, 1024, 1025, 2047, 4095, 4096]
    {
        let kinds: [fn(usize) -> u8; 4] =
            [|_| 7, |n| (n % 2) as u8, |n| (n * n % 251 % 11) as u8, |n| (n.ilog2() * 23) as u8];
        for kind in kinds {
            let literals: Vec<u8> = (1..=count).map(kind).collect();
            if count < PAGE {
                assert!(encode_parsed(&literals, &[]).is_some(), "{count}");
            }
            encode_parsed(&literals, &[]);
            if (1..PAGE - 3).contains(&count) {
                assert!(encode_parsed(&literals, &[(count, 3, 1)]).is_some(), "{count}");
                assert!(encode_parsed(&literals, &[(1, PAGE - count, 1)]).is_some(), "{count}");
            }
        }
        let noise: Vec<u8> = noise(8).map(|n| n as u8).take(count).collect();
        assert_eq!(encode_parsed(&noise, &[]).is_some(), count < PAGE - 12, "{count}");
    }
}

#[test]
fn the_number_of_sequences_may_be_anything() {
    for count in [0, 1, 2, 3, 14, 15, 16, 17, 126, 127, 128, 129, 255, 256, 511, 512, 1000, 1364] {
        let literals = vec![b'a'; 4];
        // All alike; then of many kinds.
        let alike = vec![(0, 3, 1); count];
        assert!(encode_parsed(&literals, &[&[(4, 3, 4)], &alike[..]].concat()[..count]).is_some(), "{count}");
        let count = count.min(600);
        let literals: Vec<u8> = noise(9).map(|n| n as u8 & 15).take(4 + count).collect();
        let mut left = PAGE - 4 - 4 * count;
        let sequences: Vec<Sequence> = (0..count)
            .zip(noise(10))
            .map(|(index, n)| {
                let more = (n as usize % 37).min(left);
                left -= more;
                let literals = if index == 0 { 4 } else { n as usize / 64 % 2 };
                (literals, 3 + more, 1 + n as usize / 128 % 4)
            })
            .collect();
        assert!(encode_parsed(&literals, &sequences).is_some(), "{count}");
    }
}

#[test]
fn lengths_and_offsets_have_every_code() {
    for n in (0..64).chain([65, 127, 128, 130, 131, 255, 256, 511, 512, 1023, 1024, 2047, 2048, 4000]) {
        let literals = with_counts(&[(1, n + 1), (2, 1)]);
        assert!(encode_parsed(&literals, &[(n + 2, 3, 1)]).is_some(), "{n} literals");
        assert!(encode_parsed(&[1, 2], &[(2, 3 + n, 2)]).is_some(), "{n} more");
        // Not only at the end, where a code takes no bits.
        let sequences = [(1, 3, 1), (n, 4, 1), (1, 3, 2)];
        assert!(encode_parsed(&literals, &sequences).is_some(), "{n} literals");
        assert!(encode_parsed(&[1, 2, 3], &[(1, 3, 1), (1, 3 + n, 3), (1, 3, 2)]).is_some(), "{n} more");
    }
    for offset in (1..70).chain([127, 128, 1020, 1021, 1024, 2044, 2045, 2048, 4091]) {
        let literals = with_counts(&[(1, offset), (2, 1)]);
        let sequence = (literals.len(), 3, offset);
        assert!(encode_parsed(&literals, &[sequence]).is_some(), "{offset} back");
    }
}

#[test]
fn repeat_offsets_have_the_right_values() {
    // Every sequence of five offsets out of five, with and without literals between.
    let offsets = [1, 2, 3, 4, 8];
    for row in 0..5_usize.pow(5) {
        for pattern in [0_usize, 0b1_1111, 0b0_1010, 0b1_0110] {
            let sequences: Vec<Sequence> = (0..5)
                .map(|n| {
                    let literals = if n == 0 { 8 } else { pattern >> n & 1 };
                    (literals, 3 + n, offsets[row / 5_usize.pow(n as u32) % 5])
                })
                .collect();
            assert!(encode_parsed(b"abcdefghijklm", &sequences).is_some());
        }
    }
}

#[test]
fn huffman_trees_may_have_any_shape() {
    // The deepest tree: Fibonacci numbers as counts.
    let mut counts = vec![(0, 1), (1, 1)];
    for byte in 2..17 {
        let [.., (_, a), (_, b)] = counts[..] else { unreachable!() };
        counts.push((byte, a + b));
    }
    let total = |counts: &[(u8, usize)]| counts.iter().map(|(_, count)| count).sum::<usize>();
    while total(&counts) > PAGE {
        counts.pop();
    }
    assert!(encode_parsed(&with_counts(&counts), &[]).is_some());
    // Many rare bytes below few frequent ones: more codes are too long.
    let mut counts: Vec<_> = (0..=255).map(|byte| (byte, 1)).collect();
    for (byte, count) in [(0, 100), (10, 200), (100, 400), (200, 800), (255, 1600)] {
        counts[byte].1 = count;
    }
    assert!(encode_parsed(&with_counts(&counts), &[]).is_some());

    for last in [1, 2, 7, 8, 9, 10, 126, 127, 128, 129, 130, 200, 254, 255] {
        // One frequent byte, at either end, and others: all, few, or only the highest.
        for step in [1, 3, usize::from(last)] {
            for frequent in [0, last] {
                let mut counts: Vec<_> = (0..=last).step_by(step).map(|byte| (byte, 2)).collect();
                counts.push((frequent, 700));
                assert!(encode_parsed(&with_counts(&counts), &[]).is_some(), "{last} {step} {frequent}");
            }
        }
        // All as frequent as each other.
        let counts: Vec<_> = (0..=last).map(|byte| (byte, 15)).collect();
        assert!(encode_parsed(&with_counts(&counts), &[]).is_some(), "{last}");
    }
    // 192 codes of eight bits and one of two, the last: all weights that are written are the same.
    let mut counts: Vec<_> = (0..192).map(|byte| (byte, 4)).collect();
    counts.push((192, 256));
    assert!(encode_parsed(&with_counts(&counts), &[]).is_some());
}

fn parse() -> impl Strategy<Value = (Vec<u8>, Vec<Sequence>)> {
    let byte = prop_oneof![4 => 0..4_u8, 2 => 32..127_u8, 1 => any::<u8>()];
    let length = prop_oneof![8 => 3..12_usize, 2 => 3..100_usize, 1 => 3..2000_usize];
    let count = prop_oneof![4 => Just(0_usize), 8 => 1..6_usize, 2 => 1..60_usize, 1 => 1..1000_usize];
    let back = prop_oneof![4 => 1..9_usize, 2 => 1..200_usize, 1 => 1..PAGE];
    (vec(byte, 1..=PAGE), vec((count, length, back), 0..600)).prop_map(|(mut literals, wanted)| {
        let (mut used, mut size, mut sequences) = (0, 0, Vec::new());
        for (count, length, back) in wanted {
            let count = count.max(usize::from(size == 0)).min(literals.len() - used);
            if size + count + length > PAGE || size + count == 0 {
                break;
            }
            used += count;
            size += count;
            sequences.push((count, length, (back - 1) % size + 1));
            size += length;
        }
        literals.truncate(used + (PAGE - size).min(literals.len() - used));
        (literals, sequences)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_parse_comes_back((literals, sequences) in parse()) {
        encode_parsed(&literals, &sequences);
    }

    #[test]
    fn any_histogram_of_literals_comes_back(counts in vec(prop_oneof![4 => 0..3_usize, 2 => 0..40_usize, 1 => 0..1500_usize], 1..=256)) {
        let mut left = PAGE;
        let counts: Vec<_> = (0..=255).zip(counts).map(|(byte, count)| {
            let count = count.min(left);
            left -= count;
            (byte, count)
        }).collect();
        encode_parsed(&with_counts(&counts), &[]);
    }

    #[test]
    fn normalized_counts_add_up_to_the_table_size(counts in vec(prop_oneof![2 => Just(0_u16), 4 => 1..4_u16, 2 => 1..60_u16, 1 => 1..1500_u16], 2..=53), max in 5..=7_u32) {
        use super::fse::{self, MAX_SYMBOLS};
        let mut all = [0; MAX_SYMBOLS];
        all[..counts.len()].copy_from_slice(&counts);
        all[counts.len() - 1] = 1;
        let total = all.iter().map(|&count| u32::from(count)).sum::<u32>();
        let distinct = all.iter().filter(|&&count| count > 0).count() as u32;
        if distinct < 2 || distinct > 1 << max || total > PAGE as u32 {
            return Ok(());
        }
        let table_log = fse::optimal_table_log(total, distinct, max);
        let normalized = fse::normalize(&all, counts.len(), total, table_log);
        let sum = normalized.counts.iter().map(|&states| u32::from(states)).sum::<u32>();
        prop_assert_eq!(sum, 1 << table_log);
        for (&count, &states) in all.iter().zip(&normalized.counts) {
            prop_assert_eq!(count > 0, states > 0);
        }
    }
}
