//! Images of physical memory without ELF headers: raw ones and LiME's.

mod layout;
mod lime;
mod limits;

use std::path::Path;

use pagehaul_machine::PhysAddr;
use pagehaul_physmem::{MappedFile, OpenError, PageState, PhysMemory, RangeMap, ReadError, View};

pub use self::layout::{Layout, LayoutError};
pub(crate) use self::lime::MAGIC as LIME_MAGIC;
use crate::file_memory::FileMemory;

/// Faults of headers that are reported in full; others are counted.
const TOLD: usize = 8;

/// An image of physical memory. It says nothing of the machine: neither notes nor registers.
pub struct MemoryImage {
    memory: FileMemory,
    format: ImageFormat,
    faults: Vec<String>,
}

/// How an image says where its bytes belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFormat {
    /// Not at all: a [`Layout`] says it.
    Raw,
    /// By a header before each range, as the kernel module LiME writes them.
    Lime,
}

impl MemoryImage {
    pub(crate) fn open_lime(mapped: MappedFile) -> Result<Self, OpenError> {
        let (pieces, mut faults) = lime::pieces(mapped.file())?;
        if faults.len() > TOLD {
            let more = faults.len() - TOLD;
            faults.truncate(TOLD);
            faults.push(format!("{more} more range headers are invalid"));
        }
        let memory = FileMemory::new(mapped, RangeMap::new(pieces));
        Ok(Self { memory, format: ImageFormat::Lime, faults })
    }

    pub(crate) fn open_raw(mapped: MappedFile, layout: &Layout) -> Result<Self, OpenError> {
        let file = mapped.file();
        let pieces = layout.pieces(file.size());
        let pieces = pieces.map_err(|error| OpenError::Unsupported {
            path: file.path().to_owned(),
            what: error.to_string(),
        })?;
        let memory = FileMemory::new(mapped, RangeMap::new(pieces));
        Ok(Self { memory, format: ImageFormat::Raw, faults: Vec::new() })
    }

    /// Returns how it says where its bytes belong.
    pub fn format(&self) -> ImageFormat {
        self.format
    }

    /// Whether it could not be read where it was.
    pub(crate) fn has_failed(&self) -> bool {
        self.memory.has_failed()
    }

    /// The file.
    pub fn path(&self) -> &Path {
        self.memory.file().path()
    }
}

impl PhysMemory for MemoryImage {
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
        &[]
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = self.faults.clone();
        let missing = self.memory.missing_bytes();
        if missing > 0 {
            faults.push(format!("it is truncated: {missing} bytes of memory are missing at its end"));
        }
        faults
    }

    fn files(&self) -> Vec<(u64, u64)> {
        vec![self.memory.identity()]
    }
}
