//! The file that a dump is shown as.
//!
//! The rules are those of `/proc/vmcore` since it can be mapped (3.11): the ELF headers fill whole pages, the rest zero; all notes
//! are one PT_NOTE on a page boundary; each range of memory starts on a page boundary, rounded outward to whole pages,
//! and its program header tells where in them it is. The kernel image has a program header of its own, which points at the
//! same bytes.

use std::convert::Infallible;
use std::ops::Range;

use pagehaul_elfcore::{ProgramHeader, VmcoreHead};
use pagehaul_machine::PhysAddr;
use pagehaul_physmem::{PAGE_SHIFT, PAGE_SIZE, PageBuf, PageState, PhysMemory, ReadError, View, bits};

const PAGE: u64 = PAGE_SIZE as u64;

/// What a page is read as that the dump was made without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// As an I/O error.
    Error,
    /// As zeros.
    Zeros,
}

/// An ELF64 vmcore that exists in no file: the memory of a source, of a little-endian 64-bit machine.
pub struct CoreFile<'a> {
    memory: &'a dyn PhysMemory,
    absent: Absent,
    /// Headers and notes, up to the first range of memory.
    head: Vec<u8>,
    /// Ranges of memory in ascending order.
    extents: Vec<Extent>,
    size: u64,
}

/// A range of memory and where in the file it is.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Extent {
    pfns: Range<u64>,
    offset: u64,
}

impl Extent {
    fn end(&self) -> u64 {
        self.offset + (self.pfns.end - self.pfns.start) * PAGE
    }
}

impl<'a> CoreFile<'a> {
    /// The memory of `memory`; `direct_map` is the kernel's virtual address of physical address 0, where the source itself
    /// does not say it.
    pub fn new(memory: &'a dyn PhysMemory, direct_map: Option<u64>, absent: Absent) -> Self {
        let direct_map = memory.direct_map().or(direct_map);
        let text = memory.kernel_mapping();
        // Offsets follow from the number of program headers, and are added last.
        let mut loads = Vec::new();
        let mut extents = Vec::new();
        let mut at = 0;
        for range in memory.ranges().extents() {
            let pfns = range.start >> PAGE_SHIFT..range.end.div_ceil(PAGE);
            let size = range.end - range.start;
            let load = ProgramHeader::load(range.start, size, at + range.start % PAGE, size);
            loads.extend(text.and_then(|text| load.mapped_at(&text)));
            let vaddr = direct_map.map_or(0, |start| start.wrapping_add(range.start));
            loads.push(ProgramHeader { vaddr, ..load });
            let extent = Extent { pfns, offset: at };
            at = extent.end();
            extents.push(extent);
        }
        let count = 1 + loads.len() as u64;
        let layout = VmcoreHead { machine: memory.platform().machine, room: count, notes: memory.notes() };
        let data = layout.data_offset();
        let mut head = Vec::with_capacity(data as usize);
        let mut put = |bytes: &[u8]| -> Result<(), Infallible> {
            head.extend_from_slice(bytes);
            Ok(())
        };
        let incomplete = !memory.faults().is_empty();
        let Ok(()) = layout.start(count, incomplete, &mut put);
        for load in loads {
            let Ok(()) = put(&ProgramHeader { offset: data + load.offset, ..load }.encode());
        }
        let Ok(()) = layout.end(count, &mut put);
        extents.iter_mut().for_each(|extent| extent.offset += data);
        Self { memory, absent, head, extents, size: data + at }
    }

    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// A way to read the memory, for one thread.
    pub fn view(&self) -> Box<dyn View + 'a> {
        self.memory.view()
    }

    /// Bytes of the file that are no holes.
    pub fn stored_bytes(&self) -> Result<u64, ReadError> {
        let mut words = [0; 512];
        let mut pages = 0;
        for extent in &self.extents {
            for first in (extent.pfns.start..extent.pfns.end).step_by(words.len() * 64) {
                self.memory.mark_stored(PhysAddr::of_4k_page(first), &mut words)?;
                let here = (extent.pfns.end - first).min(words.len() as u64 * 64) as usize;
                bits::clear_range(&mut words, here, 512 * 64);
                pages += bits::count(&words);
            }
        }
        Ok(self.head.len() as u64 + pages * PAGE)
    }

    /// Fills `buf` from `offset`, which is at most the size, and returns how many bytes there are. Fails with the error of the
    /// first page that cannot be read.
    pub fn read(&self, view: &mut dyn View, offset: u64, buf: &mut [u8]) -> Result<usize, ReadError> {
        let wanted = buf.len().min(self.size.saturating_sub(offset) as usize);
        let mut done = 0;
        if let Some(head) = usize::try_from(offset).ok().and_then(|at| self.head.get(at..)) {
            done = head.len().min(wanted);
            buf[..done].copy_from_slice(&head[..done]);
        }
        let mut scratch = [0; PAGE_SIZE];
        while done < wanted {
            let at = offset + done as u64;
            let Some(extent) = self.extent_at(at) else { break };
            let within = at - extent.offset;
            let pfn = extent.pfns.start + within / PAGE;
            let skip = (within % PAGE) as usize;
            let part = &mut buf[done..wanted.min(done + PAGE_SIZE - skip)];
            let result = match <&mut PageBuf>::try_from(&mut *part).ok() {
                Some(whole) => view.copy_page(PhysAddr::of_4k_page(pfn), whole),
                None => view
                    .page(PhysAddr::of_4k_page(pfn), &mut scratch)
                    .map(|page| part.copy_from_slice(&page[skip..][..part.len()])),
            };
            match result {
                Ok(()) => {}
                Err(error) if self.is_zeros(&error) => part.fill(0),
                Err(error) => return Err(error),
            }
            done += part.len();
        }
        if view.take_fault() {
            return Err(ReadError::Damaged { paddr: 0, reason: "the file failed while it was read".into() });
        }
        Ok(done)
    }

    /// The first offset from `offset` on at which there is data (`wanted`) or a hole: pages that the dump was made without
    /// are holes, and so is what follows the end. None where there is no more data.
    pub fn seek(&self, offset: u64, wanted: bool) -> Result<Option<u64>, ReadError> {
        let mut at = offset;
        if at < self.head.len() as u64 {
            if wanted {
                return Ok(Some(at));
            }
            at = self.head.len() as u64;
        }
        let mut words = [0; 64];
        while let Some(extent) = self.extent_at(at) {
            let first = extent.pfns.start + (at - extent.offset) / PAGE;
            self.memory.mark_stored(PhysAddr::of_4k_page(first), &mut words)?;
            let room = (extent.pfns.end - first).min(words.len() as u64 * 64) as usize;
            match bits::next(&words, 0, wanted).filter(|page| *page < room) {
                Some(0) => return Ok(Some(at)),
                Some(page) => {
                    return Ok(Some(extent.offset + (first - extent.pfns.start + page as u64) * PAGE));
                }
                None => at = extent.offset + (first - extent.pfns.start + room as u64) * PAGE,
            }
        }
        Ok(if wanted { None } else { Some(self.size) })
    }

    fn is_zeros(&self, error: &ReadError) -> bool {
        match error.state() {
            PageState::Excluded => self.absent == Absent::Zeros,
            // Rounded outward, an extent has no page without memory; if it has, it is what the machine reads there: nothing.
            PageState::Absent => true,
            PageState::Present | PageState::Missing | PageState::Damaged => false,
        }
    }

    fn extent_at(&self, offset: u64) -> Option<&Extent> {
        let after = self.extents.partition_point(|extent| extent.offset <= offset);
        self.extents.get(after.checked_sub(1)?).filter(|extent| offset < extent.end())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pagehaul_elfcore::notes::vmcoreinfo;
    use pagehaul_physmem::MapPolicy;
    use pagehaul_synth::Foreign;
    use pagehaul_vmcore::Source;

    use super::*;

    #[test]
    fn the_file_is_of_the_machine_of_its_source() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let little = Foreign::ALL.into_iter().filter(|machine| machine.wide && !machine.big_endian);
        let more = [("riscv64", 243), ("loongarch64", 258)];
        let more = more.map(|(machine, elf_machine)| Foreign { machine, elf_machine, ..Foreign::ALL[6] });
        for machine in little.chain(more) {
            let notes = machine.vmcoreinfo("A=1\n");
            let pages = BTreeMap::from([(1, machine.page(1))]);
            let memory = [(machine.page_size as u64, machine.page(1))];
            for dump in [machine.elf(&memory, &notes), machine.kdump(&[1..2, 4..5], &pages, &notes)] {
                std::fs::write(file.path(), dump).unwrap();
                let source = Source::open(file.path(), MapPolicy::default()).unwrap();
                let core = CoreFile::new(source.memory(), None, Absent::Zeros);
                // What a reader finds in the mounted file.
                let mut bytes = vec![0; core.size() as usize];
                core.read(core.view().as_mut(), 0, &mut bytes).unwrap();
                std::fs::write(file.path(), bytes).unwrap();
                let shown = Source::open(file.path(), MapPolicy::default()).unwrap();
                let arch = shown.memory().platform();
                assert_eq!((arch.machine, arch.wide, arch.big_endian), (machine.elf_machine, true, false));
                assert_eq!(vmcoreinfo(shown.memory().notes()).unwrap().1, b"A=1\n", "{}", machine.machine);
                let mut page = vec![0; machine.page_size];
                shown.memory().view().read(machine.page_size as u64, &mut page).unwrap();
                assert!(page == machine.page(1), "{}", machine.machine);
            }
        }
    }
}
