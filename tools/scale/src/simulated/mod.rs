//! Machines of any size that take no memory: struct pages and contents are computed from the PFN on each read.
//!
//! A machine is laid out as by a 7.1 kernel: SPARSEMEM_EXTREME with a vmemmap of 2 MiB pages behind 5-level
//! page tables, the struct pages of a section at the section's start, tails that name their head by a mask
//! (which makes struct pages the same wherever they are). Sections follow one of a few precomputed patterns
//! of use, pages one of some thousand precomputed contents. Both are in a mapped file, so they do not
//! count as anonymous memory of the process.

mod info;
mod layout;
mod memmap;
mod tables;

use std::io::Write;
use std::path::Path;

use fastrand::Rng;
use pagehaul_bench::{BenchError, pages};
use pagehaul_machine::{PageSize, PhysAddr};
use pagehaul_physmem::file::{PlainFile, ReadAt};
use pagehaul_physmem::{PAGE_SIZE, PhysMemory, Piece, RangeMap, ReadError, View, WholeFile, bits};
use pagehaul_synth::mix;

use memmap::SECTION_MEMMAP;

/// Bytes of memory in a section.
pub(crate) const SECTION: u64 = 128 << 20;
/// The hole below 4 GiB.
const HOLE: std::ops::Range<u64> = 3 << 30..4 << 30;
/// Number of patterns: 62 MiB of struct pages, more than an L3 cache holds.
const PATTERNS: u64 = 31;
/// Pages of contents: 64 MiB.
const CONTENTS: u64 = 16384;
/// Pages with adjacent contents, which are read at once.
const RUN: u64 = 64;
/// Pages that are sampled or skipped together: a page block of the kernel.
const SAMPLE_BLOCK: u64 = 512;
/// Share of pages of zeros, in percent, and the dirtiness of the others.
const ZEROS: u64 = 12;
const DIRTINESS: [u8; 8] = [0, 5, 10, 15, 20, 30, 50, 90];

/// A simulated machine.
pub struct Simulated {
    ranges: RangeMap,
    notes: Vec<u8>,
    /// Struct pages of every pattern, then contents.
    file: WholeFile,
    /// One of this many page blocks has contents.
    sample: u64,
}

impl Simulated {
    /// A machine with `bytes` of memory (whole sections, at least 1 GiB), of which one page block in `sample`
    /// has contents; the others are excluded. Its precomputed bytes (126 MiB)
    /// go to an unnamed file in `directory`.
    pub fn new(bytes: u64, sample: u64, directory: &Path) -> Result<Self, BenchError> {
        if bytes < 1 << 30 || !bytes.is_multiple_of(SECTION) || bytes > 1 << 50 {
            return Err(BenchError::Wrong(format!(
                "a simulated machine has from 1 GiB to 1 PiB of memory, in whole sections of 128 MiB; not {bytes} bytes"
            )));
        }
        let low = bytes.min(HOLE.start);
        let piece = |start, end| Piece { start, end, stored: end - start, offset: start };
        let high = (bytes > low).then(|| piece(HOLE.end, HOLE.end + bytes - low));
        let ranges = RangeMap::new([piece(0x1000, 0xa0000), piece(1 << 20, low)].into_iter().chain(high));
        let failed =
            |source| BenchError::Io { path: directory.to_owned(), action: "map a temporary file in", source };
        let file = WholeFile::new(precompute(directory)?).map_err(failed)?;
        Ok(Self { ranges, notes: info::machine().notes(), file, sample: sample.max(1) })
    }

    /// One more than the number of the last section.
    pub(crate) fn sections(&self) -> u64 {
        self.ranges.end().div_ceil(SECTION)
    }

    /// Whether section `number` holds memory.
    pub(crate) fn has_section(&self, number: u64) -> bool {
        number < self.sections() && !(HOLE.start / SECTION..HOLE.end / SECTION).contains(&number)
    }
}

/// Writes the bytes that all machines share.
fn precompute(directory: &Path) -> Result<PlainFile, BenchError> {
    let failed =
        |source| BenchError::Io { path: directory.to_owned(), action: "write a temporary file to", source };
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
    for pattern in 0..PATTERNS {
        file.write_all(&memmap::pattern(pattern)).map_err(failed)?;
    }
    let mut noise = Rng::with_seed(64);
    for _ in 0..CONTENTS {
        let page = if noise.u64(..100) < ZEROS {
            [0; PAGE_SIZE]
        } else {
            pages::page(DIRTINESS[noise.usize(..DIRTINESS.len())], &mut noise)
        };
        file.write_all(&page).map_err(failed)?;
    }
    // The name is gone with the temporary file; the open file stays.
    Ok(PlainFile::open(file.path())?)
}

impl PhysMemory for Simulated {
    fn ranges(&self) -> &RangeMap {
        &self.ranges
    }

    fn mark_stored(&self, from: PhysAddr, words: &mut [u64]) -> Result<(), ReadError> {
        let first = from.pfn(PageSize::KIB_4);
        let first_pfn = first.number();
        self.ranges.mark_pages(first, PageSize::KIB_4, true, words);
        if self.sample > 1 {
            let count = words.len() as u64 * 64;
            let blocks = first_pfn / SAMPLE_BLOCK..(first_pfn + count).div_ceil(SAMPLE_BLOCK);
            for block in blocks.filter(|block| !mix(*block).is_multiple_of(self.sample)) {
                let pfn =
                    |pfn: u64| pfn.clamp(first_pfn, first_pfn + count).saturating_sub(first_pfn) as usize;
                bits::clear_range(words, pfn(block * SAMPLE_BLOCK), pfn((block + 1) * SAMPLE_BLOCK));
            }
        }
        Ok(())
    }

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(SimulatedView { machine: self, page: [0; PAGE_SIZE], faults: self.file.faults() })
    }

    fn notes(&self) -> &[u8] {
        &self.notes
    }

    fn files(&self) -> Vec<(u64, u64)> {
        vec![self.file.file().identity()]
    }
}

struct SimulatedView<'a> {
    machine: &'a Simulated,
    /// A page of the kernel's tables, computed on demand.
    page: [u8; PAGE_SIZE],
    /// Faults before the view was made.
    faults: u64,
}

impl View for SimulatedView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        let machine = self.machine;
        let piece = machine.ranges.find(paddr).ok_or(ReadError::NotPresent { paddr })?;
        let len = len.min((piece.end - paddr) as usize);
        if tables::fill(machine, paddr / PAGE_SIZE as u64, &mut self.page) {
            let from = (paddr % PAGE_SIZE as u64) as usize;
            return Ok(&self.page[from..PAGE_SIZE.min(from.saturating_add(len))]);
        }
        let (offset, most) = match memmap::place(paddr) {
            Some((section, at)) => (memmap::pattern_of(section) * SECTION_MEMMAP + at, SECTION_MEMMAP - at),
            None => {
                let run = RUN * PAGE_SIZE as u64;
                let contents = mix(paddr / run) % (CONTENTS / RUN) * run;
                (PATTERNS * SECTION_MEMMAP + contents + paddr % run, run - paddr % run)
            }
        };
        let bytes = machine.file.bytes().get(offset as usize..);
        let bytes = bytes.and_then(|bytes| bytes.get(..(most as usize).min(len)));
        bytes.ok_or(ReadError::NotPresent { paddr })
    }

    fn end_of_hole(&self, paddr: u64) -> u64 {
        self.machine.ranges.next_start(paddr)
    }

    fn take_fault(&mut self) -> bool {
        self.machine.file.faults() != self.faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagehaul_kernel::{Kernel, PageClass, PageScanner};

    fn classes(bytes: u64, blocks: impl Iterator<Item = u64>) -> [u64; PageClass::COUNT] {
        let directory = tempfile::tempdir().unwrap();
        let machine = Simulated::new(bytes, 1, directory.path()).unwrap();
        let kernel = Kernel::discover(&machine).unwrap();
        assert_eq!(kernel.undecidable(), []);
        let mut scanner = PageScanner::new(&kernel, machine.view());
        let mut classes = vec![PageClass::Absent; kernel.pages_per_block()];
        let mut total = [0; PageClass::COUNT];
        for block in blocks {
            let report = scanner.scan(block, &mut classes).unwrap();
            assert_eq!(report.inconsistency, None, "section {block}");
            for (total, pages) in total.iter_mut().zip(report.pages) {
                *total += pages;
            }
        }
        total
    }

    /// Approximate share of pages per class, from which the patterns are drawn.
    fn mix_of_pages() -> Vec<(PageClass, f64)> {
        let share = |blocks: f64| blocks / 64.0;
        vec![
            (PageClass::Anon, share(16.0 + 12.0 * 0.8)),
            (PageClass::Cache, share(12.0 * 0.1 + 16.0 * 0.85)),
            (PageClass::CachePrivate, share(16.0 * 0.1)),
            (PageClass::Free, share(12.0 * 0.1 + 16.0 * 0.05 + 12.0)),
            (PageClass::Slab, share(7.0 * 0.6)),
            (PageClass::PageTable, share(7.0 * 0.15)),
            (PageClass::Kernel, share(1.0 + 7.0 * 0.25)),
        ]
    }

    #[test]
    fn the_engine_finds_the_mix_that_was_laid_down() {
        let found = classes(8 << 30, 32..64);
        let pages: u64 = found.iter().sum();
        for (class, share) in mix_of_pages() {
            let got = found[class as usize] as f64 / pages as f64;
            assert!((got - share).abs() < 0.02, "{}: {got:.3} instead of {share:.3}", class.name());
        }
        assert_eq!(found[PageClass::Undecided as usize] + found[PageClass::Absent as usize], 0);
    }

    #[test]
    fn the_last_section_of_64_tib_is_there_and_the_next_is_not() {
        let last = (64u64 << 40) / SECTION + 7;
        assert_eq!(classes(64 << 40, last..=last)[PageClass::Absent as usize], 0);
        assert_eq!(classes(64 << 40, last + 1..last + 2)[PageClass::Absent as usize], 32768);
        assert_eq!(classes(64 << 40, 24..25)[PageClass::Absent as usize], 32768, "the hole below 4 GiB");
    }

    #[test]
    fn a_sample_holds_its_share_of_the_pages() {
        let directory = tempfile::tempdir().unwrap();
        let machine = Simulated::new(64 << 30, 16, directory.path()).unwrap();
        let mut words = vec![0; 512];
        let mut pages = 0;
        for section in 32..520 {
            machine.mark_stored(PhysAddr::of_4k_page(section * 32768), &mut words).unwrap();
            pages += bits::count(&words);
        }
        let share = pages as f64 / (488.0 * 32768.0);
        assert!((0.055..0.07).contains(&share), "{share}");
    }
}
