//! Parses the dumps independently of any reader.

use std::io::Read;

use pagehaul_synth::{Class, Codec, Content, Era, Image, Machine, Records, flatten};

fn word(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(data[at..at + 8].try_into().unwrap())
}

fn half(data: &[u8], at: usize) -> usize {
    u32::from_le_bytes(data[at..at + 4].try_into().unwrap()) as usize
}

fn machine() -> Image {
    Machine::new(Era::V6_1).populate(0x4000, 0x200, 3).fill(0x9f, Content::Text).build()
}

/// PFN, offset, size and flags of every descriptor.
fn descriptors(data: &[u8]) -> Vec<(u64, usize, usize, usize)> {
    let (block, sub, bitmaps) = (half(data, 428), half(data, 432), half(data, 436));
    let second = (1 + sub) * block + bitmaps / 2 * block;
    let descs = (1 + sub + bitmaps) * block;
    let pfns = (0..bitmaps / 2 * block * 8).filter(|pfn| data[second + pfn / 8] >> (pfn % 8) & 1 == 1);
    pfns.enumerate()
        .map(|(index, pfn)| {
            let at = descs + index * 24;
            (pfn as u64, word(data, at) as usize, half(data, at + 8), half(data, at + 12))
        })
        .collect()
}

#[test]
fn pages_come_back() {
    let image = machine();
    for codec in [Codec::Raw, Codec::Zlib] {
        let data = image.kdump().level(31).codec(codec).bytes();
        let found = descriptors(&data);
        assert_eq!(found.iter().map(|desc| desc.0).collect::<Vec<_>>(), image.expected(31));
        for (pfn, offset, size, flags) in found {
            let stored = &data[offset..offset + size];
            let mut page = Vec::new();
            match flags {
                0 => page.extend(stored),
                1 => {
                    flate2::read::ZlibDecoder::new(stored).read_to_end(&mut page).unwrap();
                }
                other => panic!("flags {other:#x}"),
            }
            assert!(page == image.page(pfn), "{codec:?} {pfn:#x}");
        }
    }
}

#[test]
fn mixed_dumps_use_every_codec_and_one_zero_page() {
    let image = machine();
    let data = image.kdump().level(1).mixed().bytes();
    let found = descriptors(&data);
    for codec in Codec::ALL {
        assert!(found.iter().any(|desc| desc.3 as u32 == codec.flag()), "{codec:?}");
    }
    let mut zeros = found.iter().filter(|desc| image.is_zero(desc.0)).map(|desc| desc.1);
    let first = zeros.next().unwrap();
    assert!(zeros.all(|offset| offset == first));
}

#[test]
fn notes_are_where_the_sub_header_says() {
    let image = machine();
    for version in 1..=6 {
        let data = image.kdump().version(version).bytes();
        assert_eq!(half(&data, 8) as i32, version);
        let (at, size) = (word(&data, 4096 + 32) as usize, word(&data, 4096 + 40) as usize);
        assert_eq!(&data[at..at + size], if version < 3 { b"" } else { image.vmcoreinfo().as_bytes() });
        let (at, size) = (word(&data, 4096 + 48) as usize, word(&data, 4096 + 56) as usize);
        assert_eq!(&data[at..at + size], if version < 4 { b"" } else { image.notes() });
    }
}

#[test]
fn parts_share_the_pages() {
    let image = machine();
    let parts = image.kdump().level(31).parts(3);
    let mut next = 0;
    for part in &parts {
        assert_eq!(half(part, 4096 + 12), 1);
        assert_eq!(word(part, 4096 + 80), next);
        next = word(part, 4096 + 88);
    }
    assert_eq!(next, image.max_mapnr());
    assert_eq!(parts.len(), 3);
}

#[test]
fn an_incomplete_dump_lacks_descriptors() {
    let image = machine();
    let data = image.kdump().level(31).incomplete(10).bytes();
    assert_eq!(half(&data, 424) & 8, 8);
    let found = descriptors(&data);
    assert!(found[..10].iter().all(|desc| desc.1 != 0));
    assert!(found[10..].iter().all(|desc| desc.1 == 0));
}

#[test]
fn flattened_records_make_the_file_again() {
    let image = Machine::new(Era::V6_1).anon(0x4000).build();
    assert_eq!(image.class(0x4000), Class::User);
    let file = image.kdump().level(31).bytes();
    for records in [Records::Ascending, Records::Shuffled, Records::Rewritten] {
        let flat = flatten(&file, 10_000, records);
        let mut out = vec![0; file.len()];
        let mut at = 4096;
        loop {
            let number = |at: usize| i64::from_be_bytes(flat[at..at + 8].try_into().unwrap());
            let (offset, size) = (number(at), number(at + 8));
            if offset == -1 {
                break;
            }
            let (offset, size) = (offset as usize, size as usize);
            out[offset..offset + size].copy_from_slice(&flat[at + 16..at + 16 + size]);
            at += 16 + size;
        }
        assert!(out == file, "{records:?}");
    }
}
