//! The headers of cores of either class and byte order.

use std::io;

use object::elf::{DataEncoding, FileClass, FileHeader32, FileHeader64};
use object::elf::{ELFCLASS32, ELFCLASS64, ELFDATA2LSB, ELFDATA2MSB, ELFMAG, ET_CORE, PN_XNUM};
use object::pod::{Pod, from_bytes, slice_from_all_bytes};
use object::read::elf::{FileHeader, ProgramHeader as _, SectionHeader};
use object::{BigEndian, Endianness, LittleEndian};

use crate::constants::{INCOMPLETE, LIMITED};
use crate::program_header::ProgramHeader;

/// Program headers read at a time.
const BATCH: u64 = 1024;

/// Why the headers of a core cannot be read. `E` is the error of what reads the file.
#[derive(Debug, thiserror::Error)]
pub enum ElfError<E: std::error::Error + 'static = io::Error> {
    /// The file cannot be read.
    #[error("cannot read ELF headers at offset {offset:#x}: {source}")]
    Read {
        /// Byte offset in the file.
        offset: u64,
        /// Why.
        source: E,
    },
    /// The file contradicts the format.
    #[error("at offset {offset:#x}: {what}")]
    Format {
        /// Byte offset of the field at fault.
        offset: u64,
        /// What was expected and what was found.
        what: String,
    },
    /// The file is ELF, but not of type ET_CORE.
    #[error("this ELF file is not a core; expected a vmcore (ET_CORE)")]
    NotCore,
}

impl<E: std::error::Error + 'static> ElfError<E> {
    fn format(offset: u64, what: impl Into<String>) -> Self {
        Self::Format { offset, what: what.into() }
    }
}

/// The file header of a core, and access to its program headers.
///
/// `R` reads the file: it fills a buffer from an offset.
pub struct ElfHeaders<R> {
    /// `e_machine`.
    pub machine: u16,
    /// Whether the core is 64-bit (ELFCLASS64).
    pub wide: bool,
    /// Whether integers have their highest byte first (ELFDATA2MSB).
    pub big_endian: bool,
    /// Whether the core is marked incomplete: its writer did not finish.
    pub incomplete: bool,
    /// Whether pagehaul left memory out because of a limit.
    pub limited: bool,
    /// File offset of the program headers.
    pub table: u64,
    /// Number of program headers; the file is large enough for all of them.
    pub count: u64,
    read: R,
    size: u64,
}

impl<R: Fn(u64, &mut [u8]) -> Result<(), E>, E: std::error::Error + 'static> ElfHeaders<R> {
    /// Reads the file header of a core of `size` bytes.
    pub fn open(size: u64, read: R) -> Result<Self, ElfError<E>> {
        let mut headers = Self {
            machine: 0,
            wide: false,
            big_endian: false,
            incomplete: false,
            limited: false,
            table: 0,
            count: 0,
            read,
            size,
        };
        let mut ident = [0; 16];
        headers.fill(0, &mut ident)?;
        if ident[..4] != ELFMAG {
            return Err(ElfError::format(0, "no ELF header; expected a vmcore or a kdump file"));
        }
        headers.big_endian = match DataEncoding(ident[5]) {
            ELFDATA2LSB => false,
            ELFDATA2MSB => true,
            other => return Err(ElfError::format(5, format!("{} is not an ELF byte order", other.0))),
        };
        match FileClass(ident[4]) {
            ELFCLASS64 => headers.wide = true,
            ELFCLASS32 => {}
            other => return Err(ElfError::format(4, format!("{} is not an ELF class", other.0))),
        }
        if headers.wide {
            headers.read_file_header::<FileHeader64<Endianness>>()?;
        } else {
            headers.read_file_header::<FileHeader32<Endianness>>()?;
        }
        Ok(headers)
    }

    fn read_file_header<H: FileHeader<Endian = Endianness>>(&mut self) -> Result<(), ElfError<E>> {
        let endian = if self.big_endian { Endianness::Big } else { Endianness::Little };
        let header: H = self.read_struct(0)?;
        if header.e_type(endian) != ET_CORE {
            return Err(ElfError::NotCore);
        }
        let size = size_of::<H::ProgramHeader>() as u64;
        let entry = header.e_phentsize(endian);
        if u64::from(entry) != size {
            let offset = if self.wide { 54 } else { 42 };
            let what = format!("program headers of {entry} bytes; expected {size}");
            return Err(ElfError::format(offset, what));
        }
        self.machine = header.e_machine(endian).0;
        self.incomplete = header.e_flags(endian).0 & INCOMPLETE != 0;
        self.limited = header.e_flags(endian).0 & LIMITED != 0;
        self.table = header.e_phoff(endian).into();
        self.count = u64::from(header.e_phnum(endian));
        if self.count == u64::from(PN_XNUM) {
            // The count is sh_info of the first section header. Only e_shoff shows that there is one: QEMU does not set
            // the other section fields.
            let offset: u64 = header.e_shoff(endian).into();
            if offset == 0 {
                return Err(ElfError::format(0, "65,535 or more program headers, but no section header"));
            }
            let section: H::SectionHeader = self.read_struct(offset)?;
            self.count = u64::from(section.sh_info(endian));
        }
        let (count, table, file) = (self.count, self.table, self.size);
        let end = count.checked_mul(size).and_then(|bytes| table.checked_add(bytes));
        if end.is_none_or(|end| end > file) {
            let what = format!(
                "{count} program headers do not fit a file of {file} bytes; it is truncated or damaged"
            );
            return Err(ElfError::format(table, what));
        }
        Ok(())
    }

    /// Calls `each` with every program header and its file offset. At most 1,024 of them are in memory.
    pub fn for_each<F: From<ElfError<E>>>(
        &self,
        each: impl FnMut(u64, ProgramHeader) -> Result<(), F>,
    ) -> Result<(), F> {
        match (self.wide, self.big_endian) {
            (true, false) => self.walk::<FileHeader64<LittleEndian>, F>(each),
            (true, true) => self.walk::<FileHeader64<BigEndian>, F>(each),
            (false, false) => self.walk::<FileHeader32<LittleEndian>, F>(each),
            (false, true) => self.walk::<FileHeader32<BigEndian>, F>(each),
        }
    }

    fn walk<H: FileHeader<Endian: Default>, F: From<ElfError<E>>>(
        &self,
        mut each: impl FnMut(u64, ProgramHeader) -> Result<(), F>,
    ) -> Result<(), F> {
        let endian = H::Endian::default();
        let size = size_of::<H::ProgramHeader>() as u64;
        let mut bytes = Vec::new();
        for first in (0..self.count).step_by(BATCH as usize) {
            let offset = self.table + first * size;
            bytes.resize(((self.count - first).min(BATCH) * size) as usize, 0);
            self.fill(offset, &mut bytes)?;
            let headers = slice_from_all_bytes::<H::ProgramHeader>(&bytes).unwrap_or(&[]);
            for (index, header) in headers.iter().enumerate() {
                let decoded = ProgramHeader {
                    kind: header.p_type(endian).0,
                    flags: header.p_flags(endian).0,
                    offset: header.p_offset(endian).into(),
                    vaddr: header.p_vaddr(endian).into(),
                    paddr: header.p_paddr(endian).into(),
                    file_size: header.p_filesz(endian).into(),
                    memory_size: header.p_memsz(endian).into(),
                    align: header.p_align(endian).into(),
                };
                each(offset + index as u64 * size, decoded)?;
            }
        }
        Ok(())
    }

    fn read_struct<T: Pod>(&self, offset: u64) -> Result<T, ElfError<E>> {
        let mut bytes = [0; 64];
        let bytes = &mut bytes[..size_of::<T>().min(64)];
        self.fill(offset, bytes)?;
        let (header, _) =
            from_bytes::<T>(bytes).map_err(|()| ElfError::format(offset, "a header is truncated"))?;
        Ok(*header)
    }

    /// Fills `buf` from `offset` of the file.
    pub fn fill(&self, offset: u64, buf: &mut [u8]) -> Result<(), ElfError<E>> {
        let (wanted, size) = (buf.len() as u64, self.size);
        if wanted == 0 {
            return Ok(());
        }
        if offset.checked_add(wanted).is_none_or(|end| end > size) {
            let what = format!("expected {wanted} bytes of ELF headers, but the file has {size} bytes");
            return Err(ElfError::format(offset, what));
        }
        (self.read)(offset, buf).map_err(|source| ElfError::Read { offset, source })
    }
}
