//! Compresses and decompresses pages of every shape with every codec.

use pagehaul_codec::{Codec, CodecError, Compressor, Decompressor, Method};
use proptest::collection::vec;
use proptest::prelude::*;

/// One method per code path of the libraries: zstd's strategy changes with the level.
const METHODS: [&str; 17] = [
    "none",
    "zlib:1",
    "zlib:2",
    "zlib:6",
    "zlib:9",
    "zlib:12",
    "lzo",
    "snappy",
    "zstd:-100",
    "zstd:-5",
    "zstd:-1",
    "zstd:1",
    "zstd:3",
    "zstd:5",
    "zstd:9",
    "zstd:15",
    "zstd:22",
];

const LARGEST: usize = 1 << 16;

/// A part of a page: a run, a copy of earlier bytes, noise, counters.
#[derive(Debug, Clone)]
enum Part {
    Run(u8, usize),
    Copy(usize, usize),
    Noise(Vec<u8>),
    Words(u64, u64, usize),
}

fn part() -> impl Strategy<Value = Part> {
    let length = prop_oneof![8 => 1..40_usize, 2 => 1..600_usize, 1 => 1..40_000_usize];
    let back =
        prop_oneof![1..16_usize, 1..3000_usize, 16_300..16_500_usize, 49_000..49_300_usize, 1..LARGEST];
    prop_oneof![
        (any::<u8>(), length.clone()).prop_map(|(byte, length)| Part::Run(byte, length)),
        (back, length).prop_map(|(back, length)| Part::Copy(back, length)),
        vec(any::<u8>(), 1..300).prop_map(Part::Noise),
        (any::<u64>(), 0..1_000_000_u64, 1..200_usize).prop_map(|(base, step, n)| Part::Words(base, step, n)),
    ]
}

fn build(parts: &[Part], size: usize) -> Vec<u8> {
    let mut page = Vec::new();
    for part in parts {
        match part {
            Part::Run(byte, length) => page.resize(page.len() + length, *byte),
            Part::Copy(back, length) => {
                for _ in 0..*length {
                    let byte = page.len().checked_sub(*back).map_or(0, |at| page[at]);
                    page.push(byte);
                }
            }
            Part::Noise(bytes) => page.extend_from_slice(bytes),
            Part::Words(base, step, count) => {
                for n in 0..*count as u64 {
                    page.extend_from_slice(&base.wrapping_add(n * step).to_le_bytes());
                }
            }
        }
        if page.len() > size {
            break;
        }
    }
    page.resize(size, 0);
    page
}

fn page() -> impl Strategy<Value = Vec<u8>> {
    let size = prop_oneof![6 => Just(4096_usize), 2 => 0..100_usize, 2 => 0..=LARGEST, 1 => Just(LARGEST)];
    prop_oneof![
        8 => (vec(part(), 0..60), size).prop_map(|(parts, size)| build(&parts, size)),
        1 => vec(any::<u8>(), 0..5000),
        1 => vec(0..3_u8, 0..5000),
    ]
}

fn compressor(method: &str) -> Compressor {
    Compressor::new(method.parse().unwrap()).unwrap()
}

/// Compresses into a buffer of the page's size, and checks that the page shrinks.
fn pack(compressor: &mut Compressor, page: &[u8]) -> Option<Vec<u8>> {
    let mut out = vec![0xa5; page.len()];
    let size = compressor.compress(page, &mut out)?;
    assert!(size < page.len(), "{} bytes made of {}", size, page.len());
    out.truncate(size);
    Some(out)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn pages_round_trip(page in page()) {
        let mut decompressor = Decompressor::new();
        for method in METHODS {
            let mut compressor = compressor(method);
            let codec = compressor.method().codec();
            if let Some(data) = pack(&mut compressor, &page) {
                let mut back = vec![0x5a; page.len()];
                prop_assert_eq!(decompressor.decompress(codec, &data, &mut back), Ok(()), "{}", method);
                prop_assert!(back == page, "{} altered the page", method);

                let mut long = vec![0; page.len() + 1];
                let error = decompressor.decompress(codec, &data, &mut long).unwrap_err();
                prop_assert_eq!(error, CodecError::TooShort { codec, expected: page.len() + 1, actual: page.len() });
                let mut short = vec![0; page.len() - 1];
                let error = decompressor.decompress(codec, &data, &mut short).unwrap_err();
                prop_assert_eq!(error, CodecError::TooLong { codec, expected: page.len() - 1 });
            }
        }
    }

    #[test]
    fn bytes_do_not_depend_on_earlier_pages_or_on_room(pages in vec(page(), 1..6)) {
        for method in METHODS {
            let mut used = compressor(method);
            for page in &pages {
                let fresh = pack(&mut compressor(method), page);
                prop_assert!(pack(&mut used, page) == fresh, "{} depends on earlier pages", method);
                let mut roomy = vec![0; 2 * page.len() + 1000];
                let size = used.compress(page, &mut roomy);
                prop_assert!(size.map(|size| &roomy[..size]) == fresh.as_deref(), "{} depends on room", method);
            }
        }
    }

    #[test]
    fn damaged_data_is_refused_or_decoded(
        page in page(),
        hits in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut decompressor = Decompressor::new();
        for method in METHODS {
            let mut compressor = compressor(method);
            let codec = compressor.method().codec();
            let Some(mut data) = pack(&mut compressor, &page) else { continue };
            let mut back = vec![0; page.len()];
            let truncated = &data[..cut.index(data.len())];
            prop_assert!(decompressor.decompress(codec, truncated, &mut back).is_err(), "{} accepted truncated data", method);
            for (at, byte) in &hits {
                *at.get_mut(&mut data) = *byte;
            }
            let _ = decompressor.decompress(codec, &data, &mut back);
            // The context still works.
            let data = pack(&mut compressor, &page).unwrap();
            prop_assert_eq!(decompressor.decompress(codec, &data, &mut back), Ok(()));
            prop_assert!(back == page);
        }
    }

    #[test]
    fn noise_is_refused_or_decoded(data in vec(any::<u8>(), 0..5000), size in 0..5000_usize) {
        let mut decompressor = Decompressor::new();
        for codec in Codec::ALL {
            let _ = decompressor.decompress(codec, &data, &mut vec![0; size]);
        }
    }
}

#[test]
fn pages_that_do_not_shrink_are_refused() {
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(LARGEST)
    .collect();
    for method in METHODS {
        let mut compressor = compressor(method);
        for size in [0, 1, 100, 4096, LARGEST] {
            assert_eq!(pack(&mut compressor, &noise[..size]), None, "{method} of {size} bytes");
        }
    }
}

#[test]
fn zeros_shrink_to_almost_nothing() {
    for method in METHODS {
        let mut compressor = compressor(method);
        if compressor.method().codec() != Codec::None {
            let data = pack(&mut compressor, &[0; 4096]).unwrap();
            assert!(data.len() < 250, "{method}: {} bytes", data.len());
        }
    }
}

#[test]
fn stored_pages_have_their_own_length() {
    let mut decompressor = Decompressor::new();
    let mut page = [0; 4];
    assert_eq!(decompressor.decompress(Codec::None, &[1, 2, 3, 4], &mut page), Ok(()));
    assert_eq!(page, [1, 2, 3, 4]);
    let codec = Codec::None;
    let short = decompressor.decompress(codec, &[1], &mut page);
    assert_eq!(short, Err(CodecError::TooShort { codec, expected: 4, actual: 1 }));
    let long = decompressor.decompress(codec, &[1; 5], &mut page);
    assert_eq!(long, Err(CodecError::TooLong { codec, expected: 4 }));
}

#[test]
fn contexts_move_between_threads() {
    fn sendable<T: Send>() {}
    sendable::<Compressor>();
    sendable::<Decompressor>();
    sendable::<Method>();
}
