//! The pages of a vmcore that a scan reads, copied to memory: a capture kernel has them mapped.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use pagehaul_kernel::{Kernel, PageClass, PageScanner};
use pagehaul_machine::PhysAddr;
use pagehaul_physmem::{PhysMemory, RangeMap, ReadError, View};
use pagehaul_vmcore::ElfVmcore;

const CHUNK: u64 = 2 << 20;

/// The chunks of a vmcore that a scan reads.
pub(crate) struct Resident {
    vmcore: ElfVmcore,
    chunks: BTreeMap<u64, Vec<u8>>,
}

/// Takes note of what is read.
struct Recorder<'a> {
    vmcore: &'a ElfVmcore,
    chunks: Mutex<BTreeMap<u64, Vec<u8>>>,
}

impl Resident {
    pub(crate) fn of(vmcore: ElfVmcore) -> Result<Self, Box<dyn std::error::Error>> {
        let recorder = Recorder { vmcore: &vmcore, chunks: Mutex::default() };
        let kernel = Kernel::discover(&recorder)?;
        let mut scanner = PageScanner::new(&kernel, recorder.view());
        let mut classes = vec![PageClass::Absent; kernel.pages_per_block()];
        for block in 0..kernel.blocks(vmcore.ranges().end_pfn(kernel.page_size())) {
            scanner.scan(block, &mut classes)?;
        }
        drop(scanner);
        let chunks = recorder.chunks.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Self { vmcore, chunks })
    }

    /// Their bytes: struct pages but for the odd page table.
    pub(crate) fn chunks(&self) -> Vec<&[u8]> {
        self.chunks.values().map(Vec::as_slice).collect()
    }
}

macro_rules! as_the_vmcore {
    () => {
        fn ranges(&self) -> &RangeMap {
            self.vmcore.ranges()
        }

        fn mark_stored(&self, from: PhysAddr, bits: &mut [u64]) -> Result<(), ReadError> {
            self.vmcore.mark_stored(from, bits)
        }

        fn notes(&self) -> &[u8] {
            self.vmcore.notes()
        }

        fn files(&self) -> Vec<(u64, u64)> {
            self.vmcore.files()
        }

        fn kernel_mapping(&self) -> Option<pagehaul_machine::KernelMapping> {
            self.vmcore.kernel_mapping()
        }
    };
}

impl PhysMemory for Resident {
    as_the_vmcore!();

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(ResidentView(self))
    }
}

impl PhysMemory for Recorder<'_> {
    as_the_vmcore!();

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(RecorderView { recorder: self, view: self.vmcore.view() })
    }
}

struct ResidentView<'a>(&'a Resident);

impl View for ResidentView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        let chunk = self.0.chunks.get(&(paddr / CHUNK)).ok_or(ReadError::NotPresent { paddr })?;
        let from = (paddr % CHUNK) as usize;
        Ok(&chunk[from..chunk.len().min(from + len)])
    }
}

struct RecorderView<'a> {
    recorder: &'a Recorder<'a>,
    view: Box<dyn View + 'a>,
}

impl View for RecorderView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        let number = paddr / CHUNK;
        let mut chunks = self.recorder.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        if let std::collections::btree_map::Entry::Vacant(place) = chunks.entry(number) {
            let mut chunk = vec![0; CHUNK as usize];
            let mut at = number * CHUNK;
            let end = at + CHUNK;
            while at < end {
                match self.view.window(at, (end - at) as usize) {
                    Ok(bytes) => {
                        let from = (at % CHUNK) as usize;
                        chunk[from..from + bytes.len()].copy_from_slice(bytes);
                        at += bytes.len() as u64;
                    }
                    Err(ReadError::NotPresent { .. }) => at = self.view.end_of_hole(at).min(end),
                    Err(error) => return Err(error),
                }
            }
            place.insert(chunk);
        }
        drop(chunks);
        self.view.window(paddr, len)
    }
}
