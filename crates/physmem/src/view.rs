use crate::{Arch, PAGE_SHIFT, PAGE_SIZE, PageState, RangeMap, ReadError};

/// Physical memory of one machine. Shared by all threads; what a thread needs of its own is in its [`View`].
pub trait PhysMemory: Send + Sync {
    /// What memory the machine has, by physical address. Includes pages that a dump excludes.
    fn ranges(&self) -> &RangeMap;

    /// Sets in `bits` (bit *i* = PFN `first_pfn + i`) every page whose contents this source holds: those in
    /// [`ranges`](Self::ranges), less those that an earlier dump excluded. Bits of other pages are cleared.
    fn mark_stored(&self, first_pfn: u64, bits: &mut [u64]) -> Result<(), ReadError>;

    /// The bytes of memory that the source can hold at most, by the size of its files: a bound on work that its headers
    /// ask for.
    fn held_bytes(&self) -> u64 {
        self.ranges().bytes()
    }

    /// The state of memory from `paddr`, as far as it is known without reading it, and the address up to which that is
    /// so. Memory known to be present is zeros: a hole of a file. `None` says that it has to be read.
    fn known_state(&self, _paddr: u64) -> (Option<PageState>, u64) {
        (None, u64::MAX)
    }

    /// A way to read, for one thread.
    fn view(&self) -> Box<dyn View + '_>;

    /// The ELF notes of the source, as they stand in its PT_NOTE: registers, VMCOREINFO, whatever else.
    fn notes(&self) -> &[u8];

    /// The kind of machine whose memory it is.
    fn arch(&self) -> Arch {
        Arch::X86_64
    }

    /// What is wrong with the source as a whole, one sentence each: it is truncated, marked incomplete, or lacks parts.
    fn faults(&self) -> Vec<String> {
        Vec::new()
    }

    /// Device and inode of every file that is read, so that no output is written over its source.
    fn files(&self) -> Vec<(u64, u64)>;

    /// Where the kernel image is, where the source says so (the PT_LOAD of the kernel text in an ELF vmcore). Kernels
    /// before 4.10 tell phys_base no other way.
    fn kernel_mapping(&self) -> Option<KernelMapping> {
        None
    }

    /// The virtual address at which the kernel sees physical address 0 (PAGE_OFFSET), where the source says so.
    fn direct_map(&self) -> Option<u64> {
        None
    }
}

/// A range of physical memory that the kernel sees at addresses of its image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelMapping {
    /// First virtual address.
    pub vaddr: u64,
    /// First physical address.
    pub paddr: u64,
    /// Bytes.
    pub size: u64,
}

/// One page's worth of bytes, for pages that no window holds whole.
pub type PageBuf = [u8; PAGE_SIZE];

/// One thread's way into physical memory.
pub trait View: Send {
    /// The bytes from `paddr` on: at least one, at most `len`, valid until the next call. Fewer than `len` come where
    /// a segment, a window or a decompressed page ends: ask again from there.
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError>;

    /// An address after `paddr`, of which the source has no byte, up to which it has none either.
    fn end_of_hole(&self, paddr: u64) -> u64 {
        paddr + 1
    }

    /// Whether bytes of a window failed since the last call. Mapped bytes may fail only when they are read (a truncated
    /// file, a bad disk, poisoned memory); they then read as zero.
    fn take_fault(&mut self) -> bool {
        false
    }

    /// Fills `buf` from `paddr` on, or fails at the first byte that cannot be had.
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

    /// The little-endian word at `paddr`.
    fn read_u64(&mut self, paddr: u64) -> Result<u64, ReadError> {
        let mut word = [0; 8];
        self.read(paddr, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// The page `pfn`, from a window where one holds it whole, else gathered in `scratch`. Of a page that the source holds
    /// in part, bytes outside every segment read as zero (PFN 0x9f, below the EBDA, is such a page), and so do bytes that
    /// were excluded.
    fn page<'a>(&'a mut self, pfn: u64, scratch: &'a mut PageBuf) -> Result<&'a PageBuf, ReadError> {
        let paddr = pfn << PAGE_SHIFT;
        // Asked twice, because a window that is kept borrowed rules out the other path; the second look-up hits
        // what the first one set up.
        if matches!(self.window(paddr, PAGE_SIZE), Ok(window) if window.len() == PAGE_SIZE) {
            let window = self.window(paddr, PAGE_SIZE)?;
            return window.try_into().map_err(|_| ReadError::Damaged {
                paddr,
                reason: "the source changed while it was read".into(),
            });
        }
        gather(self, paddr, scratch)?;
        Ok(scratch)
    }

    /// Puts the page `pfn` into `page`, as [`page`](Self::page) shows it. What is to be kept elsewhere is best read like
    /// this: nothing in between has to hold it. On error `page` is garbage.
    fn copy_page(&mut self, pfn: u64, page: &mut PageBuf) -> Result<(), ReadError> {
        let paddr = pfn << PAGE_SHIFT;
        match self.read(paddr, page) {
            Err(ReadError::NotPresent { .. } | ReadError::NotInDump { .. }) => gather(self, paddr, page),
            done => done,
        }
    }
}

/// Puts together a page of which the source holds only parts.
fn gather<V: View + ?Sized>(view: &mut V, paddr: u64, page: &mut PageBuf) -> Result<(), ReadError> {
    page.fill(0);
    let mut at = 0;
    let mut found = false;
    let mut lacking = ReadError::NotPresent { paddr };
    while at < PAGE_SIZE {
        // Segments, and what is stored of them, may begin or end at any byte.
        let hole = match view.window(paddr + at as u64, PAGE_SIZE - at) {
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
        at = (view.end_of_hole(hole).saturating_sub(paddr)).min(PAGE_SIZE as u64) as usize;
    }
    if found { Ok(()) } else { Err(lacking) }
}
