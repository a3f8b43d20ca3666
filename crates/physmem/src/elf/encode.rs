//! The structs at the start of an ELF64 core that is being written, as `include/uapi/linux/elf.h` has them, little-endian.

/// Bytes of the file header.
pub const FILE_HEADER: u64 = 64;
/// Bytes of a program header.
pub const PROGRAM_HEADER: u64 = 56;
/// Bytes of a section header.
pub const SECTION_HEADER: u64 = 64;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const PF_RWX: u32 = 7;
const ET_CORE: u16 = 4;
const EM_X86_64: u16 = 62;
/// Count of program headers that stands for "see the first section header".
const PN_XNUM: u64 = 0xffff;
/// `e_flags` bit of a dump that is not whole, as makedumpfile sets it and crash reads it.
const INCOMPLETE: u32 = 1;

/// File offset of the end of `count` program headers.
pub fn table_end(count: u64) -> u64 {
    FILE_HEADER + count * PROGRAM_HEADER
}

/// The file header of a core of `count` program headers. Its section header, where one is needed, stands after the
/// room for `room` of them.
pub fn file_header(count: u64, room: u64, incomplete: bool) -> [u8; FILE_HEADER as usize] {
    let many = count >= PN_XNUM;
    let mut out = Bytes::default();
    // 64-bit, little-endian, version 1, System V.
    out.put(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    out.put(&ET_CORE.to_le_bytes());
    out.put(&EM_X86_64.to_le_bytes());
    out.put(&1u32.to_le_bytes());
    out.put(&0u64.to_le_bytes());
    out.put(&FILE_HEADER.to_le_bytes());
    out.put(&if many { table_end(room) } else { 0 }.to_le_bytes());
    out.put(&if incomplete { INCOMPLETE } else { 0 }.to_le_bytes());
    out.put(&(FILE_HEADER as u16).to_le_bytes());
    out.put(&(PROGRAM_HEADER as u16).to_le_bytes());
    out.put(&(count.min(PN_XNUM) as u16).to_le_bytes());
    out.put(&if many { SECTION_HEADER as u16 } else { 0 }.to_le_bytes());
    out.put(&u16::from(many).to_le_bytes());
    out.put(&0u16.to_le_bytes());
    out.0
}

/// The section header whose `sh_info` is the true count of program headers; zeros where the file header's suffices.
pub fn count_section(count: u64) -> [u8; SECTION_HEADER as usize] {
    let mut out = [0; SECTION_HEADER as usize];
    if count >= PN_XNUM {
        out[44..48].copy_from_slice(&(count as u32).to_le_bytes());
    }
    out
}

/// A program header.
#[derive(Debug, Clone, Copy)]
pub struct ProgramHeader {
    /// `p_type`.
    pub kind: u32,
    /// `p_flags`.
    pub flags: u32,
    /// File offset of the first byte.
    pub offset: u64,
    /// Virtual address of the first byte; 0 where it is not known.
    pub vaddr: u64,
    /// Physical address of the first byte.
    pub paddr: u64,
    /// Bytes in the file.
    pub file_size: u64,
    /// Bytes in memory.
    pub size: u64,
}

impl ProgramHeader {
    /// A PT_LOAD of nothing.
    pub const LOAD: Self =
        Self { kind: PT_LOAD, flags: PF_RWX, offset: 0, vaddr: 0, paddr: 0, file_size: 0, size: 0 };

    /// The PT_NOTE.
    pub fn note(offset: u64, size: u64) -> Self {
        Self { kind: PT_NOTE, flags: 0, offset, file_size: size, size, ..Self::LOAD }
    }

    /// As it stands in the file.
    pub fn encode(&self) -> [u8; PROGRAM_HEADER as usize] {
        let mut out = Bytes::default();
        out.put(&self.kind.to_le_bytes());
        out.put(&self.flags.to_le_bytes());
        for word in [self.offset, self.vaddr, self.paddr, self.file_size, self.size, 0] {
            out.put(&word.to_le_bytes());
        }
        out.0
    }
}

/// An array that is filled from its start.
struct Bytes<const N: usize>([u8; N], usize);

impl<const N: usize> Default for Bytes<N> {
    fn default() -> Self {
        Self([0; N], 0)
    }
}

impl<const N: usize> Bytes<N> {
    fn put(&mut self, bytes: &[u8]) {
        self.0[self.1..self.1 + bytes.len()].copy_from_slice(bytes);
        self.1 += bytes.len();
    }
}
