//! Tables that say exactly what a dump holds that ended early.
//!
//! Bitmap 2 gives each descriptor its place, so neither can be corrected where it is: for a moment they would contradict
//! each other, and a machine that dies in that moment leaves a dump whose pages are taken for others. New tables are
//! written behind the data instead, and become the dump's when the header's `sub_hdr_size` says so: one write of four
//! bytes.

use pagehaul_kdump::format::BLOCK_SIZE;
use pagehaul_kdump::{PageDesc, SUB_BLOCKS_OFFSET};
use pagehaul_physmem::bits;
use pagehaul_physmem::file::ReadAt;
use pagehaul_run::Progress;
use zerocopy::FromBytes;

use super::Recorded;
use super::kdump::KdumpDump;
use crate::sink::{Sink, WriteError};
use crate::stream::Stream;
use crate::worth::Worth;

/// Bytes per write.
const CHUNK: usize = 256 << 10;
/// Words of bitmap looked at together.
const WORDS: usize = 512;
/// Pages that these stand for: 768 KiB of descriptors.
const BLOCK: u64 = WORDS as u64 * 64;

/// Bytes of new tables for `pages` pages.
pub(super) fn bytes(dump: &KdumpDump<'_>, pages: u64) -> u64 {
    2 * dump.layout.bitmap_len() + pages * PageDesc::SIZE as u64 + BLOCK_SIZE as u64
}

/// Writes new tables, on a full disk over the data written last. Where even that fails, the old tables stand: they too
/// say of every page that it is there or not, only by descriptors that are zero.
pub(super) fn relocate(dump: &mut KdumpDump<'_>) -> Recorded {
    let base = dump.data_end().next_multiple_of(BLOCK_SIZE as u64);
    let tried = match write_tables(dump, Some(base)) {
        Err(error) if error.is_full() => make_room(dump).and_then(|base| write_tables(dump, Some(base))),
        other => other,
    };
    match tried.or_else(|_| write_tables(dump, None)) {
        Ok(recorded) => recorded,
        Err(_) => Recorded::pages(0),
    }
}

/// Gives up the pages written last for as much room as new tables need.
fn make_room(dump: &mut KdumpDump<'_>) -> Result<u64, WriteError> {
    let need = bytes(dump, dump.placed());
    let cut = dump.data_end().saturating_sub(need) / BLOCK_SIZE as u64 * BLOCK_SIZE as u64;
    if cut <= dump.zero_page {
        return Err(std::io::Error::from(std::io::ErrorKind::StorageFull).into());
    }
    dump.table.forget_past(cut, dump.sink)?;
    // No descriptor may point at what is overwritten next, whenever the machine dies.
    dump.sink.sync()?;
    dump.sink.set_size(cut)?;
    Ok(cut)
}

/// Counts the pages that have a descriptor; where `base` is given, writes the tables of just these there and makes
/// them the dump's.
fn write_tables(dump: &mut KdumpDump<'_>, base: Option<u64>) -> Result<Recorded, WriteError> {
    // Not to be counted as page data.
    let progress = Progress::default();
    let length = dump.layout.bitmap_len();
    let mut tables = match base {
        Some(base) => Some(Tables::new(dump, base, &progress)?),
        None => None,
    };
    let mut recorded = Recorded { pages: 0, by_worth: Some([0; Worth::COUNT]) };
    let (mut kept, mut descriptors) = (vec![0; WORDS], Vec::new());
    let mut rank = 0;
    for first in (0..dump.layout.max_mapnr()).step_by(BLOCK as usize) {
        dump.kept.load(first, &mut kept)?;
        let count = bits::count(&kept);
        dump.table.read(rank, count, &mut descriptors, dump.sink)?;
        rank += count;
        let mut there = kept.clone();
        for (bit, bytes) in bits::ones(&kept).zip(descriptors.as_chunks::<{ PageDesc::SIZE }>().0) {
            let missing = PageDesc::read_from_bytes(bytes).is_ok_and(|descriptor| descriptor.is_missing());
            if missing {
                bits::clear_range(&mut there, bit, bit + 1);
            } else if let Some(tables) = &mut tables {
                tables.descriptors.push(bytes, dump.sink, &progress)?;
            }
        }
        if let Some(tables) = &mut tables {
            tables.bitmap.push_bits(&there, tables.bitmap_end, dump.sink, &progress)?;
        }
        recorded.pages += bits::count(&there);
        for pass in &dump.passes {
            pass.bitmap.load(first, &mut kept)?;
            let both = kept.iter().zip(&there).map(|(a, b)| u64::from((a & b).count_ones())).sum::<u64>();
            match (&mut recorded.by_worth, pass.worth) {
                (Some(counts), Some(worth)) => counts[worth as usize] += both,
                _ => recorded.by_worth = None,
            }
        }
    }
    if let (Some(tables), Some(base)) = (tables, base) {
        tables.adopt(dump, base, length, &progress)?;
    }
    Ok(recorded)
}

struct Tables {
    bitmap: Stream,
    bitmap_end: u64,
    descriptors: Stream,
}

impl Tables {
    /// Starts new tables at `base`, bitmap 1 first, which stays what it is.
    fn new(dump: &mut KdumpDump<'_>, base: u64, progress: &Progress) -> Result<Self, WriteError> {
        let length = dump.layout.bitmap_len();
        let mut exists = Stream::new(base, CHUNK);
        let mut chunk = vec![0; BLOCK_SIZE];
        for at in (0..length).step_by(BLOCK_SIZE) {
            dump.sink.read_exact_at(dump.layout.bitmap1_offset() + at, &mut chunk)?;
            exists.push(&chunk, dump.sink, progress)?;
        }
        exists.flush(dump.sink, progress)?;
        Ok(Self {
            bitmap: Stream::new(base + length, CHUNK),
            bitmap_end: base + 2 * length,
            descriptors: Stream::new(base + 2 * length, CHUNK),
        })
    }

    /// Finishes the tables at `base`, and has the header point there.
    fn adopt(
        mut self,
        dump: &mut KdumpDump<'_>,
        base: u64,
        length: u64,
        progress: &Progress,
    ) -> Result<(), WriteError> {
        let sink = &mut *dump.sink;
        self.bitmap.push_zeros(self.bitmap_end - self.bitmap.end(), sink, progress)?;
        self.bitmap.flush(sink, progress)?;
        self.descriptors.flush(sink, progress)?;
        let end = self.descriptors.end().max(base + 2 * length);
        sink.set_size(end)?;
        sink.sync()?;
        let blocks = i32::try_from(base / BLOCK_SIZE as u64 - 1)
            .map_err(|_| std::io::Error::from(std::io::ErrorKind::FileTooLarge))?;
        sink.write(SUB_BLOCKS_OFFSET, &blocks.to_le_bytes())?;
        sink.sync()?;
        dump.end = Some(end);
        // Where the file system has no holes, the old tables take their room for nothing.
        let old = dump.layout.bitmap1_offset();
        let _ = sink.free(old, dump.zero_page - old);
        Ok(())
    }
}
