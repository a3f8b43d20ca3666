//! The headers of 64-bit little-endian cores.

use object::elf::{
    ELFCLASS64, ELFDATA2LSB, ELFMAG, ELFOSABI_SYSV, FileVersion, ProgramHeader64, SymbolSection,
};
use object::elf::{ET_CORE, EV_CURRENT, FileFlags, FileHeader64, Ident, Machine, PN_XNUM, SectionHeader64};
use object::pod::bytes_of;
use object::{LittleEndian, U16, U32, U64};

use crate::constants::{INCOMPLETE, LIMITED};

/// Bytes of the file header.
pub const FILE_HEADER: u64 = size_of::<FileHeader64<LittleEndian>>() as u64;
/// Bytes of a program header.
pub const PROGRAM_HEADER: u64 = size_of::<ProgramHeader64<LittleEndian>>() as u64;
/// Bytes of a section header.
pub const SECTION_HEADER: u64 = size_of::<SectionHeader64<LittleEndian>>() as u64;
/// Offset of `e_flags` in the file header.
const FLAGS: usize = std::mem::offset_of!(FileHeader64<LittleEndian>, e_flags);
/// Offset of `sh_info` in a section header.
const INFO: usize = std::mem::offset_of!(SectionHeader64<LittleEndian>, sh_info);

/// Returns the file offset at which a table of `count` program headers ends.
pub fn table_end(count: u64) -> u64 {
    FILE_HEADER + count * PROGRAM_HEADER
}

/// Returns the file offset behind a table of `count` program headers and the [section header](count_section) that it needs
/// if there are many.
pub fn headers_end(count: u64) -> u64 {
    table_end(count) + if count >= u64::from(PN_XNUM) { SECTION_HEADER } else { 0 }
}

/// Encodes the file header of a core of `machine` (`e_machine`) with `count` program headers, which start right after it.
///
/// From 65,535 (PN_XNUM) on, the count does not fit the file header: it is in the [section header](count_section), whose
/// place is the end of a table of `room` program headers.
pub fn file_header(machine: u16, count: u64, room: u64, incomplete: bool) -> [u8; FILE_HEADER as usize] {
    let many = count >= u64::from(PN_XNUM);
    let half = |value: u64| U16::new(LittleEndian, value as u16);
    let header = FileHeader64 {
        e_ident: Ident {
            magic: ELFMAG,
            class: ELFCLASS64,
            data: ELFDATA2LSB,
            version: FileVersion(EV_CURRENT.0),
            os_abi: ELFOSABI_SYSV,
            abi_version: 0,
            padding: [0; 7],
        },
        e_type: U16::new(LittleEndian, ET_CORE),
        e_machine: U16::new(LittleEndian, Machine(machine)),
        e_version: U32::new(LittleEndian, u32::from(EV_CURRENT.0)),
        e_entry: U64::new(LittleEndian, 0),
        e_phoff: U64::new(LittleEndian, FILE_HEADER),
        e_shoff: U64::new(LittleEndian, if many { table_end(room) } else { 0 }),
        e_flags: U32::new(LittleEndian, FileFlags(if incomplete { INCOMPLETE } else { 0 })),
        e_ehsize: half(FILE_HEADER),
        e_phentsize: half(PROGRAM_HEADER),
        e_phnum: half(count.min(u64::from(PN_XNUM))),
        e_shentsize: half(if many { SECTION_HEADER } else { 0 }),
        e_shnum: half(u64::from(many)),
        e_shstrndx: U16::new(LittleEndian, SymbolSection(0)),
    };
    let mut out = [0; FILE_HEADER as usize];
    out.copy_from_slice(bytes_of(&header));
    out
}

/// Encodes the section header whose `sh_info` is the count of program headers. All zeros if the count fits the file
/// header.
pub fn count_section(count: u64) -> [u8; SECTION_HEADER as usize] {
    let mut out = [0; SECTION_HEADER as usize];
    if count >= u64::from(PN_XNUM) {
        out[INFO..INFO + 4].copy_from_slice(&(count as u32).to_le_bytes());
    }
    out
}

/// Sets or clears the mark of an incomplete core in its first bytes.
pub fn set_incomplete(start: &mut [u8], incomplete: bool) {
    set_flag(start, INCOMPLETE, incomplete);
}

/// Sets or clears the mark of a core from which a limit left memory out, in its first bytes.
pub fn set_limited(start: &mut [u8], limited: bool) {
    set_flag(start, LIMITED, limited);
}

fn set_flag(start: &mut [u8], flag: u32, is_set: bool) {
    if let Some(field) = start.get_mut(FLAGS..).and_then(<[u8]>::first_chunk_mut::<4>) {
        let others = u32::from_le_bytes(*field) & !flag;
        *field = (others | if is_set { flag } else { 0 }).to_le_bytes();
    }
}
