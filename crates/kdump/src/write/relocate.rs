//! New tables for a dump in one file that ended early, which list exactly the pages it holds.
//!
//! They are written behind the data, and one 4-byte write of `sub_hdr_size` makes them the dump's.

use pagehaul_output::{ChunkWriter, Output, Recorded, WriteError};
use pagehaul_physmem::bits;
use pagehaul_physmem::file::ReadAt;
use zerocopy::FromBytes;

use super::single::SingleFileWriter;
use crate::format::{PageDesc, SUB_BLOCKS_OFFSET};

/// Bytes per write.
const CHUNK: usize = 256 << 10;
/// Words of bitmap per step.
const WORDS: usize = 512;
/// Pages per step: 768 KiB of descriptors.
const STEP: u64 = WORDS as u64 * 64;

impl SingleFileWriter<'_> {
    /// Bytes of new tables for `pages` pages.
    pub(super) fn relocated_table_bytes(&self, pages: u64) -> u64 {
        2 * self.layout.bitmap_len() + pages * PageDesc::SIZE as u64 + self.layout.block()
    }

    /// Writes new tables, on a full disk over the data written last. If even that fails, the old tables stay valid:
    /// a missing page has a descriptor of zeros in them.
    pub(super) fn relocate_tables(&mut self) -> Recorded {
        let base = self.data_end().next_multiple_of(self.layout.block());
        let relocated = match self.write_tables(Some(base)) {
            Err(error) if error.is_full() => self.make_room().and_then(|base| self.write_tables(Some(base))),
            other => other,
        };
        relocated.or_else(|_| self.write_tables(None)).unwrap_or_else(|_| Recorded::pages(0))
    }

    /// Gives up the pages written last, as many as new tables need room for. Returns the offset for the tables.
    fn make_room(&mut self) -> Result<u64, WriteError> {
        let need = self.relocated_table_bytes(self.pages());
        let base = self.data_end().saturating_sub(need) / self.layout.block() * self.layout.block();
        if base <= self.zero_page {
            return Err(std::io::Error::from(std::io::ErrorKind::StorageFull).into());
        }
        self.table.clear_past(base, self.output)?;
        // No descriptor may point to bytes that are overwritten next, even if the machine dies now.
        self.output.sync()?;
        self.output.set_size(base)?;
        Ok(base)
    }

    /// Counts the pages that have a descriptor. With `base`, writes the tables of just these pages there and makes
    /// them the dump's.
    fn write_tables(&mut self, base: Option<u64>) -> Result<Recorded, WriteError> {
        let mut tables = match base {
            Some(base) => Some(Tables::new(self, base)?),
            None => None,
        };
        let read_back = || WriteError::read_back("bitmap 2");
        let mut per_pass = vec![0; self.passes.len()];
        let mut pages = 0;
        let (mut dumped, mut descriptors) = (vec![0; WORDS], Vec::new());
        let mut rank = 0;
        for first in (0..self.layout.max_mapnr()).step_by(STEP as usize) {
            self.bitmap2.load(first, &mut dumped).map_err(read_back())?;
            let count = bits::count(&dumped);
            self.table.read(rank, count, &mut descriptors, self.output)?;
            rank += count;
            let mut present = dumped.clone();
            for (bit, bytes) in bits::ones(&dumped).zip(descriptors.as_chunks::<{ PageDesc::SIZE }>().0) {
                let missing =
                    PageDesc::read_from_bytes(bytes).is_ok_and(|descriptor| descriptor.is_missing());
                if missing {
                    bits::clear_range(&mut present, bit, bit + 1);
                } else if let Some(tables) = &mut tables {
                    tables.descriptors.push(bytes, self.output)?;
                }
            }
            if let Some(tables) = &mut tables {
                tables.bitmap2.push_bits(&present, tables.bitmap2_end, self.output)?;
            }
            pages += bits::count(&present);
            for (pass, count) in self.passes.iter().zip(&mut per_pass) {
                pass.load(first, &mut dumped).map_err(read_back())?;
                *count +=
                    dumped.iter().zip(&present).map(|(a, b)| u64::from((a & b).count_ones())).sum::<u64>();
            }
        }
        if let (Some(tables), Some(base)) = (tables, base) {
            tables.adopt(self, base)?;
        }
        Ok(Recorded { pages, per_pass: Some(per_pass) })
    }
}

struct Tables {
    bitmap2: ChunkWriter,
    bitmap2_end: u64,
    descriptors: ChunkWriter,
}

impl Tables {
    /// Starts new tables at `base` with a copy of bitmap 1.
    fn new(dump: &mut SingleFileWriter<'_>, base: u64) -> Result<Self, WriteError> {
        let length = dump.layout.bitmap_len();
        let mut bitmap1 = ChunkWriter::new(base, CHUNK);
        let mut block = vec![0; dump.layout.page_size().bytes()];
        for at in (0..length).step_by(block.len()) {
            let read = dump.output.read_exact_at(dump.layout.bitmap1_offset() + at, &mut block);
            read.map_err(WriteError::read_back("bitmap 1"))?;
            bitmap1.push(&block, dump.output)?;
        }
        bitmap1.flush(dump.output)?;
        Ok(Self {
            bitmap2: ChunkWriter::new(base + length, CHUNK),
            bitmap2_end: base + 2 * length,
            descriptors: ChunkWriter::new(base + 2 * length, CHUNK),
        })
    }

    /// Finishes the tables at `base`, and points the header to them.
    fn adopt(mut self, dump: &mut SingleFileWriter<'_>, base: u64) -> Result<(), WriteError> {
        let output = &mut *dump.output;
        self.bitmap2.finish(self.bitmap2_end, output)?;
        self.descriptors.flush(output)?;
        let end = self.descriptors.end();
        output.set_size(end)?;
        output.sync()?;
        let blocks = i32::try_from(base / dump.layout.block() - 1)
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::FileTooLarge))?;
        output.write(SUB_BLOCKS_OFFSET, &blocks.to_le_bytes())?;
        output.sync()?;
        dump.relocated_end = Some(end);
        // Where the file system has no holes, the old tables keep their blocks.
        let old = dump.layout.bitmap1_offset();
        let _ = output.free(old, dump.zero_page - old);
        Ok(())
    }
}
