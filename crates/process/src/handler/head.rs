//! The headers and notes of a core, as the kernel writes them to the pipe.

use std::io::{self, Read};

use pagehaul_elfcore::{FILE_HEADER, PROGRAM_HEADER, PT_LOAD, PT_NOTE, ProgramHeader, notes};

use crate::arch::{HOST, word};
use crate::core_file::MAX_NOTES;

/// Maximum number of program headers, as for cores that are read.
const MAX_HEADERS: u64 = 4 << 20;
/// Maximum of the zeros between the notes and the memory: a page, the largest there is.
const MAX_PADDING: u64 = 64 << 10;
/// Offset of the registers in `struct elf_prstatus` of a 64-bit machine.
const REGISTERS: usize = 112;
// Offsets in a 64-bit file header (`Elf64_Ehdr`).
const TYPE: usize = 16;
const MACHINE: usize = 18;
const TABLE: usize = 32;
const ENTRY: usize = 54;
const ET_CORE: u16 = 4;
/// The count of program headers if it does not fit.
const PN_XNUM: u64 = 0xffff;

/// The start of a core.
pub(super) enum Head {
    /// A 64-bit core of this machine, read up to the first byte of memory.
    Elf(ElfHead),
    /// Another core, such as that of a 32-bit process: the bytes read so far. The rest is taken as it comes.
    Other {
        /// What was read.
        raw: Vec<u8>,
        /// Bytes that its headers promise. A shorter stream is incomplete.
        least: u64,
    },
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ElfHead {
    /// The contents of the PT_NOTE.
    pub(super) notes: Vec<u8>,
    /// Without gaps between them: each starts in the stream where the one before it ends.
    pub(super) loads: Vec<ProgramHeader>,
}

impl ElfHead {
    /// Stack pointers of all threads.
    pub(super) fn stack_pointers(&self) -> Vec<u64> {
        let threads = notes::iter(&self.notes).filter(|note| note.kind == notes::NT_PRSTATUS);
        let registers = threads.filter_map(|note| note.desc.get(REGISTERS..));
        registers.map(|registers| word(registers, HOST.stack_pointer)).collect()
    }

    /// The auxiliary vector: by the addresses and the random bytes' place in it, that of no other process.
    pub(super) fn auxiliary_vector(&self) -> Option<&[u8]> {
        notes::iter(&self.notes).find(|note| note.kind == notes::NT_AUXV).map(|note| note.desc)
    }

    /// Bytes of memory that follow in the stream.
    pub(super) fn memory(&self) -> u64 {
        self.loads.iter().map(|load| load.file_size).fold(0, u64::saturating_add)
    }
}

impl Head {
    /// Reads it. An error is that of the stream; a stream that ends early, or is no core, is one too.
    pub(super) fn read(input: &mut impl Read) -> io::Result<Self> {
        let mut raw = Vec::new();
        take(input, FILE_HEADER, &mut raw)?;
        if (raw.len() as u64) < FILE_HEADER {
            let why = format!("the kernel wrote {} bytes and no core", raw.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        Ok(match parse(input, &mut raw)? {
            Some(head) => Self::Elf(head),
            None => {
                let least = promised(input, &mut raw)?;
                Self::Other { raw, least }
            }
        })
    }
}

/// Returns how many bytes the headers of any core promise. Appends to `raw` what is read. Fails if it is no core.
fn promised(input: &mut impl Read, raw: &mut Vec<u8>) -> io::Result<u64> {
    let is_wide = raw.get(4) == Some(&2);
    let number = |raw: &[u8], at: u64, bytes: usize| {
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let field = raw.get(at..).and_then(|rest| rest.get(..bytes))?;
        Some(field.iter().rev().fold(0u64, |sum, &byte| sum << 8 | u64::from(byte)))
    };
    // Class 1 is 32 bits, encoding 1 little-endian.
    let is_core = raw.starts_with(b"\x7fELF")
        && matches!(raw.get(4..6), Some([1 | 2, 1]))
        && number(raw, TYPE as u64, 2) == Some(u64::from(ET_CORE));
    if !is_core {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "what came is no core (ELF)"));
    }
    // Elf64_Ehdr and Elf32_Ehdr, Elf64_Phdr and Elf32_Phdr: where the fields are, and their length.
    let word = if is_wide { 8 } else { 4 };
    let (table, count, offset, size, entry) =
        if is_wide { (TABLE as u64, 56, 8, 32, PROGRAM_HEADER) } else { (28, 44, 4, 16, 32) };
    let table = number(raw, table, word).unwrap_or(0);
    let count = match number(raw, count, 2).unwrap_or(0) {
        // There are more. The first is of the notes, which follow all headers.
        PN_XNUM => 1,
        count => count,
    };
    let end = table.saturating_add(count * entry);
    if table > MAX_PADDING {
        return Ok(end);
    }
    take(input, end.saturating_sub(raw.len() as u64), raw)?;
    let contents = (0..count).filter_map(|index| {
        let at = table + index * entry;
        Some(number(raw, at + offset, word)?.saturating_add(number(raw, at + size, word)?))
    });
    Ok(contents.fold(end, u64::max))
}

/// Parses what `raw` begins with, and appends to it what is read. `None` if it is something else than expected.
fn parse(input: &mut impl Read, raw: &mut Vec<u8>) -> io::Result<Option<ElfHead>> {
    let half =
        |at: usize| raw.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u16::from_le_bytes(*bytes));
    // Class 2 is 64 bits, encoding 1 little-endian.
    let is_ours = raw.starts_with(b"\x7fELF\x02\x01")
        && (half(TYPE), half(MACHINE), half(ENTRY)) == (ET_CORE, HOST.elf_machine, PROGRAM_HEADER as u16);
    if !is_ours || word(raw, TABLE / 8) != FILE_HEADER {
        return Ok(None);
    }
    take(input, PROGRAM_HEADER, raw)?;
    // The notes follow the table, so that their offset gives the number of headers. That in the file header has no room for
    // more than 65,534, and the section header with the number comes at the very end (fill_extnum_info(), fs/binfmt_elf.c).
    let Some(note) = header(raw, 0).filter(|header| header.kind == PT_NOTE) else { return Ok(None) };
    let table = note.offset.saturating_sub(FILE_HEADER);
    let count = table / PROGRAM_HEADER;
    if table % PROGRAM_HEADER != 0 || !(1..=MAX_HEADERS).contains(&count) || note.file_size > MAX_NOTES {
        return Ok(None);
    }
    take(input, table - PROGRAM_HEADER + note.file_size, raw)?;
    let end = note.offset + note.file_size;
    if (raw.len() as u64) < end {
        return Ok(None);
    }
    let mut loads = Vec::new();
    for index in 1..count {
        // Others have contents behind the memory, such as the tags of arm64's MTE.
        let Some(load) = header(raw, index).filter(|header| header.kind == PT_LOAD) else { return Ok(None) };
        loads.push(load);
    }
    let first = loads.first().map_or(end, |load| load.offset);
    let mut at = first;
    for load in &loads {
        if load.offset != at || load.file_size > load.memory_size {
            return Ok(None);
        }
        let Some(next) = at.checked_add(load.file_size) else { return Ok(None) };
        at = next;
    }
    let notes = raw.get(note.offset as usize..end as usize).unwrap_or_default().to_vec();
    let Some(padding) = first.checked_sub(end).filter(|padding| *padding <= MAX_PADDING) else {
        return Ok(None);
    };
    take(input, padding, raw)?;
    Ok(Some(ElfHead { notes, loads }))
}

fn header(raw: &[u8], index: u64) -> Option<ProgramHeader> {
    let at = (FILE_HEADER + index * PROGRAM_HEADER) as usize;
    ProgramHeader::decode(raw.get(at..)?)
}

/// Appends up to `count` bytes; fewer only at the end of the stream.
fn take(input: &mut impl Read, count: u64, raw: &mut Vec<u8>) -> io::Result<()> {
    input.take(count).read_to_end(raw).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::assemble;
    use crate::units::PAGE;
    use proptest::prelude::*;

    fn core(count: u64, notes: &[u8]) -> (Vec<u8>, Vec<ProgramHeader>) {
        let load = |index: u64| ProgramHeader {
            kind: PT_LOAD,
            vaddr: (index + 1) << 20,
            file_size: index % 3 * PAGE,
            memory_size: 3 * PAGE,
            align: PAGE,
            ..ProgramHeader::default()
        };
        let mut loads: Vec<_> = (0..count).map(load).collect();
        let (mut head, size) = assemble(&mut loads, notes, false);
        assert_eq!(head.len() as u64, loads.first().map_or(size, |load| load.offset));
        head.extend([7; 100]);
        (head, loads)
    }

    #[test]
    fn the_head_ends_where_the_memory_begins() {
        for count in [1, 40] {
            let (bytes, loads) = core(count, &[5; 3000]);
            let mut input = &bytes[..];
            let Head::Elf(head) = Head::read(&mut input).unwrap() else { panic!("{count}") };
            assert_eq!(head, ElfHead { notes: vec![5; 3000], loads });
            assert_eq!(input, [7; 100]);
        }
    }

    #[test]
    fn other_cores_are_kept_byte_by_byte() {
        let (bytes, _) = core(4, &[5; 300]);
        let mut cases = Vec::new();
        // Another machine; a table elsewhere; the first header another; an offset that jumps.
        for at in [MACHINE, TABLE, 64, 64 + 8, 64 + 56, 64 + 56 + 8, 64 + 3 * 56 + 8] {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            cases.push(changed);
        }
        for case in cases {
            let mut input = &case[..];
            let Head::Other { mut raw, .. } = Head::read(&mut input).unwrap() else {
                panic!("it is taken for a core")
            };
            raw.extend(input);
            assert_eq!(raw, case);
        }
    }

    #[test]
    fn what_is_no_core_is_an_error() {
        let (bytes, _) = core(4, &[5; 300]);
        assert!(Head::read(&mut &bytes[..63]).is_err());
        assert!(Head::read(&mut &[b'h'; 100][..]).is_err());
        // Another class, byte order, type.
        for at in [4, 5, TYPE] {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            assert!(Head::read(&mut &changed[..]).is_err(), "byte {at}");
        }
    }

    #[test]
    fn headers_promise_a_length() {
        let least = |bytes: &[u8]| match Head::read(&mut &bytes[..]).unwrap() {
            Head::Other { least, .. } => least,
            Head::Elf(_) => panic!("it is taken for a core of this machine"),
        };
        let (mut bytes, loads) = core(4, &[5; 300]);
        let cut = bytes[..64].to_vec();
        assert_eq!(least(&cut), 64 + 5 * 56);
        assert_eq!(least(&bytes[..64 + 5 * 56 + 20]), loads[3].offset.max(loads[2].offset + 2 * PAGE));
        bytes[MACHINE] ^= 1;
        assert!(least(&bytes) > bytes.len() as u64);
        // 32 bits: one program header, of 100 bytes at 200.
        let mut small = b"\x7fELF\x01\x01".to_vec();
        small.resize(84, 0);
        (small[TYPE], small[28], small[44], small[52 + 4], small[52 + 16]) = (4, 52, 1, 200, 100);
        assert_eq!(least(&small), 300);
    }

    proptest! {
        #[test]
        fn changed_and_cut_heads_are_no_reason_to_panic(
            changes in proptest::collection::vec((0usize..600, any::<u8>()), 0..8),
            length in 0usize..5000,
        ) {
            let (mut bytes, _) = core(6, &[0; 200]);
            bytes.truncate(length);
            for (at, value) in changes {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            let mut input = &bytes[..];
            if let Ok(Head::Elf(head)) = Head::read(&mut input) {
                let _ = (head.stack_pointers(), head.auxiliary_vector(), head.memory());
            }
        }
    }
}
