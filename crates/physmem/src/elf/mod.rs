//! ELF vmcores: `/proc/vmcore` in a capture kernel, saved copies of it, QEMU's `dump-guest-memory`, and `/proc/kcore` of
//! a running one.

pub mod encode;
mod header;

use std::path::Path;

use object::elf::{PT_LOAD, PT_NOTE};

use crate::file::{PlainFile, ReadAt};
use crate::mapping::Window;
use crate::{Arch, KernelMapping, MapPolicy, MappedFile, OpenError, PhysMemory};
use crate::{Piece, RangeMap, ReadError, View};
use header::{Header, Segment};

/// Start of the kernel text mapping on x86_64 (`__START_KERNEL_map`).
const START_KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;
/// Notes above this are taken for a damaged header: 8,192 CPUs leave 12 MiB.
const MOST_NOTES: u64 = 256 << 20;

/// Bytes of notes that are read where their size cannot be true.
const SOME_NOTES: u64 = 1 << 20;
/// Memory that a segment may have beyond what the file holds of it: what page tables of 4 levels reach.
const MOST_LEFT_OUT: u64 = 64 << 40;
/// Physical addresses have 52 bits at most, on x86_64 as on arm64.
const END_OF_MEMORY: u64 = 1 << 52;
/// `p_paddr` of segments of /proc/kcore that are no RAM: vmalloc, vmemmap, modules.
const NO_MEMORY: u64 = u64::MAX;
/// Faults of headers that are told in full; of more, how many.
const TOLD: usize = 8;

/// An ELF vmcore, of either class and byte order.
#[derive(Debug)]
pub struct ElfVmcore {
    file: MappedFile,
    ranges: RangeMap,
    notes: Vec<u8>,
    arch: Arch,
    faults: Vec<String>,
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
        let mut faults = Vec::new();
        header.for_each_segment(&file, |segment| {
            // A segment that cannot be is left out, and what the others hold is still there.
            match object::elf::ProgramType(segment.kind) {
                PT_NOTE => append_notes(&file, &segment, &mut notes, &mut faults)?,
                PT_LOAD if segment.paddr == NO_MEMORY => {}
                PT_LOAD => match piece(&segment, &mut faults) {
                    Ok(piece) => {
                        pieces.push(piece);
                        let Segment { vaddr, paddr, memory_size: size, .. } = segment;
                        if vaddr >= START_KERNEL_MAP {
                            kernel_mapping.get_or_insert(KernelMapping { vaddr, paddr, size });
                        } else if vaddr >> 63 == 1 {
                            // QEMU leaves virtual addresses at zero.
                            direct_map.get_or_insert(vaddr.wrapping_sub(paddr));
                        }
                    }
                    Err(fault) => faults.push(fault),
                },
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
        if faults.len() > TOLD {
            let more = faults.len() - TOLD;
            faults.truncate(TOLD);
            faults.push(format!("{more} more program headers cannot be"));
        }
        if header.arch.big_endian {
            crate::notes::normalise(&mut notes);
        }
        let ranges = RangeMap::new(pieces);
        let file = MappedFile::new(file, policy);
        Ok(Self {
            file,
            ranges,
            notes,
            arch: header.arch,
            faults,
            marked_incomplete: header.marked_incomplete,
            kernel_mapping,
            direct_map,
        })
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

    fn arch(&self) -> Arch {
        self.arch
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.faults.clone();
        if self.marked_incomplete {
            faults.push("it is marked incomplete: its writer did not finish".into());
        }
        let missing = self.missing_bytes();
        if missing > 0 {
            faults.push(format!("it is cut: {missing} bytes of memory are missing at its end"));
        }
        faults
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
            Ok([]) => Err(ReadError::Missing {
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

/// The memory of a PT_LOAD, or what is wrong with it.
fn piece(segment: &Segment, faults: &mut Vec<String>) -> Result<Piece, String> {
    let Segment { at, paddr: start, offset, file_size, .. } = *segment;
    let mut size = segment.memory_size.max(file_size);
    if size - file_size > MOST_LEFT_OUT {
        // One flipped bit, most likely: whoever looks at all memory would look for hours at what there never was.
        faults.push(format!(
            "the program header at {at:#x} has {size:#x} bytes of memory, more than any machine: only the {file_size:#x} in \
             the file are read"
        ));
        size = file_size;
    }
    let end = start.checked_add(size).filter(|end| *end <= END_OF_MEMORY);
    match (end, offset.checked_add(file_size)) {
        (Some(end), Some(_)) => Ok(Piece { start, end, stored: file_size, offset }),
        _ => Err(format!(
            "the program header at {at:#x} has {size:#x} bytes at {start:#x}, past the end of the address space: it is \
             left out"
        )),
    }
}

/// Adds the notes of a PT_NOTE, as far as they are there.
fn append_notes(
    file: &PlainFile,
    segment: &Segment,
    notes: &mut Vec<u8>,
    faults: &mut Vec<String>,
) -> Result<(), OpenError> {
    let (offset, size) = (segment.offset, segment.file_size);
    let held = file.size().saturating_sub(offset);
    let mut there = size;
    if held < size || size > MOST_NOTES.saturating_sub(notes.len() as u64) {
        there = held.min(SOME_NOTES);
        faults.push(format!(
            "notes of {size} bytes at {offset:#x} do not fit a file of {} bytes: {there} bytes of them are read",
            file.size()
        ));
    }
    let start = notes.len();
    notes.resize(start + there as usize, 0);
    header::read_part(file, offset, &mut notes[start..], "read the notes of")
}
