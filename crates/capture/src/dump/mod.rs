//! The kinds of files pages are put into.

mod elf;
mod elf_header;
mod elf_segments;
mod kdump;

pub(crate) use elf::{ElfDump, SHORTEST_HOLE};
pub(crate) use elf_segments::Segments;
pub(crate) use kdump::{KdumpDump, codec_flag};

use crate::pack::Batch;
use crate::sink::WriteError;

/// A dump whose pages are being written. Whatever happens, the file says what it is: incomplete, until
/// [`finish`](Self::finish) has put everything on the disk.
pub(crate) trait DumpWriter {
    /// Writes what stands before the pages.
    fn begin(&mut self) -> Result<(), WriteError>;

    /// Adds the next batch, in the order of PFNs.
    fn place(&mut self, batch: &Batch) -> Result<(), WriteError>;

    /// Writes what is left, waits for the disk, and takes the incomplete mark away.
    fn finish(&mut self) -> Result<(), WriteError>;

    /// Makes the best of what could be written: whole pages that are on record, and the mark that it is not all.
    /// Gives the number of pages on record.
    fn abandon(&mut self) -> u64;

    /// Bytes of the file.
    fn size(&self) -> u64;
}
