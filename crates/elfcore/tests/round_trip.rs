//! Headers as they are written, read back; and headers that no writer makes.

use std::convert::Infallible;
use std::io;

use pagehaul_elfcore::{
    EM_X86_64, ElfError, ElfHeaders, PROGRAM_HEADER, PT_NOTE, ProgramHeader, SECTION_HEADER, VmcoreHead,
    count_section, file_header, set_incomplete, table_end,
};
use proptest::prelude::*;

type Read<'a> = Box<dyn Fn(u64, &mut [u8]) -> io::Result<()> + 'a>;

fn open(bytes: &[u8]) -> Result<ElfHeaders<Read<'_>>, ElfError> {
    let read = move |offset: u64, buf: &mut [u8]| {
        let from = bytes.get(offset as usize..).unwrap_or_default();
        let part = from.get(..buf.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.copy_from_slice(part);
        Ok(())
    };
    ElfHeaders::open(bytes.len() as u64, Box::new(read))
}

fn all(bytes: &[u8]) -> Result<Vec<ProgramHeader>, ElfError> {
    let mut found = Vec::new();
    open(bytes)?.for_each(|at, header| {
        assert_eq!(at, table_end(found.len() as u64));
        found.push(header);
        Ok::<_, ElfError>(())
    })?;
    Ok(found)
}

fn load(index: u64) -> ProgramHeader {
    let whole = ProgramHeader::load(index << 13, 8192, index << 12, 4096);
    ProgramHeader { vaddr: index << 20, align: 4096, flags: index as u32 % 8, ..whole }
}

/// A core of a PT_NOTE and `loads` PT_LOADs.
fn core(loads: u64) -> Vec<u8> {
    let count = loads + 1;
    let mut out = file_header(EM_X86_64, count, count, false).to_vec();
    out.extend(ProgramHeader::note(4096, 8).encode());
    out.extend((0..loads).flat_map(|index| load(index).encode()));
    out.extend(count_section(count));
    out
}

#[test]
fn headers_are_read_as_written_at_and_around_pn_xnum() {
    for loads in [0, 1, 3, 1024, 0xfffd, 0xfffe, 0xffff, 70_000] {
        let bytes = core(loads);
        let headers = open(&bytes).unwrap();
        assert_eq!((headers.machine, headers.wide, headers.big_endian), (EM_X86_64, true, false));
        assert_eq!((headers.table, headers.count), (64, loads + 1));
        let found = all(&bytes).unwrap();
        assert_eq!(found[0], ProgramHeader::note(4096, 8));
        assert!(found[1..].iter().copied().eq((0..loads).map(load)), "{loads} PT_LOADs");
    }
}

#[test]
fn the_file_header_has_the_bytes_that_readers_expect() {
    let few = file_header(EM_X86_64, 3, 3, false);
    assert_eq!(few[..16], *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
    assert_eq!(few[16..24], [4, 0, 62, 0, 1, 0, 0, 0]);
    assert_eq!(few[32..52], [64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(few[52..], [64, 0, 56, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
    let many = file_header(EM_X86_64, 0xffff, 0x1_0000, true);
    assert_eq!(many[40..48], table_end(0x1_0000).to_le_bytes());
    assert_eq!(many[48..], [1, 0, 0, 0, 64, 0, 56, 0, 0xff, 0xff, 64, 0, 1, 0, 0, 0]);
}

#[test]
fn the_incomplete_mark_is_set_and_cleared_in_place() {
    let mut bytes = core(1);
    for incomplete in [true, false] {
        set_incomplete(&mut bytes, incomplete);
        assert_eq!(open(&bytes).unwrap().incomplete, incomplete);
        assert_eq!(bytes[..64], file_header(EM_X86_64, 2, 2, incomplete));
    }
    set_incomplete(&mut bytes[..50], true);
}

#[test]
fn a_vmcores_head_ends_where_its_memory_starts() {
    for (room, count, size) in [(2, 2, 0), (100, 3, 5000), (0x1_0002, 0x1_0001, 4096)] {
        let notes = vec![7; size];
        let head = VmcoreHead { machine: 183, room, notes: &notes };
        let mut bytes = Vec::new();
        let mut put = |part: &[u8]| -> Result<(), Infallible> {
            bytes.extend_from_slice(part);
            Ok(())
        };
        let Ok(()) = head.start(count, true, &mut put);
        for index in 1..count {
            let Ok(()) = put(&load(index).encode());
        }
        let Ok(()) = head.end(count, &mut put);
        assert_eq!(bytes.len() as u64, head.data_offset());
        let found = all(&bytes).unwrap();
        assert_eq!(found.len() as u64, count);
        let ProgramHeader { kind, offset, file_size, .. } = found[0];
        assert_eq!((kind, offset % 4096, file_size), (PT_NOTE, 0, size as u64));
        assert_eq!(bytes[offset as usize..][..size], notes);
        assert!(open(&bytes).unwrap().incomplete);
        assert_eq!(open(&bytes).unwrap().machine, 183);
    }
}

#[test]
fn impossible_headers_are_refused() {
    assert!(matches!(all(b"not ELF at all, but long enough"), Err(ElfError::Format { offset: 0, .. })));
    assert!(all(b"\x7fELF").is_err());
    let bytes = core(3);
    let changed = |at: usize, value: &[u8]| {
        let mut bytes = bytes.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        all(&bytes).unwrap_err().to_string()
    };
    assert!(changed(4, &[3]).contains("3 is not an ELF class"));
    assert!(changed(5, &[0]).contains("0 is not an ELF byte order"));
    assert!(changed(16, &[2]).contains("not a core"));
    assert!(changed(54, &[55]).contains("program headers of 55 bytes; expected 56"));
    assert!(changed(56, &[0xff, 0xff]).contains("no section header"));
    assert!(changed(32, &[0xff; 8]).contains("do not fit"));
    let mut many = core(0xffff);
    let at = many.len() - SECTION_HEADER as usize + 44;
    many[at..at + 4].copy_from_slice(&[0xff; 4]);
    assert!(all(&many).unwrap_err().to_string().contains("4294967295 program headers do not fit"));
    let end = (table_end(4) - PROGRAM_HEADER) as usize;
    assert!(all(&bytes[..end]).unwrap_err().to_string().contains("truncated or damaged"));
}

proptest! {
    #[test]
    fn no_bytes_panic(start in prop::collection::vec(any::<u8>(), 0..64), rest in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut bytes = core(3);
        bytes.splice(6..6 + start.len(), start);
        bytes.extend(rest);
        let _ = all(&bytes);
    }
}
