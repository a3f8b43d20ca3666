use std::ops::Range;

use pagehaul_machine::{KernelMapping, PageSize, Pfn, PhysAddr, Platform};

use crate::error::ReadError;
use crate::ranges::RangeMap;
use crate::state::PageState;
use crate::{PAGE_SIZE, bits};

/// Physical memory of one machine. Shared by all threads; the state of a thread is in its [`View`].
pub trait PhysMemory: Send + Sync {
    /// Returns the memory of the machine, by physical address. Includes pages that a dump excludes.
    fn ranges(&self) -> &RangeMap;

    /// Sets in `bits` (bit *i* = the 4 KiB at `from` + 4096 *i*) all memory whose contents this source holds: that in
    /// [`ranges`](Self::ranges), less what an earlier dump excluded. Other bits are cleared. `from` is a multiple of 4 KiB.
    fn mark_stored(&self, from: PhysAddr, bits: &mut [u64]) -> Result<(), ReadError>;

    /// As [`mark_stored`](Self::mark_stored) for pages of `size` (bit *i* = PFN `first + i`): one is stored if a part of it is.
    /// `parts` is memory that is reused.
    fn mark_stored_pages(
        &self,
        size: PageSize,
        first: Pfn,
        bits: &mut [u64],
        parts: &mut Vec<u64>,
    ) -> Result<(), ReadError> {
        if size == PageSize::KIB_4 {
            return self.mark_stored(first.start(size), bits);
        }
        parts.resize(bits.len() * size.parts() as usize, 0);
        self.mark_stored(first.start(size), parts)?;
        bits::any_of_each(parts, size.parts() as usize, bits);
        Ok(())
    }

    /// Returns the most bytes of memory that the source can hold, by the size of its files: a bound on work that its headers
    /// request.
    fn held_bytes(&self) -> u64 {
        self.ranges().bytes()
    }

    /// Returns the state of memory from `paddr`, if known without reading it, and the address up to which it holds. Memory
    /// known to be present is zeros: a hole of a file. `None` means that it must be read.
    fn known_state(&self, _paddr: u64) -> (Option<PageState>, u64) {
        (None, u64::MAX)
    }

    /// Returns a reader for one thread.
    fn view(&self) -> Box<dyn View + '_>;

    /// Returns the ELF notes of the source, as in its PT_NOTE: registers, VMCOREINFO and others.
    fn notes(&self) -> &[u8];

    /// Returns the machine that it is of.
    fn platform(&self) -> Platform {
        Platform::X86_64
    }

    /// Returns the faults of the source as a whole, one sentence each: it is truncated, marked incomplete, or lacks parts.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns device and inode of every file that is read, so that no output overwrites its source.
    fn files(&self) -> Vec<(u64, u64)>;

    /// Returns the location of the kernel image, if the source has it (the PT_LOAD of the kernel text in an ELF vmcore). For
    /// kernels before 4.10 this is the only source of phys_base.
    fn kernel_mapping(&self) -> Option<KernelMapping> {
        None
    }

    /// Returns the virtual address of physical address 0 (PAGE_OFFSET), if the source has it.
    fn direct_map(&self) -> Option<u64> {
        None
    }
}

/// Buffer for a page that no window holds whole.
pub type PageBuf = [u8; PAGE_SIZE];

/// Reads physical memory, for one thread.
pub trait View: Send {
    /// Returns the bytes at `paddr`: at least one, at most `len`, valid until the next call. They end where a segment, a window
    /// or a decompressed page does; the next call continues from there.
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError>;

    /// Returns whether a read may take the time of a request to a server.
    fn is_remote(&self) -> bool {
        false
    }

    /// Announces ranges of memory that are read soon. A source on a server fetches them together; others do nothing.
    fn will_need(&mut self, _ranges: &[Range<u64>]) {}

    /// Announces that pages all over the memory are read soon. A source on a server fetches what leads to them; others do nothing.
    fn will_need_tables(&mut self) {}

    /// Returns an address after `paddr` up to which the source has no byte; it has none at `paddr`.
    fn end_of_hole(&self, paddr: u64) -> u64 {
        paddr + 1
    }

    /// Returns whether bytes of a window failed since the last call. Mapped bytes may fail only when they are read (a truncated
    /// file, a bad disk, poisoned memory); they then read as zero.
    fn take_fault(&mut self) -> bool {
        false
    }

    /// Fills `buf` from `paddr`, or fails at the first unavailable byte.
    fn read(&mut self, paddr: u64, buf: &mut [u8]) -> Result<(), ReadError> {
        let mut done = 0;
        while done < buf.len() {
            let at = paddr.checked_add(done as u64).ok_or(ReadError::NotPresent { paddr })?;
            let piece = self.window(at, buf.len() - done)?;
            buf[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        }
        Ok(())
    }

    /// Returns the little-endian word at `paddr`.
    fn read_u64(&mut self, paddr: u64) -> Result<u64, ReadError> {
        let mut word = [0; 8];
        self.read(paddr, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Returns the 4 KiB at `at`, from a window that holds it whole, else gathered in `scratch`. Of a page that the source holds
    /// in part, bytes outside every segment read as zero (PFN 0x9f, below the EBDA, is such a page), and so do bytes that
    /// were excluded.
    fn page<'a>(&'a mut self, at: PhysAddr, scratch: &'a mut PageBuf) -> Result<&'a PageBuf, ReadError> {
        self.block(at.get(), scratch)?.try_into().map_err(|_| changed(at.get()))
    }

    /// The bytes from `paddr`, as many as `scratch` has, as [`page`](Self::page) shows them: a page of any size.
    fn block<'a>(&'a mut self, paddr: u64, scratch: &'a mut [u8]) -> Result<&'a [u8], ReadError> {
        // Requested twice, because the borrow checker rejects a returned window in one branch only; the second lookup is
        // a cache hit.
        let size = scratch.len();
        if matches!(self.window(paddr, size), Ok(window) if window.len() == size) {
            let window = self.window(paddr, size)?;
            return if window.len() == size { Ok(window) } else { Err(changed(paddr)) };
        }
        gather(self, paddr, scratch)?;
        Ok(scratch)
    }

    /// Copies the 4 KiB at `at` to `page`, with the contents of [`page`](Self::page) and without an intermediate buffer. On error
    /// `page` is undefined.
    fn copy_page(&mut self, at: PhysAddr, page: &mut PageBuf) -> Result<(), ReadError> {
        match self.read(at.get(), page) {
            Err(ReadError::NotPresent { .. } | ReadError::NotInDump { .. }) => gather(self, at.get(), page),
            done => done,
        }
    }
}

fn changed(paddr: u64) -> ReadError {
    ReadError::Damaged { paddr, reason: "the source changed while it was read".into() }
}

/// Assembles a page of which the source holds only parts.
fn gather<V: View + ?Sized>(view: &mut V, paddr: u64, page: &mut [u8]) -> Result<(), ReadError> {
    page.fill(0);
    let mut at = 0;
    let mut found = false;
    let mut lacking = ReadError::NotPresent { paddr };
    while at < page.len() {
        // Segments, and what is stored of them, may begin or end at any byte.
        let hole = match view.window(paddr + at as u64, page.len() - at) {
            Ok(piece) => {
                page[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
                found = true;
                continue;
            }
            Err(ReadError::NotPresent { paddr: hole }) => hole,
            Err(ReadError::NotInDump { paddr: hole }) => {
                lacking = ReadError::NotInDump { paddr };
                hole
            }
            Err(error) => return Err(error),
        };
        at = (view.end_of_hole(hole).saturating_sub(paddr)).min(page.len() as u64) as usize;
    }
    if found { Ok(()) } else { Err(lacking) }
}
