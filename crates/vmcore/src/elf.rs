//! ELF vmcores: `/proc/vmcore` in a capture kernel, saved copies of it, QEMU's `dump-guest-memory`, and `/proc/kcore` of
//! a running one.

use std::ops::Range;
use std::path::Path;

use pagehaul_elfcore::{ElfError, ElfHeaders, PT_LOAD, PT_NOTE, ProgramHeader, notes};
use pagehaul_kdump::Flattened;
use pagehaul_machine::arch::{self, x86_64::X86_64};
use pagehaul_machine::{KernelMapping, PageSize, PhysAddr, Platform, VirtAddr, VmcoreInfo};
use pagehaul_physmem::file::{PlainFile, ReadAt};
use pagehaul_physmem::{
    MapPolicy, MappedFile, OpenError, PAGE_SIZE, PageState, PhysMemory, Piece, RangeMap, ReadError, View,
};

use crate::file_memory::FileMemory;

/// `e_flags` in an ELF64 header.
const ELF_FLAGS: Range<u64> = 48..52;

/// More bytes of notes mean a damaged header: 8,192 CPUs leave 12 MiB.
const MAX_NOTES: u64 = 256 << 20;

/// Bytes of notes that are read if their size is impossible.
const SOME_NOTES: u64 = 1 << 20;
/// Memory that all segments may claim beyond the end of the file: 1 GiB for each 4 KiB of the file (its struct pages alone
/// take more), but at least 64 GiB.
const CLAIMED_PER_BYTE: u64 = (1 << 30) / PAGE_SIZE as u64;
const LEAST_CLAIM: u64 = 64 << 30;
/// Physical addresses have 52 bits at most, on x86_64 as on arm64.
const END_OF_MEMORY: u64 = 1 << 52;
/// Segments that are searched for gaps inside a page. kexec lists a few hundred ranges at most.
const MAX_SEGMENTS_WITH_GAPS: usize = 4096;
/// `p_paddr` of segments of /proc/kcore that are not RAM: vmalloc, vmemmap, modules.
const NO_MEMORY: u64 = u64::MAX;
/// Faults of headers that are reported in full; others are counted.
const TOLD: usize = 8;

/// An ELF vmcore, of either class and byte order.
pub struct ElfVmcore {
    memory: FileMemory,
    flattened: bool,
    notes: Vec<u8>,
    platform: Platform,
    faults: Vec<String>,
    marked_incomplete: bool,
    kernel_mapping: Option<KernelMapping>,
    direct_map: Option<u64>,
    is_live: bool,
}

impl ElfVmcore {
    /// Opens a vmcore. The header is read now, not when the file was made: kernels since 6.12 may add segments to
    /// /proc/vmcore until it is opened.
    pub fn open(file: PlainFile, policy: MapPolicy) -> Result<Self, OpenError> {
        Self::open_mapped(MappedFile::new(file, policy))
    }

    /// Opens a vmcore in what cannot be mapped: a file of a server.
    pub(crate) fn open_unmapped(file: Box<dyn ReadAt>) -> Result<Self, OpenError> {
        Self::open_mapped(MappedFile::unmapped(file))
    }

    /// Opens the vmcore that a flattened stream describes (`makedumpfile -E -F`).
    pub fn open_flattened(mut file: Flattened) -> Result<Self, OpenError> {
        let complete = file.is_complete();
        // pagehaul writes the mark of an incomplete dump last, as in kdump streams.
        file.read_missing_as_zeros(ELF_FLAGS, 4);
        let mut vmcore = Self::open_unmapped(Box::new(file))?;
        vmcore.flattened = true;
        if !complete {
            vmcore.faults.insert(0, pagehaul_kdump::TRUNCATED_STREAM.into());
        }
        Ok(vmcore)
    }

    fn open_mapped(mapped: MappedFile) -> Result<Self, OpenError> {
        let file = mapped.file();
        let failed = |error| open_error(file.path(), error);
        let headers = ElfHeaders::open(file.size(), |offset, buf: &mut [u8]| file.read_exact_at(offset, buf))
            .map_err(failed)?;
        let mut pieces = Vec::new();
        let mut notes = Vec::new();
        let mut is_kcore = false;
        let mut faults = Vec::new();
        let mut claim = file.size().saturating_mul(CLAIMED_PER_BYTE).max(LEAST_CLAIM);
        headers
            .for_each(|at, segment| {
                // An impossible segment is skipped: what the others hold can be read.
                match segment.kind {
                    PT_NOTE => {
                        let start = notes.len();
                        let size = notes_size(&segment, file.size(), start as u64, &mut faults);
                        notes.resize(start + size as usize, 0);
                        headers.fill(segment.offset, &mut notes[start..])?;
                    }
                    PT_LOAD if segment.paddr == NO_MEMORY => is_kcore = true,
                    PT_LOAD if segment.file_size.min(file.size()) > END_OF_MEMORY => {
                        return Err(ElfError::Format { offset: at, what: absurd(&segment) });
                    }
                    PT_LOAD => match piece(at, &segment, file.size(), &mut claim, &mut faults) {
                        Ok(piece) => {
                            let (vaddr, paddr) = (VirtAddr::new(segment.vaddr), PhysAddr::new(segment.paddr));
                            pieces.push((piece, KernelMapping { vaddr, paddr, size: segment.memory_size }));
                        }
                        Err(fault) => faults.push(fault),
                    },
                    _ => {}
                }
                Ok(())
            })
            .map_err(failed)?;
        if pieces.is_empty() {
            return Err(OpenError::Format {
                path: file.path().to_owned(),
                offset: headers.table,
                what: "the vmcore has no PT_LOAD segment, so it holds no memory".into(),
            });
        }
        if faults.len() > TOLD {
            let more = faults.len() - TOLD;
            faults.truncate(TOLD);
            faults.push(format!("{more} more program headers are invalid"));
        }
        let (wide, big_endian, machine) = (headers.wide, headers.big_endian, headers.machine);
        if big_endian {
            notes::swap_headers(&mut notes);
        }
        // A value that is no page size is damage of VMCOREINFO.
        let page_size = notes::vmcoreinfo_value(&notes, "PAGESIZE").and_then(|size| size.parse().ok());
        let page_size = page_size.and_then(PageSize::new).unwrap_or(PageSize::KIB_4);
        let platform = Platform { machine, wide, big_endian, page_size };
        let info = notes::vmcoreinfo(&notes).map(|(_, text)| VmcoreInfo::parse(text)).unwrap_or_default();
        // Hypervisors may leave the machine open.
        let arch = arch::of_elf_machine(machine).unwrap_or(&X86_64);
        let is_image = |mapping: &KernelMapping| arch.is_image(&info, mapping);
        // QEMU leaves virtual addresses at zero.
        let mut mappings =
            pieces.iter().map(|(_, mapping)| *mapping).filter(|mapping| mapping.vaddr.get() >> 63 == 1);
        let kernel_mapping = mappings.clone().find(&is_image);
        let direct_map = mappings.find(|mapping| !is_image(mapping));
        let direct_map = direct_map.map(|mapping| mapping.offset());
        let marked_incomplete = headers.incomplete;
        if is_kcore {
            // Of segments that overlap, the first counts, which has to be the direct map. With page table isolation, the
            // kernel unmaps the unused parts of its image from the image's mapping when it frees them
            // (free_kernel_image_pages, Linux 4.18), and /proc/kcore shows zeros there.
            pieces.sort_by_key(|(_, mapping)| is_image(mapping));
        }
        let mut pieces: Vec<Piece> = pieces.into_iter().map(|(piece, _)| piece).collect();
        complete_shared_pages(&mut pieces, mapped.file().size());
        let ranges = RangeMap::new(pieces);
        Ok(Self {
            memory: FileMemory::new(mapped, ranges),
            flattened: false,
            notes,
            platform,
            faults,
            marked_incomplete,
            kernel_mapping,
            direct_map,
            is_live: is_kcore,
        })
    }

    /// Whether it could not be read where it was. A running kernel refuses some of its memory.
    pub(crate) fn has_failed(&self) -> bool {
        !self.is_live && self.memory.has_failed()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.memory.file().path()
    }

    /// Whether it is in a flattened stream.
    pub fn is_flattened(&self) -> bool {
        self.flattened
    }

    /// Whether the writer marked it incomplete: bit 0 of `e_flags`, which makedumpfile and pagehaul set in ELF
    /// dumps.
    pub fn is_incomplete(&self) -> bool {
        self.marked_incomplete
    }

    /// Bytes of segments that lie past the end of the file: not 0 if the file is truncated.
    pub(crate) fn missing_bytes(&self) -> u64 {
        self.memory.missing_bytes()
    }
}

impl PhysMemory for ElfVmcore {
    fn ranges(&self) -> &RangeMap {
        self.memory.ranges()
    }

    fn mark_stored(&self, from: PhysAddr, bits: &mut [u64]) -> Result<(), ReadError> {
        self.memory.mark_stored(from, bits);
        Ok(())
    }

    fn held_bytes(&self) -> u64 {
        self.memory.held_bytes()
    }

    fn known_state(&self, paddr: u64) -> (Option<PageState>, u64) {
        self.memory.known_state(paddr)
    }

    fn view(&self) -> Box<dyn View + '_> {
        self.memory.view()
    }

    fn notes(&self) -> &[u8] {
        &self.notes
    }

    fn platform(&self) -> Platform {
        self.platform
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.faults.clone();
        if self.marked_incomplete {
            faults.push("it is marked incomplete: its writer did not finish".into());
        }
        let missing = self.missing_bytes();
        if missing > 0 {
            // The cause of what its notes lack.
            faults.insert(0, format!("it is truncated: {missing} bytes of memory are missing at its end"));
        }
        faults
    }

    fn files(&self) -> Vec<(u64, u64)> {
        vec![self.memory.identity()]
    }

    fn kernel_mapping(&self) -> Option<KernelMapping> {
        self.kernel_mapping
    }

    fn direct_map(&self) -> Option<u64> {
        self.direct_map
    }
}

/// What is wrong with a segment larger than all memory in a file that claims to hold it: /proc/vmcore. A damaged copy has a
/// size of its own.
fn absurd(segment: &ProgramHeader) -> String {
    // Reading it would map addresses that are not RAM, which aborts an arm64 capture kernel.
    format!(
        "the program header has {:#x} bytes of memory at {:#x}, more than any machine, so nothing is read: kexec did not find \
         the start of the kernel image; load the capture kernel where /proc/kallsyms has `_text` (CONFIG_KALLSYMS_ALL)",
        segment.file_size, segment.paddr
    )
}

/// Returns the memory of a PT_LOAD, or its fault.
fn piece(
    at: u64,
    segment: &ProgramHeader,
    end_of_file: u64,
    claim: &mut u64,
    faults: &mut Vec<String>,
) -> Result<Piece, String> {
    let ProgramHeader { paddr: start, offset, mut file_size, .. } = *segment;
    let mut size = segment.memory_size.max(file_size);
    let held = file_size.min(end_of_file.saturating_sub(offset));
    match claim.checked_sub(size - held) {
        Some(rest) => *claim = rest,
        None => {
            // Most likely one flipped bit. Without a bound, a few bytes would make every command scan petabytes.
            faults.push(format!(
                "the program header at {at:#x} has {size:#x} bytes of memory, too many for a file of {end_of_file:#x} bytes: \
                 only the {held:#x} in the file are read"
            ));
            (size, file_size) = (held, held);
        }
    }
    let end = start.checked_add(size).filter(|end| *end <= END_OF_MEMORY);
    match (end, offset.checked_add(file_size)) {
        (Some(end), Some(_)) => Ok(Piece { start, end, stored: file_size, offset }),
        _ => Err(format!(
            "the program header at {at:#x} has {size:#x} bytes at {start:#x}, past the end of the address space: it is \
             ignored"
        )),
    }
}

/// Closes gaps inside a page that two segments share. kexec-tools takes the inclusive end of riscv64's image in /proc/iomem for the
/// end of its segment, so that one byte is in none. /proc/vmcore has the whole page, in the places of both segments.
fn complete_shared_pages(pieces: &mut [Piece], end_of_file: u64) {
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    order.sort_by_key(|at| pieces.get(*at).map(|piece| piece.start));
    let in_file = |piece: &Piece| piece.offset..piece.offset.saturating_add(piece.stored);
    let mut last: Option<usize> = None;
    for at in order.into_iter().take(MAX_SEGMENTS_WITH_GAPS) {
        let Some(next) = pieces.get(at).copied() else { continue };
        let Some((last_at, piece)) = last.and_then(|at| Some((at, *pieces.get(at)?))) else {
            last = Some(at);
            continue;
        };
        if next.start > piece.end && next.start / PAGE_SIZE as u64 == piece.end / PAGE_SIZE as u64 {
            let is_whole = piece.stored == piece.end - piece.start
                && piece.offset % PAGE_SIZE as u64 == piece.start % PAGE_SIZE as u64;
            let end = in_file(&piece).end;
            let gap = end..end.saturating_add(next.start - piece.end);
            let is_taken = |other: &Piece| in_file(other).start < gap.end && gap.start < in_file(other).end;
            if is_whole
                && gap.end <= end_of_file
                && !pieces.iter().any(is_taken)
                && let Some(piece) = pieces.get_mut(last_at)
            {
                piece.stored += next.start - piece.end;
                piece.end = next.start;
            }
        }
        if next.end > piece.end {
            last = Some(at);
        }
    }
}

/// Returns how many bytes of a PT_NOTE to read, given that `held` bytes of notes are read already.
fn notes_size(segment: &ProgramHeader, file: u64, held: u64, faults: &mut Vec<String>) -> u64 {
    let (offset, size) = (segment.offset, segment.file_size);
    let there = file.saturating_sub(offset);
    if size <= there && size <= MAX_NOTES.saturating_sub(held) {
        return size;
    }
    let read = there.min(SOME_NOTES);
    faults.push(format!(
        "notes of {size} bytes at {offset:#x} do not fit a file of {file} bytes: {read} bytes of them are read"
    ));
    read
}

fn open_error(path: &Path, error: ElfError) -> OpenError {
    let path = path.to_owned();
    match error {
        ElfError::Read { source, .. } => OpenError::Io { path, action: "read the ELF headers of", source },
        ElfError::Format { offset, what } => OpenError::Format { path, offset, what },
        ElfError::NotCore => OpenError::Unsupported { path, what: error.to_string() },
    }
}
