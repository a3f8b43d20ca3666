//! The headers of an ELF core, of either class and byte order, as plain numbers.

use std::path::Path;

use object::elf::{DataEncoding, FileClass, FileHeader32, FileHeader64};
use object::elf::{ELFCLASS32, ELFCLASS64, ELFDATA2LSB, ELFDATA2MSB, ET_CORE, PN_XNUM};
use object::pod::{Pod, bytes_of_slice_mut, from_bytes, slice_from_all_bytes};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{BigEndian, Endian, Endianness, LittleEndian};

use crate::file::{PlainFile, ReadAt};
use crate::{Arch, OpenError};

/// Program headers read at a time.
const BATCH: u64 = 1024;

/// What the ELF header says.
pub(super) struct Header {
    pub(super) arch: Arch,
    pub(super) marked_incomplete: bool,
    /// Offset of the program headers.
    pub(super) table: u64,
    /// How many there are.
    count: u64,
}

/// A program header.
pub(super) struct Segment {
    /// Where in the file it stands.
    pub(super) at: u64,
    pub(super) kind: u32,
    pub(super) offset: u64,
    pub(super) vaddr: u64,
    pub(super) paddr: u64,
    pub(super) file_size: u64,
    pub(super) memory_size: u64,
}

impl Header {
    pub(super) fn read(file: &PlainFile) -> Result<Self, OpenError> {
        let mut ident = [0; 16];
        read_part(file, 0, &mut ident, "read the ELF header of")?;
        if ident[..4] != *b"\x7fELF" {
            return Err(format(file, 0, "no ELF header; expected a vmcore or a kdump file".into()));
        }
        let endian = match DataEncoding(ident[5]) {
            ELFDATA2LSB => Endianness::Little,
            ELFDATA2MSB => Endianness::Big,
            other => return Err(format(file, 5, format!("{} is no byte order that ELF knows", other.0))),
        };
        match FileClass(ident[4]) {
            ELFCLASS64 => Self::read_as::<FileHeader64<Endianness>>(file, endian, true),
            ELFCLASS32 => Self::read_as::<FileHeader32<Endianness>>(file, endian, false),
            other => Err(format(file, 4, format!("{} is no class that ELF knows", other.0))),
        }
    }

    fn read_as<H>(file: &PlainFile, endian: Endianness, wide: bool) -> Result<Self, OpenError>
    where
        H: FileHeader<Endian = Endianness>,
    {
        let header: H = read_pod(file, 0, "read the ELF header of")?;
        if header.e_type(endian) != ET_CORE {
            return Err(OpenError::Unsupported {
                path: file.path().to_owned(),
                what: "this ELF file is not a core; expected a vmcore (ET_CORE)".into(),
            });
        }
        let size = size_of::<H::ProgramHeader>() as u64;
        let entry = header.e_phentsize(endian);
        if u64::from(entry) != size {
            let at = if wide { 54 } else { 42 };
            return Err(format(file, at, format!("program headers of {entry} bytes; expected {size}")));
        }
        let mut count = u64::from(header.e_phnum(endian));
        if count == u64::from(PN_XNUM) {
            // 65,535 segments and more: the count is sh_info of the first section header, whose place is all that
            // tells it is there (QEMU leaves the other section fields of the header as they are).
            let at: u64 = header.e_shoff(endian).into();
            if at == 0 {
                let what = "65,535 program headers and more, but no section header".into();
                return Err(format(file, 0, what));
            }
            let section: H::SectionHeader = read_pod(file, at, "read the section header of")?;
            count = u64::from(section.sh_info(endian));
        }
        let table: u64 = header.e_phoff(endian).into();
        let end = count.checked_mul(size).and_then(|bytes| table.checked_add(bytes));
        if end.is_none_or(|end| end > file.size()) {
            return Err(format(
                file,
                table,
                format!(
                    "{count} program headers do not fit a file of {} bytes; it is cut or damaged",
                    file.size()
                ),
            ));
        }
        Ok(Self {
            arch: Arch {
                machine: header.e_machine(endian).0,
                wide,
                big_endian: endian.is_big_endian(),
                page_size: crate::PAGE_SIZE as u32,
            },
            marked_incomplete: header.e_flags(endian).0 & 1 != 0,
            table,
            count,
        })
    }

    /// Calls `each` with every program header.
    pub(super) fn for_each_segment(
        &self,
        file: &PlainFile,
        each: impl FnMut(Segment) -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        match (self.arch.wide, self.arch.big_endian) {
            (true, false) => self.walk::<FileHeader64<LittleEndian>>(file, each),
            (true, true) => self.walk::<FileHeader64<BigEndian>>(file, each),
            (false, false) => self.walk::<FileHeader32<LittleEndian>>(file, each),
            (false, true) => self.walk::<FileHeader32<BigEndian>>(file, each),
        }
    }

    fn walk<H>(
        &self,
        file: &PlainFile,
        mut each: impl FnMut(Segment) -> Result<(), OpenError>,
    ) -> Result<(), OpenError>
    where
        H: FileHeader<Endian: Default>,
    {
        let endian = H::Endian::default();
        let size = size_of::<H::ProgramHeader>() as u64;
        // Words, so that the headers in them are aligned: both kinds are a multiple of 8 bytes.
        let mut words: Vec<u64> = Vec::new();
        for first in (0..self.count).step_by(BATCH as usize) {
            let at = self.table + first * size;
            words.resize(((self.count - first).min(BATCH) * size / 8) as usize, 0);
            let bytes = bytes_of_slice_mut(&mut words);
            read_part(file, at, bytes, "read the program headers of")?;
            let segments = slice_from_all_bytes::<H::ProgramHeader>(bytes).unwrap_or(&[]);
            for (index, segment) in segments.iter().enumerate() {
                each(Segment {
                    at: at + index as u64 * size,
                    kind: segment.p_type(endian).0,
                    offset: segment.p_offset(endian).into(),
                    vaddr: segment.p_vaddr(endian).into(),
                    paddr: segment.p_paddr(endian).into(),
                    file_size: segment.p_filesz(endian).into(),
                    memory_size: segment.p_memsz(endian).into(),
                })?;
            }
        }
        Ok(())
    }
}

fn read_pod<T: Pod>(file: &PlainFile, offset: u64, action: &'static str) -> Result<T, OpenError> {
    // Large enough for the largest header, and aligned for it.
    let mut words = [0u64; 8];
    let bytes = &mut bytes_of_slice_mut(&mut words)[..size_of::<T>().min(64)];
    read_part(file, offset, bytes, action)?;
    match from_bytes::<T>(bytes) {
        Ok((value, _)) => Ok(*value),
        Err(()) => Err(format(file, offset, "a header is cut".into())),
    }
}

/// Fills `buf` from `offset` on.
pub(super) fn read_part(
    file: &PlainFile,
    offset: u64,
    buf: &mut [u8],
    action: &'static str,
) -> Result<(), OpenError> {
    file.read_exact_at(offset, buf).map_err(|source| match source.kind() {
        std::io::ErrorKind::UnexpectedEof => format(
            file,
            offset,
            format!("expected {} bytes of ELF headers, but the file has {} bytes", buf.len(), file.size()),
        ),
        _ => OpenError::Io { path: file.path().to_owned(), action, source },
    })
}

fn format(file: &PlainFile, offset: u64, what: String) -> OpenError {
    let path: &Path = file.path();
    OpenError::Format { path: path.to_owned(), offset, what }
}
