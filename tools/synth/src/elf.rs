//! ELF64 vmcores.

use std::io;
use std::path::Path;

use crate::content::PAGE;
use crate::image::Image;
use crate::sparse_file::{self, Target};

const EHDR: u64 = 64;
const PHDR: u64 = 56;
const SHDR: u64 = 64;
/// `e_phnum` when there are more: the count is in `sh_info` of section 0.
const PN_XNUM: usize = 0xffff;

/// One PT_LOAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// `p_vaddr`.
    pub vaddr: u64,
    /// `p_paddr`, without alignment.
    pub paddr: u64,
    /// `p_filesz`, in bytes.
    pub stored: u64,
    /// `p_memsz`, in bytes.
    pub memory: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    ProcVmcore,
    Qemu,
}

/// An ELF vmcore to be written; `segments` and `notes` may be changed before.
#[derive(Clone, Debug)]
pub struct Elf<'a> {
    image: &'a Image,
    layout: Layout,
    /// The PT_LOADs, in file order.
    pub segments: Vec<Segment>,
    /// Contents of PT_NOTE.
    pub notes: Vec<u8>,
}

impl Image {
    /// Returns an ELF vmcore with the layout of `/proc/vmcore`.
    pub fn elf(&self) -> Elf<'_> {
        Elf::proc_vmcore(self)
    }

    /// Returns an ELF vmcore with the layout of QEMU's `dump-guest-memory`.
    pub fn qemu_elf(&self) -> Elf<'_> {
        Elf::qemu(self)
    }
}

impl<'a> Elf<'a> {
    /// The layout of the kernel's `/proc/vmcore`: a header buffer and notes of whole pages, then each segment
    /// rounded outward to whole pages, its offset keeping the offset in the page. The first segment is the
    /// kernel's image and overlaps RAM.
    pub(crate) fn proc_vmcore(image: &'a Image) -> Self {
        let (vaddr, paddr) = image.text();
        let bytes = image.image_bytes;
        let kernel = Segment { vaddr, paddr, stored: bytes, memory: bytes };
        let ram = image.ram().iter().map(|&(start, end)| Segment {
            vaddr: image.page_offset().wrapping_add(start),
            paddr: start,
            stored: end - start,
            memory: end - start,
        });
        let segments = std::iter::once(kernel).chain(ram).collect();
        Self { image, layout: Layout::ProcVmcore, segments, notes: image.notes().to_vec() }
    }

    /// The layout of QEMU's `dump-guest-memory` without paging: the section header before the program
    /// headers, then notes, then memory, nothing aligned; virtual addresses zero.
    pub(crate) fn qemu(image: &'a Image) -> Self {
        let mut elf = Self::proc_vmcore(image);
        elf.layout = Layout::Qemu;
        elf.segments.remove(0);
        for segment in &mut elf.segments {
            segment.vaddr = 0;
        }
        elf
    }

    /// Splits the segments into segments of at most `bytes`: at 4 KiB, 256 MiB of RAM need PN_XNUM.
    pub fn split(&mut self, bytes: u64) -> &mut Self {
        let whole = std::mem::take(&mut self.segments);
        for segment in whole {
            let mut at = 0;
            while at < segment.memory {
                let memory = bytes.min(segment.memory - at);
                self.segments.push(Segment {
                    vaddr: if segment.vaddr == 0 { 0 } else { segment.vaddr + at },
                    paddr: segment.paddr + at,
                    stored: segment.stored.saturating_sub(at).min(memory),
                    memory,
                });
                at += memory;
            }
        }
        self
    }

    /// Adds a segment of `start..end`, which another segment has too.
    pub fn overlap(&mut self, start: u64, end: u64) -> &mut Self {
        let vaddr =
            if self.layout == Layout::Qemu { 0 } else { self.image.page_offset().wrapping_add(start) };
        self.segments.push(Segment { vaddr, paddr: start, stored: end - start, memory: end - start });
        self
    }

    /// Stores only the first `bytes` of segment `index`: `p_filesz` shrinks, `p_memsz` stays.
    pub fn store_only(&mut self, index: usize, bytes: u64) -> &mut Self {
        self.segments[index].stored = bytes;
        self
    }

    /// Returns the offsets of the notes and of the first segment.
    fn offsets(&self) -> (u64, u64) {
        let count = self.segments.len() as u64 + 1;
        match self.layout {
            Layout::ProcVmcore => {
                let shdr = if self.has_section() { SHDR } else { 0 };
                let headers = (EHDR + count * PHDR + shdr).next_multiple_of(PAGE as u64);
                (headers, headers + (self.notes.len() as u64).next_multiple_of(PAGE as u64))
            }
            Layout::Qemu => {
                let shdr = if self.has_section() { SHDR } else { 0 };
                let notes = EHDR + shdr + count * PHDR;
                (notes, notes + self.notes.len() as u64)
            }
        }
    }

    /// QEMU 7.2 and later always write section 0, which its reader expects; others only where the count
    /// overflows.
    fn has_section(&self) -> bool {
        self.layout == Layout::Qemu || self.segments.len() + 1 >= PN_XNUM
    }

    /// Returns `p_offset` of each segment, and the size of the file.
    fn places(&self) -> (Vec<u64>, u64) {
        let (_, mut at) = self.offsets();
        let page = PAGE as u64;
        let places = self
            .segments
            .iter()
            .map(|segment| match self.layout {
                Layout::ProcVmcore => {
                    let start = segment.paddr / page * page;
                    let place = at + (segment.paddr - start);
                    at += (segment.paddr + segment.stored).next_multiple_of(page) - start;
                    place
                }
                Layout::Qemu => {
                    let place = at;
                    at += segment.stored;
                    place
                }
            })
            .collect();
        (places, at)
    }

    fn headers(&self, places: &[u64]) -> Vec<u8> {
        let count = self.segments.len() + 1;
        let (notes, _) = self.offsets();
        let shoff = match (self.has_section(), self.layout) {
            (false, _) => 0,
            (true, Layout::Qemu) => EHDR,
            (true, Layout::ProcVmcore) => EHDR + count as u64 * PHDR,
        };
        let phoff = if self.layout == Layout::Qemu { EHDR + SHDR } else { EHDR };
        let mut out = Vec::new();
        out.extend(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0");
        out.extend(4_u16.to_le_bytes()); // ET_CORE
        // EM_AARCH64, EM_RISCV, EM_X86_64
        let machine = match self.image.setup.machine() {
            "aarch64" => 183_u16,
            "riscv64" => 243,
            _ => 62,
        };
        out.extend(machine.to_le_bytes());
        out.extend(1_u32.to_le_bytes());
        for word in [0, phoff, shoff] {
            out.extend(word.to_le_bytes());
        }
        out.extend(0_u32.to_le_bytes());
        let (shentsize, shnum) = if self.has_section() { (SHDR as u16, 1) } else { (0, 0) };
        for half in [EHDR as u16, PHDR as u16, count.min(PN_XNUM) as u16, shentsize, shnum, 0] {
            out.extend(half.to_le_bytes());
        }
        let mut section = vec![0; SHDR as usize];
        if self.layout == Layout::Qemu || count >= PN_XNUM {
            section[44..48].copy_from_slice(&(count as u32).to_le_bytes()); // sh_info
        }
        if self.layout == Layout::Qemu {
            out.extend(&section);
        }
        let mut phdr = |kind: u32, offset: u64, vaddr: u64, paddr: u64, filesz: u64, memsz: u64| {
            out.extend(kind.to_le_bytes());
            out.extend(0_u32.to_le_bytes());
            for word in [offset, vaddr, paddr, filesz, memsz, 0] {
                out.extend(word.to_le_bytes());
            }
        };
        let bytes = self.notes.len() as u64;
        phdr(4, notes, 0, 0, bytes, bytes);
        for (segment, &place) in self.segments.iter().zip(places) {
            phdr(1, place, segment.vaddr, segment.paddr, segment.stored, segment.memory);
        }
        if self.layout == Layout::ProcVmcore && self.has_section() {
            out.extend(&section);
        }
        out
    }

    fn write_to(&self, target: &mut impl Target) -> io::Result<()> {
        let (places, _) = self.places();
        target.put(0, &self.headers(&places))?;
        target.put(self.offsets().0, &self.notes)?;
        for (segment, place) in self.segments.iter().zip(places) {
            // `/proc/vmcore` has whole pages, so also the bytes around a fractional segment.
            let (start, end) = match self.layout {
                Layout::ProcVmcore => {
                    (segment.paddr & !0xfff, (segment.paddr + segment.stored).next_multiple_of(0x1000))
                }
                Layout::Qemu => (segment.paddr, segment.paddr + segment.stored),
            };
            let base = place - (segment.paddr - start);
            let mut at = start;
            while at < end {
                let next = end.min((at & !0xfff) + 0x1000);
                if !self.image.memory.is_void(at >> 12) {
                    let page = self.image.memory.page(at >> 12);
                    let from = (at & 0xfff) as usize;
                    target.put(base + (at - start), &page[from..from + (next - at) as usize])?;
                }
                at = next;
            }
        }
        Ok(())
    }

    /// Returns the file's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.places().1 as usize];
        self.write_to(&mut bytes).unwrap_or_else(|error| panic!("a vector takes any write: {error}"));
        bytes
    }

    /// Writes the file, with holes where memory was never written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = sparse_file::create(path, self.places().1)?;
        self.write_to(&mut file)
    }
}
