use object::elf::{self, ProgramFlags, ProgramHeader64, ProgramType};
use object::pod::{bytes_of, from_bytes};
use object::{LittleEndian, U32, U64};
use pagehaul_machine::KernelMapping;

use crate::write::PROGRAM_HEADER;

/// `p_type` of a range of memory.
pub const PT_LOAD: u32 = elf::PT_LOAD.0;
/// `p_type` of the notes.
pub const PT_NOTE: u32 = elf::PT_NOTE.0;
/// `p_flags` of executable memory.
pub const PF_X: u32 = elf::PF_X.0;
/// `p_flags` of writable memory.
pub const PF_W: u32 = elf::PF_W.0;
/// `p_flags` of readable memory.
pub const PF_R: u32 = elf::PF_R.0;

/// A program header, as numbers of the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProgramHeader {
    /// `p_type`.
    pub kind: u32,
    /// `p_flags`.
    pub flags: u32,
    /// `p_offset`: file offset of the first byte.
    pub offset: u64,
    /// `p_vaddr`: virtual address of the first byte; 0 if unknown.
    pub vaddr: u64,
    /// `p_paddr`: physical address of the first byte.
    pub paddr: u64,
    /// `p_filesz`: bytes in the file.
    pub file_size: u64,
    /// `p_memsz`: bytes in memory. The bytes beyond `file_size` are not in the file.
    pub memory_size: u64,
    /// `p_align`.
    pub align: u64,
}

impl ProgramHeader {
    /// A PT_NOTE of `size` bytes at `offset`, as vmcores have it.
    pub fn note(offset: u64, size: u64) -> Self {
        Self { kind: PT_NOTE, offset, file_size: size, memory_size: size, ..Self::default() }
    }

    /// A PT_LOAD of `memory_size` bytes at physical address `paddr`, of which the file holds `file_size` at `offset`. As
    /// vmcores have it: readable, writable and executable, with no virtual address.
    pub fn load(paddr: u64, memory_size: u64, offset: u64, file_size: u64) -> Self {
        let flags = PF_R | PF_W | PF_X;
        Self { kind: PT_LOAD, flags, offset, paddr, file_size, memory_size, ..Self::default() }
    }

    /// Returns the part of a PT_LOAD that `mapping` maps, at its virtual address. None if it has no byte there.
    ///
    /// Vmcores describe the kernel image twice: as a part of the direct map, and where the kernel text is mapped.
    pub fn mapped_at(&self, mapping: &KernelMapping) -> Option<Self> {
        let paddr = mapping.paddr.get();
        let start = self.paddr.max(paddr);
        let end = self.paddr.saturating_add(self.memory_size).min(paddr.saturating_add(mapping.size));
        let skipped = start - self.paddr;
        (start < end).then(|| Self {
            offset: self.offset + skipped,
            vaddr: start.wrapping_add(mapping.offset()),
            paddr: start,
            file_size: self.file_size.saturating_sub(skipped).min(end - start),
            memory_size: end - start,
            ..*self
        })
    }

    /// Decodes a 64-bit little-endian program header. None if it is truncated.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (header, _) = from_bytes::<ProgramHeader64<LittleEndian>>(bytes).ok()?;
        let word = |value: U64<LittleEndian>| value.get(LittleEndian);
        Some(Self {
            kind: header.p_type.get(LittleEndian).0,
            flags: header.p_flags.get(LittleEndian).0,
            offset: word(header.p_offset),
            vaddr: word(header.p_vaddr),
            paddr: word(header.p_paddr),
            file_size: word(header.p_filesz),
            memory_size: word(header.p_memsz),
            align: word(header.p_align),
        })
    }

    /// Encodes it as a 64-bit little-endian program header.
    pub fn encode(&self) -> [u8; PROGRAM_HEADER as usize] {
        let word = |value| U64::new(LittleEndian, value);
        let header = ProgramHeader64 {
            p_type: U32::new(LittleEndian, ProgramType(self.kind)),
            p_flags: U32::new(LittleEndian, ProgramFlags(self.flags)),
            p_offset: word(self.offset),
            p_vaddr: word(self.vaddr),
            p_paddr: word(self.paddr),
            p_filesz: word(self.file_size),
            p_memsz: word(self.memory_size),
            p_align: word(self.align),
        };
        let mut out = [0; PROGRAM_HEADER as usize];
        out.copy_from_slice(bytes_of(&header));
        out
    }
}

#[cfg(test)]
mod tests {
    use pagehaul_machine::{PhysAddr, VirtAddr};

    use super::*;

    fn mapping(vaddr: u64, paddr: u64, size: u64) -> KernelMapping {
        KernelMapping { vaddr: VirtAddr::new(vaddr), paddr: PhysAddr::new(paddr), size }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let header =
            ProgramHeader { vaddr: 7, align: 4096, ..ProgramHeader::load(0x1000, 0x4000, 0x100, 0x2000) };
        assert_eq!(ProgramHeader::decode(&header.encode()), Some(header));
        assert_eq!(ProgramHeader::decode(&header.encode()[..55]), None);
    }

    #[test]
    fn a_part_keeps_the_hole_at_the_end() {
        let load = ProgramHeader::load(0x1000, 0x4000, 0x100, 0x2000);
        let part = load.mapped_at(&mapping(0xf000, 0x2000, 0x2000)).unwrap();
        assert_eq!((part.paddr, part.memory_size), (0x2000, 0x2000));
        assert_eq!((part.offset, part.file_size, part.vaddr), (0x1100, 0x1000, 0xf000));
        let part = load.mapped_at(&mapping(0xf000, 0x4000, u64::MAX)).unwrap();
        assert_eq!((part.paddr, part.memory_size, part.file_size, part.vaddr), (0x4000, 0x1000, 0, 0xf000));
        let direct = load.mapped_at(&mapping(0xffff_8880_0000_0000, 0, u64::MAX)).unwrap();
        assert_eq!(direct, ProgramHeader { vaddr: 0xffff_8880_0000_1000, ..load });
        assert_eq!(load.mapped_at(&mapping(0, 0x5000, 0x1000)), None);
        assert_eq!(load.mapped_at(&mapping(0, 0, 0x1000)), None);
    }
}
