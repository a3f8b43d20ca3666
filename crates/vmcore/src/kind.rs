//! What a source can be.

use pagehaul_kdump::{KdumpFile, SplitSet};
use pagehaul_physmem::PhysMemory;

use crate::elf::ElfVmcore;
use crate::image::MemoryImage;

/// The kind of a source.
pub enum SourceKind {
    /// An ELF vmcore.
    Elf(ElfVmcore),
    /// A kdump-compressed file.
    Kdump(KdumpFile),
    /// A kdump-compressed file in flattened form.
    Flattened(KdumpFile),
    /// The parts of a split dump.
    Split(SplitSet),
    /// An image of memory without notes: raw, or by LiME.
    Image(MemoryImage),
    /// Memory that is in no file: a simulated machine.
    Simulated(Box<dyn PhysMemory>),
}
