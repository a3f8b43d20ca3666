//! Checks the offsets of page descriptors: after the table, within the file, below 2^63, and no two with overlapping bytes
//! except those of the shared zero page.

use std::path::Path;

use pagehaul_kdump::format::PageDesc;
use pagehaul_kdump::{KdumpFile, Layout};
use pagehaul_physmem::file::{PlainFile, ReadAt};
use pagehaul_physmem::{PAGE_SIZE, PhysMemory};
use serde::Serialize;

use pagehaul_bench::BenchError;

/// Descriptors read at once.
const BATCH: u64 = 1 << 16;

/// The descriptors of a dump.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Offsets {
    /// Their number.
    pub checked: u64,
    /// The end of the data that they point at, as a file offset.
    pub end: u64,
    /// Bytes of the file.
    pub file: u64,
}

/// Checks the dump at `path`.
pub(crate) fn check(path: &Path) -> Result<Offsets, BenchError> {
    let file = PlainFile::open(path)?;
    let dump = KdumpFile::open(Box::new(PlainFile::open(path)?))?;
    let layout = Layout::new(dump.platform().page_size, dump.info().max_mapnr, dump.notes().len() as u64)
        .map_err(|error| BenchError::Wrong(error.to_string()))?;
    let pages = dump.info().dumped_pages;
    let wrong = |what: String| BenchError::Wrong(format!("{}: {what}", path.display()));
    let (table, data) = (layout.descriptors_offset(), layout.descriptor_offset(pages));
    let mut places = Vec::new();
    let mut bytes = Vec::new();
    for first in (0..pages).step_by(BATCH as usize) {
        bytes.resize((pages - first).min(BATCH) as usize * PageDesc::SIZE, 0);
        let at = table + first * PageDesc::SIZE as u64;
        file.read_exact_at(at, &mut bytes).map_err(|source| BenchError::Io {
            path: path.to_owned(),
            action: "read the descriptors of",
            source,
        })?;
        for descriptor in bytes.as_chunks::<{ PageDesc::SIZE }>().0 {
            let word =
                |at: usize| descriptor[at..].first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
            let (offset, size) = (word(0), word(8) & 0xffff_ffff);
            if offset > i64::MAX as u64 || offset < data || size == 0 || size > PAGE_SIZE as u64 {
                return Err(wrong(format!(
                    "a descriptor says {size} bytes at {offset:#x}; data starts at {data:#x}"
                )));
            }
            // Twelve bits hold the size less one, the rest an offset below 2^51.
            places.push(offset << 12 | (size - 1));
        }
    }
    let checked = places.len() as u64;
    places.sort_unstable();
    places.dedup();
    let mut end = 0;
    for place in places {
        let (offset, size) = (place >> 12, (place & 0xfff) + 1);
        if offset < end {
            return Err(wrong(format!("two pages share bytes at {offset:#x}")));
        }
        end = offset + size;
    }
    if end > file.size() {
        return Err(wrong(format!("pages lie up to {end:#x}, but the file ends at {:#x}", file.size())));
    }
    Ok(Offsets { checked, end, file: file.size() })
}
