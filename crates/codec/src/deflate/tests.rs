use std::io::Read;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn encode(page: &[u8; PAGE]) -> Option<Vec<u8>> {
    Encoder::new().encode(page).map(<[u8]>::to_vec)
}

/// Checks that two decoders return the page.
fn check(page: &[u8; PAGE], stream: &[u8]) {
    let mut back = [0; PAGE];
    assert_eq!(libdeflater::Decompressor::new().zlib_decompress(stream, &mut back), Ok(PAGE));
    assert!(back == *page, "libdeflate decodes another page");
    let mut back = Vec::new();
    flate2::read::ZlibDecoder::new(stream).read_to_end(&mut back).unwrap();
    assert!(back == page, "zlib-rs decodes another page");
}

fn packed(page: &[u8; PAGE]) -> Vec<u8> {
    let stream = encode(page).expect("the page shrinks");
    check(page, &stream);
    stream
}

/// BFINAL and BTYPE of the first block.
fn block_type(stream: &[u8]) -> u64 {
    u64::from(stream[2] & 7)
}

fn fill(byte: impl FnMut(usize) -> u8) -> [u8; PAGE] {
    std::array::from_fn(byte)
}

/// Bytes that do not repeat.
fn noise() -> impl FnMut() -> u8 {
    let mut state = 1_u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    }
}

/// Each triple of sixteen values once: no matches, and yet half of the bits are redundant.
fn without_matches() -> [u8; PAGE] {
    let mut page = [0; PAGE];
    let mut met = [false; PAGE];
    let mut three = 0;
    met[0] = true;
    for byte in &mut page[3..] {
        // The largest value that makes another three; this never runs out before the end.
        let follow = |value: usize| (three * 16 + value) % PAGE;
        let value = (0..16).rev().find(|&value| !met[follow(value)]).unwrap();
        three = follow(value);
        met[three] = true;
        *byte = value as u8;
    }
    page
}

#[test]
fn a_repeated_byte_is_matches_of_maximum_length() {
    for byte in [0, 1, 143, 144, 255] {
        let mut encoder = Encoder::new();
        let page = [byte; PAGE];
        check(&page, &packed(&page));
        encoder.encode(&page).unwrap();
        // A literal, 15 matches of 258 bytes and one of 225, all of one distance, and the end.
        let tokens = encoder.parse.tokens();
        assert_eq!(tokens.len(), 1 + 2 * 16 + 1);
        assert!(tokens[1..31].as_chunks::<2>().0.iter().all(|pair| pair[0] == symbols::Token::length(258)));
    }
}

#[test]
fn pages_without_matches_take_dynamic_codes() {
    let page = without_matches();
    let stream = packed(&page);
    assert_eq!(block_type(&stream), DYNAMIC_BLOCK);
    assert!(stream.len() < PAGE / 2 + 200, "{}", stream.len());
}

#[test]
fn a_few_bytes_among_zeros_take_fixed_codes() {
    let mut byte = noise();
    for count in [20, 50, 100] {
        let mut page = [0; PAGE];
        page[0x800..0x800 + count].fill_with(&mut byte);
        let stream = packed(&page);
        assert_eq!(block_type(&stream), FIXED_BLOCK);
        assert!(stream.len() < 50 + 9 * count / 8, "{}", stream.len());
    }
}

#[test]
fn noise_is_stored() {
    let mut byte = noise();
    assert_eq!(encode(&fill(|_| byte())), None);
    assert_eq!(encode(&fill(|at| if at < 40 { 0 } else { byte() })), None);
}

#[test]
fn matches_begin_and_end_everywhere() {
    let mut byte = noise();
    for distance in
        [1, 2, 3, 4, 7, 8, 9, 64, 255, 256, 257, 1000, 2048, 3072, 3073, 4000, PAGE - 4, PAGE - 3, PAGE - 2]
    {
        // Few values, or such pages would be stored.
        let start = fill(|_| byte() & 15);
        for length in [3, 4, 7, 8, 9, 15, 16, 17, 24, 257, 258, 259, 260, 516, PAGE] {
            let mut page = start;
            for at in distance..PAGE.min(distance + length) {
                page[at] = page[at - distance];
            }
            packed(&page);
            page.reverse();
            packed(&page);
        }
    }
}

#[test]
fn typical_pages_are_much_smaller() {
    let text =
        b"the quick brown fox jumps over the lazy dog; static const struct file_operations = { .read = ";
    let text = fill(|at| text[(at * at / 97 + at) % text.len()]);
    assert!(packed(&text).len() < 3 * PAGE / 4);
    // A pointer, zeros and a number in each of 64.
    let structures = fill(|at| match at % 64 {
        0 => (at / 64) as u8,
        5..8 | 13..16 => 0xff,
        8 => (at / 4) as u8,
        10 => 0x88,
        _ => 0,
    });
    assert!(packed(&structures).len() < PAGE / 8);
}

fn structures() -> impl Strategy<Value = [u8; PAGE]> {
    // What a structure is, and how each byte of it changes from one to the next.
    (1..200_usize, vec((any::<u8>(), prop_oneof![6 => Just(0_u8), 1 => any::<u8>()]), 200), 0..3_u8).prop_map(
        |(size, bytes, noise_bits)| {
            let mut byte = noise();
            fill(|at| {
                let (start, step) = bytes[at % size];
                let noise = byte() & ((1 << noise_bits) - 1);
                start.wrapping_add(step.wrapping_mul((at / size) as u8)) ^ noise
            })
        },
    )
}

/// Symbols of very different frequency: deep trees.
fn skewed() -> impl Strategy<Value = [u8; PAGE]> {
    (vec(any::<u8>(), 30), any::<u64>()).prop_map(|(values, seed)| {
        let mut state = seed | 1;
        fill(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            values[(state >> 32).trailing_zeros().min(29) as usize]
        })
    })
}

proptest! {
    #[test]
    fn pages_come_back(page in prop_oneof![structures(), skewed()]) {
        if let Some(stream) = encode(&page) {
            check(&page, &stream);
        }
    }
}
