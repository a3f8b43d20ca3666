//! The layout of a core: headers and notes, then the mappings in the order of their addresses.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;

use pagehaul_elfcore::{
    PF_R, PF_W, PF_X, PT_LOAD, PT_NOTE, ProgramHeader, count_section, file_header, headers_end, table_end,
};

use crate::arch::HOST;
use crate::filter::{self, Kinds};
use crate::mapping::Mapping;
use crate::units::Pid;
use crate::units::page_size;

/// What is known of where a mapping's contents are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Private memory without a file: only what its page tables hold exists.
    Anonymous,
    /// Huge pages: likewise.
    Huge,
    /// Shared memory: in the file's pages, whether this process has touched them or not.
    Shared,
    /// A file's, or changed from it: all of it.
    File,
}

/// A mapping of which something is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Addresses stored.
    pub(crate) addresses: Range<u64>,
    /// Where they start in the core.
    pub(crate) offset: u64,
    pub(crate) content: Content,
    /// Which of the process's mappings it is.
    pub(crate) mapping: usize,
}

/// A core's layout.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Headers and notes; as long as the first segment's offset.
    pub(crate) head: Vec<u8>,
    pub(crate) segments: Vec<Segment>,
    /// Bytes of the whole core.
    pub(crate) size: u64,
    /// Bytes of mappings, and of those that are excluded.
    pub(crate) mapped: u64,
    pub(crate) excluded: u64,
}

/// Bytes of each mapping that belong in the core.
pub(crate) fn select(pid: Pid, mappings: &[Mapping], kinds: Kinds) -> Vec<u64> {
    // A file is mapped several times: look it up once.
    let mut dax: HashMap<u64, bool> = HashMap::new();
    mappings
        .iter()
        .map(|mapping| {
            let mut is_dax = || is_dax(pid, mapping);
            filter::dumped(
                mapping,
                kinds,
                || *dax.entry(mapping.inode).or_insert_with(&mut is_dax),
                || is_elf(pid, mapping),
            )
        })
        .collect()
}

/// Returns whether a mapped file is on DAX; false without permission to look it up.
fn is_dax(pid: Pid, mapping: &Mapping) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    let found = statx(CWD, mapping.link(pid), AtFlags::empty(), StatxFlags::TYPE);
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::DAX))
}

/// Whether the first page of a mapping is an ELF file's: what the kernel goes by where a file is not executable. Reading
/// the file, not the memory, keeps this out of the way of a process that runs.
fn is_elf(pid: Pid, mapping: &Mapping) -> bool {
    use std::os::unix::fs::FileExt;
    let mut magic = [0; 4];
    let path = mapping.link(pid);
    let file = fs::File::open(path).or_else(|_| {
        use std::os::unix::ffi::OsStrExt;
        let mut path = format!("/proc/{pid}/root").into_bytes();
        path.extend(&mapping.name);
        let meta = fs::metadata(std::ffi::OsStr::from_bytes(&path))?;
        if !meta.is_file() {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        fs::File::open(std::ffi::OsStr::from_bytes(&path))
    });
    file.is_ok_and(|file| file.read_exact_at(&mut magic, 0).is_ok()) && magic == *b"\x7fELF"
}

/// Lays a core out. `stored` has the bytes wanted of each mapping.
pub(crate) fn lay_out(mappings: &[Mapping], stored: &[u64], notes: &[u8], incomplete: bool) -> Layout {
    let load = |(mapping, &stored): (&Mapping, &u64)| {
        let bit = |set: bool, bit: u32| if set { bit } else { 0 };
        ProgramHeader {
            kind: PT_LOAD,
            flags: bit(mapping.read, PF_R) | bit(mapping.write, PF_W) | bit(mapping.execute, PF_X),
            offset: 0,
            vaddr: mapping.range.start,
            paddr: 0,
            file_size: stored,
            memory_size: mapping.len(),
            align: page_size(),
        }
    };
    let mut loads: Vec<ProgramHeader> = mappings.iter().zip(stored).map(load).collect();
    let (head, size) = assemble(&mut loads, notes, incomplete);
    let held = loads.iter().zip(mappings).enumerate().filter(|(_, (load, _))| load.file_size > 0);
    let segments = held.map(|(index, (load, mapping))| Segment {
        addresses: load.vaddr..load.vaddr + load.file_size,
        offset: load.offset,
        content: content(mapping),
        mapping: index,
    });
    let segments = segments.collect();
    let mapped = mappings.iter().map(Mapping::len).sum();
    let excluded = mapped - stored.iter().sum::<u64>();
    Layout { head, segments, size, mapped, excluded }
}

/// Makes the headers and notes of a core, and gives each of `loads` its offset: one after the other, behind them. Returns
/// the headers and notes, and the size of the core.
pub(crate) fn assemble(loads: &mut [ProgramHeader], notes: &[u8], incomplete: bool) -> (Vec<u8>, u64) {
    // The PT_NOTE and a PT_LOAD for each mapping.
    let count = loads.len() as u64 + 1;
    let notes_offset = headers_end(count);
    let mut offset = (notes_offset + notes.len() as u64).next_multiple_of(page_size());
    let mut head = Vec::with_capacity(offset as usize);
    let note = ProgramHeader {
        kind: PT_NOTE,
        offset: notes_offset,
        file_size: notes.len() as u64,
        align: 4,
        ..ProgramHeader::default()
    };
    head.extend(file_header(HOST.elf_machine, count, count, incomplete));
    head.extend(note.encode());
    for load in loads {
        load.offset = offset;
        offset += load.file_size;
        head.extend(load.encode());
    }
    head.extend(&count_section(count)[..(notes_offset - table_end(count)) as usize]);
    head.extend(notes);
    head.resize(head.len().next_multiple_of(page_size() as usize), 0);
    (head, offset)
}

/// Where the contents of a mapping are.
pub(crate) fn content(mapping: &Mapping) -> Content {
    if mapping.has(b"ht") {
        Content::Huge
    } else if mapping.is_shared() {
        Content::Shared
    } else if mapping.has_file() || mapping.name == b"[vdso]" {
        Content::File
    } else {
        Content::Anonymous
    }
}

#[cfg(test)]
mod tests {
    use pagehaul_elfcore::{ElfError, ElfHeaders};

    use super::*;

    #[test]
    fn segments_follow_the_head_without_gaps() {
        let mapping = |start: u64, pages: u64| Mapping {
            range: start..start + pages * page_size(),
            read: true,
            ..Mapping::default()
        };
        let mappings = [mapping(0x1000, 4), mapping(0x8000, 2), mapping(0x20000, 1)];
        let layout = lay_out(&mappings, &[4 * page_size(), 0, page_size()], &[1; 100], false);
        assert_eq!(layout.head.len() as u64, page_size());
        assert_eq!(layout.segments.len(), 2);
        assert_eq!(layout.segments[0].offset, page_size());
        assert_eq!(layout.segments[1].offset, 5 * page_size());
        assert_eq!(
            (layout.size, layout.mapped, layout.excluded),
            (6 * page_size(), 7 * page_size(), 2 * page_size())
        );
        let headers = read(&layout.head);
        assert_eq!(headers.len(), 4);
        assert_eq!((headers[2].file_size, headers[2].memory_size), (0, 2 * page_size()));
        assert_eq!((headers[0].offset, headers[0].file_size), (headers_end(4), 100));
    }

    fn read(head: &[u8]) -> Vec<ProgramHeader> {
        let fill = |at: u64, buf: &mut [u8]| {
            buf.copy_from_slice(&head[at as usize..][..buf.len()]);
            Ok::<_, std::convert::Infallible>(())
        };
        let mut found = Vec::new();
        let headers = ElfHeaders::open(head.len() as u64, fill).unwrap();
        let mut push = |header| {
            found.push(header);
            Ok::<_, ElfError<_>>(())
        };
        headers.for_each(|_, header| push(header)).unwrap();
        found
    }

    /// As many as `e_phnum` has no room for, too.
    #[test]
    fn every_number_of_mappings_has_its_program_headers() {
        for count in [0, 1, 0xfffd, 0xfffe, 0xffff, 70_000] {
            let mapping = |n: u64| Mapping {
                range: n * page_size()..(n + 1) * page_size(),
                execute: true,
                ..Mapping::default()
            };
            let mappings: Vec<Mapping> = (1..=count).map(mapping).collect();
            let layout = lay_out(&mappings, &vec![0; mappings.len()], &[7; 10], true);
            let headers = read(&layout.head);
            assert_eq!(headers.len() as u64, count + 1);
            let note = headers[0].offset as usize;
            assert_eq!(layout.head[note..note + 10], [7; 10]);
            assert!(headers[1..].iter().zip(&mappings).all(|(header, mapping)| {
                (header.flags, header.vaddr, header.memory_size) == (PF_X, mapping.range.start, page_size())
            }));
        }
    }
}
