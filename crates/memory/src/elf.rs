//! ELF64 vmcores: `/proc/vmcore` in a capture kernel, saved copies of it, and QEMU's `dump-guest-memory`.

use std::path::Path;

use object::LittleEndian as Le;
use object::elf::{
    DataEncoding, ELFCLASS32, ELFCLASS64, ELFDATA2LSB, ET_CORE, FileClass, FileHeader64, PN_XNUM, PT_LOAD,
    PT_NOTE, ProgramHeader64, SectionHeader64,
};
use object::pod::{from_bytes, slice_from_all_bytes};

use crate::file::{PlainFile, ReadAt};
use crate::mapping::Window;
use crate::{KernelMapping, MapPolicy, MappedFile, OpenError, PhysMemory, Piece, RangeMap, ReadError, View};

/// Start of the kernel text mapping on x86_64 (`__START_KERNEL_map`).
const START_KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;
/// Notes above this are taken for a damaged header: 8,192 CPUs leave 12 MiB.
const MOST_NOTES: u64 = 256 << 20;

/// An ELF64 vmcore.
#[derive(Debug)]
pub struct ElfVmcore {
    file: MappedFile,
    ranges: RangeMap,
    notes: Vec<u8>,
    machine: u16,
    marked_incomplete: bool,
    kernel_mapping: Option<KernelMapping>,
    direct_map: Option<u64>,
}

impl ElfVmcore {
    /// Opens a vmcore. The header is read now, not when the file was made: kernels since 6.12 may add segments to
    /// /proc/vmcore until it is opened.
    pub fn open(file: PlainFile, policy: MapPolicy) -> Result<Self, OpenError> {
        let header = Header::read(&file)?;
        let mut pieces = Vec::new();
        let mut notes = Vec::new();
        let mut kernel_mapping = None;
        let mut direct_map = None;
        header.for_each_segment(&file, |at, segment| {
            match segment.p_type.get(Le) {
                PT_NOTE => append_notes(&file, at, segment, &mut notes)?,
                PT_LOAD => {
                    let vaddr = segment.p_vaddr.get(Le);
                    let paddr = segment.p_paddr.get(Le);
                    if vaddr >= START_KERNEL_MAP {
                        let size = segment.p_memsz.get(Le);
                        kernel_mapping.get_or_insert(KernelMapping { vaddr, paddr, size });
                    } else if vaddr >> 63 == 1 {
                        // QEMU leaves virtual addresses at zero.
                        direct_map.get_or_insert(vaddr.wrapping_sub(paddr));
                    }
                    pieces.push(piece(file.path(), at, segment)?);
                }
                _ => {}
            }
            Ok(())
        })?;
        if pieces.is_empty() {
            return Err(OpenError::Format {
                path: file.path().to_owned(),
                offset: header.table,
                what: "the vmcore has no PT_LOAD segment, so it holds no memory".into(),
            });
        }
        let ranges = RangeMap::new(pieces);
        let file = MappedFile::new(file, policy);
        Ok(Self {
            file,
            ranges,
            notes,
            machine: header.machine,
            marked_incomplete: header.marked_incomplete,
            kernel_mapping,
            direct_map,
        })
    }

    /// `e_machine` of the ELF header; 62 is x86_64.
    pub fn machine(&self) -> u16 {
        self.machine
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.file.file().path()
    }

    /// Whether the writer said that it did not finish: bit 0 of `e_flags`, which makedumpfile and pagehaul set in ELF
    /// dumps.
    pub fn is_incomplete(&self) -> bool {
        self.marked_incomplete
    }

    /// Bytes of segments that lie past the end of the file: not 0 when the file was cut.
    pub fn missing_bytes(&self) -> u64 {
        let size = self.file.file().size();
        let stored = self.ranges.pieces().iter().filter(|piece| piece.stored > 0);
        stored.map(|piece| (piece.offset + piece.stored).saturating_sub(size).min(piece.stored)).sum()
    }
}

impl PhysMemory for ElfVmcore {
    fn ranges(&self) -> &RangeMap {
        &self.ranges
    }

    fn mark_stored(&self, first_pfn: u64, bits: &mut [u64]) -> Result<(), ReadError> {
        self.ranges.mark_pages(first_pfn, crate::PAGE_SHIFT, true, bits);
        Ok(())
    }

    fn view(&self) -> Box<dyn View + '_> {
        let nowhere = Piece { start: 0, end: 0, stored: 0, offset: 0 };
        Box::new(ElfView { vmcore: self, window: self.file.window(), piece: nowhere, seen_faults: 0 })
    }

    fn notes(&self) -> &[u8] {
        &self.notes
    }

    fn files(&self) -> Vec<(u64, u64)> {
        vec![self.file.file().identity()]
    }

    fn kernel_mapping(&self) -> Option<KernelMapping> {
        self.kernel_mapping
    }

    fn direct_map(&self) -> Option<u64> {
        self.direct_map
    }
}

struct ElfView<'a> {
    vmcore: &'a ElfVmcore,
    window: Window<'a>,
    /// The piece found last: the next address is nearly always in it.
    piece: Piece,
    seen_faults: u64,
}

impl View for ElfView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        if !(self.piece.start..self.piece.end).contains(&paddr) {
            self.piece = *self.vmcore.ranges.find(paddr).ok_or(ReadError::NotPresent { paddr })?;
        }
        if self.piece.stored == 0 {
            return Err(ReadError::NotInDump { paddr });
        }
        let offset = self.piece.offset + (paddr - self.piece.start);
        let most = (self.piece.end - paddr).min(len as u64) as usize;
        let file = self.vmcore.file.file();
        match self.window.bytes(offset, most) {
            Ok([]) => Err(ReadError::Damaged {
                paddr,
                reason: format!(
                    "it should be at offset {offset:#x}, but the file ends at {:#x}",
                    file.size()
                ),
            }),
            Ok(bytes) => Ok(bytes),
            Err(source) => Err(ReadError::Io { path: file.path().to_owned(), offset, source }),
        }
    }

    fn end_of_hole(&self, paddr: u64) -> u64 {
        self.vmcore.ranges.next_start(paddr)
    }

    fn intact(&mut self) -> bool {
        let faults = self.window.faults();
        std::mem::replace(&mut self.seen_faults, faults) == faults
    }
}

/// What the ELF header says.
struct Header {
    machine: u16,
    marked_incomplete: bool,
    /// Offset of the program headers.
    table: u64,
    /// How many there are.
    count: u64,
}

impl Header {
    fn read(file: &PlainFile) -> Result<Self, OpenError> {
        let format = |offset, what: String| OpenError::Format { path: file.path().to_owned(), offset, what };
        let unsupported =
            |what: &str| OpenError::Unsupported { path: file.path().to_owned(), what: what.into() };
        let mut bytes = [0; size_of::<FileHeader64<Le>>()];
        read_header(file, 0, &mut bytes, "read the ELF header of")?;
        if bytes[..4] != *b"\x7fELF" {
            return Err(format(0, "no ELF header; expected a vmcore or a kdump file".into()));
        }
        let ident = (FileClass(bytes[4]), DataEncoding(bytes[5]));
        if ident == (ELFCLASS32, ELFDATA2LSB) {
            return Err(unsupported("ELF32 vmcores are not supported; save the vmcore as ELF64"));
        }
        if ident != (ELFCLASS64, ELFDATA2LSB) {
            return Err(unsupported("only 64-bit little-endian ELF vmcores are supported"));
        }
        let Ok((header, _)) = from_bytes::<FileHeader64<Le>>(&bytes) else {
            return Err(format(0, "the ELF header is cut".into()));
        };
        if header.e_type.get(Le) != ET_CORE {
            return Err(unsupported("this ELF file is not a core; expected a vmcore (ET_CORE)"));
        }
        let entry = header.e_phentsize.get(Le);
        if usize::from(entry) != size_of::<ProgramHeader64<Le>>() {
            return Err(format(54, format!("program headers of {entry} bytes; expected 56")));
        }
        let mut count = u64::from(header.e_phnum.get(Le));
        if count == u64::from(PN_XNUM) {
            // 65,535 segments and more: the count is sh_info of the first section header, whose place is all that
            // tells it is there (QEMU leaves the other section fields of the header as they are).
            let at = header.e_shoff.get(Le);
            let mut bytes = [0; size_of::<SectionHeader64<Le>>()];
            if at == 0 {
                return Err(format(56, "65,535 program headers and more, but no section header".into()));
            }
            read_header(file, at, &mut bytes, "read the section header of")?;
            if let Ok((section, _)) = from_bytes::<SectionHeader64<Le>>(&bytes) {
                count = u64::from(section.sh_info.get(Le));
            }
        }
        let table = header.e_phoff.get(Le);
        let end = table.checked_add(count * size_of::<ProgramHeader64<Le>>() as u64);
        if end.is_none_or(|end| end > file.size()) {
            return Err(format(
                table,
                format!(
                    "{count} program headers do not fit a file of {} bytes; it is cut or damaged",
                    file.size()
                ),
            ));
        }
        Ok(Self {
            machine: header.e_machine.get(Le).0,
            marked_incomplete: header.e_flags.get(Le).0 & 1 != 0,
            table,
            count,
        })
    }

    /// Calls `each` with the file offset and contents of every program header.
    fn for_each_segment(
        &self,
        file: &PlainFile,
        mut each: impl FnMut(u64, &ProgramHeader64<Le>) -> Result<(), OpenError>,
    ) -> Result<(), OpenError> {
        const BATCH: u64 = 1024;
        let size = size_of::<ProgramHeader64<Le>>() as u64;
        let mut bytes = Vec::new();
        for first in (0..self.count).step_by(BATCH as usize) {
            let at = self.table + first * size;
            bytes.resize(((self.count - first).min(BATCH) * size) as usize, 0);
            read_header(file, at, &mut bytes, "read the program headers of")?;
            let segments = slice_from_all_bytes::<ProgramHeader64<Le>>(&bytes).unwrap_or(&[]);
            for (index, segment) in segments.iter().enumerate() {
                each(at + index as u64 * size, segment)?;
            }
        }
        Ok(())
    }
}

fn read_header(file: &PlainFile, offset: u64, buf: &mut [u8], action: &'static str) -> Result<(), OpenError> {
    file.read_exact_at(offset, buf).map_err(|source| match source.kind() {
        std::io::ErrorKind::UnexpectedEof => OpenError::Format {
            path: file.path().to_owned(),
            offset,
            what: format!(
                "expected {} bytes of ELF headers, but the file has {} bytes",
                buf.len(),
                file.size()
            ),
        },
        _ => OpenError::Io { path: file.path().to_owned(), action, source },
    })
}

fn piece(path: &Path, at: u64, segment: &ProgramHeader64<Le>) -> Result<Piece, OpenError> {
    let start = segment.p_paddr.get(Le);
    let offset = segment.p_offset.get(Le);
    let file_size = segment.p_filesz.get(Le);
    let size = segment.p_memsz.get(Le).max(file_size);
    let (Some(end), Some(_)) = (start.checked_add(size), offset.checked_add(file_size)) else {
        return Err(OpenError::Format {
            path: path.to_owned(),
            offset: at,
            what: format!(
                "a segment of {size:#x} bytes at {start:#x} goes past the end of the address space"
            ),
        });
    };
    Ok(Piece { start, end, stored: file_size, offset })
}

fn append_notes(
    file: &PlainFile,
    at: u64,
    segment: &ProgramHeader64<Le>,
    notes: &mut Vec<u8>,
) -> Result<(), OpenError> {
    let (offset, size) = (segment.p_offset.get(Le), segment.p_filesz.get(Le));
    let fits = offset.checked_add(size).is_some_and(|end| end <= file.size());
    if !fits || size + notes.len() as u64 > MOST_NOTES {
        return Err(OpenError::Format {
            path: file.path().to_owned(),
            offset: at,
            what: format!(
                "notes of {size} bytes at {offset:#x} do not fit a file of {} bytes; it is cut or damaged",
                file.size()
            ),
        });
    }
    let start = notes.len();
    notes.resize(start + size as usize, 0);
    read_header(file, offset, &mut notes[start..], "read the notes of")
}
