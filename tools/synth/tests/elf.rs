//! Reads the ELF files with `object`.

use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{LittleEndian, elf};
use pagehaul_synth::{Content, Elf, Era, Image, Machine};

type Header = elf::FileHeader64<LittleEndian>;

fn machine() -> Image {
    Machine::new(Era::V6_12)
        .anon(0x4000)
        .fill(0x9f, Content::Stamp)
        .fill(0x9000, Content::Random)
        .fill(0x9800, Content::Random)
        .build()
}

/// Checks that every byte of every segment is the machine's.
fn check(image: &Image, elf: &Elf) -> (Vec<u8>, usize) {
    let data = elf.bytes();
    let header = Header::parse(&*data).unwrap();
    let segments = header.program_headers(LittleEndian, &*data).unwrap();
    assert_eq!(segments.len(), elf.segments.len() + 1);
    let notes = segments[0].notes(LittleEndian, &*data).unwrap().unwrap();
    let names: Vec<_> =
        notes.map(|note| note.map(|note| note.name().to_vec())).collect::<Result<_, _>>().unwrap();
    assert_eq!(names, [&b"CORE"[..], b"CORE", b"VMCOREINFO"]);
    for (segment, wanted) in segments[1..].iter().zip(&elf.segments) {
        assert_eq!(segment.p_paddr(LittleEndian), wanted.paddr);
        assert_eq!(segment.p_memsz(LittleEndian), wanted.memory);
        let found = segment.data(LittleEndian, &*data).unwrap();
        assert_eq!(found.len() as u64, wanted.stored);
        let mut expected = vec![0; found.len()];
        image.read(wanted.paddr, &mut expected);
        assert!(found == expected, "segment at {:#x}", wanted.paddr);
    }
    let count = segments.len();
    (data, count)
}

#[test]
fn proc_vmcore_keeps_objects_on_pages() {
    let image = machine();
    let (data, _) = check(&image, &image.elf());
    let header = Header::parse(&*data).unwrap();
    for segment in header.program_headers(LittleEndian, &*data).unwrap() {
        assert_eq!(segment.p_offset(LittleEndian) % 4096, segment.p_paddr(LittleEndian) % 4096);
    }
    assert_eq!(data.len() % 4096, 0);
}

#[test]
fn qemu_counts_segments_in_its_section() {
    let image = machine();
    let (data, count) = check(&image, &image.qemu_elf());
    let header = Header::parse(&*data).unwrap();
    let sections = header.section_headers(LittleEndian, &*data).unwrap();
    assert_eq!(sections[0].sh_info(LittleEndian) as usize, count);
}

#[test]
fn more_segments_than_a_half_word_counts() {
    let image = machine();
    for mut elf in [image.elf(), image.qemu_elf()] {
        elf.split(1024);
        let (data, count) = check(&image, &elf);
        assert!(count > 0x1_0000);
        assert_eq!(Header::parse(&*data).unwrap().e_phnum.get(LittleEndian), 0xffff);
    }
}

#[test]
fn segments_may_overlap_and_be_partly_stored() {
    let image = machine();
    let mut elf = image.elf();
    elf.overlap(0x3ff_e800, 0x400_1800).store_only(2, 0x12_3456);
    check(&image, &elf);
}

#[test]
fn files_have_holes() {
    use std::os::unix::fs::MetadataExt;
    let image = machine();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vmcore");
    image.elf().write(&path).unwrap();
    let meta = std::fs::metadata(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), image.elf().bytes());
    assert!(
        meta.blocks() * 512 < meta.len() / 4,
        "{} of {} bytes allocated",
        meta.blocks() * 512,
        meta.len()
    );
}
