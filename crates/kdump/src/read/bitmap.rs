//! Both bitmaps: read sequentially when a dump is opened, and in pieces afterwards.
//!
//! PFNs here count the dump's own pages, which may be larger than 4 KiB.

use std::io;
use std::ops::Range;

use pagehaul_physmem::bits;
use pagehaul_physmem::file::ReadAt;
use pagehaul_physmem::{OpenError, Piece, RangeMap};
use zerocopy::IntoBytes;

use super::Sections;
use super::parse::format_error;

/// 64-bit words of a bitmap read at once while a dump is opened: 32 KiB, a GiB of memory.
const CHUNK_WORDS: usize = 4096;
/// Chunks of each bitmap that are announced at a time: 1 MiB, 32 GiB of memory.
const ANNOUNCED: u64 = 32;
/// Bytes of the first descriptors, which are announced with the bitmaps: those of 22,000 pages.
const DESCRIPTORS: u64 = 512 << 10;
/// Words between two stored counts: 512 bytes of bitmap, 16 MiB of memory. Counting the rest takes about 30 ns.
pub(super) const GROUP_WORDS: usize = 64;
/// Pages per group.
pub(super) const GROUP_PAGES: u64 = GROUP_WORDS as u64 * 64;
/// Groups per chunk.
const GROUPS: usize = CHUNK_WORDS / GROUP_WORDS;
/// Pages per chunk.
const CHUNK_PAGES: u64 = CHUNK_WORDS as u64 * 64;

/// Separate ranges of memory at most; more are damage. The largest machines have a few thousand, and ELF headers need an
/// extension from 2^16.
const MAX_RANGES: usize = 1 << 18;

/// Counts of bitmap 2, and the ranges of bitmap 1. Takes 264 bytes per GiB that has pages in the dump, 16.5 MiB for 64 TiB,
/// whatever the header says of the machine's size.
#[derive(PartialEq, Eq)]
pub(super) struct BitmapIndex {
    ranges: RangeMap,
    /// Consecutive chunks with bits, ascending.
    runs: Vec<ChunkRun>,
    /// Set bits of bitmap 2 before each of these chunks, and in all.
    chunks: Vec<u64>,
    /// Set bits before each group within its chunk.
    groups: Vec<u32>,
    /// Pages in bitmap 2 but not in bitmap 1: none, unless one is damaged.
    pub(super) contradictions: u64,
}

/// Consecutive chunks of which each has bits.
#[derive(PartialEq, Eq)]
struct ChunkRun {
    /// Number of the first chunk.
    first: u64,
    /// Its index in [`BitmapIndex::chunks`].
    index: usize,
}

impl BitmapIndex {
    /// Reads both bitmaps of a dump of pages of `1 << shift` bytes. A page that is in the dump exists even where bitmap 1
    /// says otherwise.
    pub(super) fn build(
        file: &dyn ReadAt,
        sections: &Sections,
        max_mapnr: u64,
        shift: u32,
    ) -> Result<Self, OpenError> {
        let mut index = Self {
            ranges: RangeMap::default(),
            runs: Vec::new(),
            chunks: vec![0],
            groups: Vec::new(),
            contradictions: 0,
        };
        let mut pieces: Vec<Piece> = Vec::new();
        let (mut exists, mut dumped) = (vec![0; CHUNK_WORDS], vec![0; CHUNK_WORDS]);
        let mut holes = Holes::new(file, sections);
        let (mut number, mut announced) = (0, 0);
        loop {
            number = holes.next_chunk(number);
            let pfn = number.saturating_mul(CHUNK_PAGES);
            if pfn >= max_mapnr {
                break;
            }
            if number >= announced {
                announced = number.saturating_add(ANNOUNCED);
                let end = announced.saturating_mul(CHUNK_PAGES).min(max_mapnr).div_ceil(8);
                let part = |bitmap: u64| bitmap.saturating_add(pfn / 8)..bitmap.saturating_add(end);
                let descriptors = sections.descriptors..sections.descriptors.saturating_add(DESCRIPTORS);
                file.will_need(&[part(sections.bitmap1), part(sections.bitmap2), descriptors]);
            }
            load(file, sections.bitmap2, pfn, max_mapnr, &mut dumped)?;
            load(file, sections.bitmap1, pfn, max_mapnr, &mut exists)?;
            index.add_chunk(number, &dumped);
            for (exists, dumped) in exists.iter_mut().zip(&dumped) {
                index.contradictions += u64::from((dumped & !*exists).count_ones());
                *exists |= dumped;
            }
            for run in bits::runs(&exists) {
                let start = (pfn + run.start as u64) << shift;
                let end = (pfn + run.end as u64) << shift;
                let full = pieces.len() == MAX_RANGES;
                match pieces.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ if full => {
                        return Err(format_error(
                            file,
                            sections.bitmap1,
                            format!(
                                "bitmap 1 has more than {MAX_RANGES} separate ranges of memory: it is damaged"
                            ),
                        ));
                    }
                    _ => pieces.push(Piece { start, end, stored: 0, offset: 0 }),
                }
            }
            number += 1;
        }
        index.ranges = RangeMap::new(pieces);
        Ok(index)
    }

    /// Adds the bits of bitmap 2 in chunk `number`, which follows all chunks added before.
    fn add_chunk(&mut self, number: u64, dumped: &[u64]) {
        let before = self.dumped();
        let within = bits::count(dumped);
        if within == 0 {
            return;
        }
        let index = self.chunks.len() - 1;
        let continues = self.runs.last().is_some_and(|run| run.first + (index - run.index) as u64 == number);
        if !continues {
            self.runs.push(ChunkRun { first: number, index });
        }
        let mut count = 0;
        for words in dumped.chunks(GROUP_WORDS) {
            self.groups.push(count as u32);
            count += bits::count(words);
        }
        self.chunks.push(before + within);
    }

    pub(super) fn ranges(&self) -> &RangeMap {
        &self.ranges
    }

    /// Pages in the dump; of a split dump, in all parts.
    pub(super) fn dumped(&self) -> u64 {
        self.chunks.last().copied().unwrap_or(0)
    }

    /// Dumped pages before group number `group`.
    pub(super) fn before_group(&self, group: u64) -> u64 {
        let chunk = group / GROUPS as u64;
        let at = self.runs.partition_point(|run| run.first <= chunk);
        let end = self.runs.get(at).map_or(self.chunks.len() - 1, |run| run.index);
        let Some(run) = at.checked_sub(1).and_then(|at| self.runs.get(at)) else { return 0 };
        let index = run.index.saturating_add((chunk - run.first) as usize).min(end);
        let before = self.chunks.get(index).copied().unwrap_or(0);
        let within = if index < end { index * GROUPS + (group % GROUPS as u64) as usize } else { usize::MAX };
        before + u64::from(self.groups.get(within).copied().unwrap_or(0))
    }

    /// Returns the first group with dumped pages, at `group` or later.
    pub(super) fn next_group(&self, group: u64) -> Option<u64> {
        let before = self.before_group(group);
        // The chunk that has the next page, then its group.
        let index = self.chunks.partition_point(|count| *count <= before).checked_sub(1)?;
        let next = self.chunks.get(index + 1)?;
        let run = self.runs.partition_point(|run| run.index <= index).checked_sub(1)?;
        let run = self.runs.get(run)?;
        let chunk = run.first + (index - run.index) as u64;
        let first = (chunk * GROUPS as u64).max(group);
        (first..(chunk + 1) * GROUPS as u64).find(|group| {
            let end = if (group + 1) % GROUPS as u64 == 0 { *next } else { self.before_group(group + 1) };
            end > self.before_group(*group)
        })
    }

    /// Dumped pages before `pfn`.
    pub(super) fn rank(&self, file: &dyn ReadAt, sections: &Sections, pfn: u64) -> Result<u64, OpenError> {
        let group = pfn / GROUP_PAGES;
        let mut words = [0; GROUP_WORDS];
        // Bits from `pfn` are ignored, as if memory ended there.
        load(file, sections.bitmap2, group * GROUP_PAGES, pfn, &mut words)?;
        Ok(self.before_group(group) + bits::count(&words))
    }
}

/// Where the bitmaps have data: a sparse file may claim any number of page frames in a few KiB.
struct Holes<'a> {
    file: &'a dyn ReadAt,
    /// Of each bitmap: its offset, and the data found last, by chunk number.
    data: [(u64, Range<u64>); 2],
}

impl<'a> Holes<'a> {
    fn new(file: &'a dyn ReadAt, sections: &Sections) -> Self {
        Self { file, data: [(sections.bitmap1, 0..0), (sections.bitmap2, 0..0)] }
    }

    /// The first chunk at or behind `chunk` in which a bitmap has data.
    fn next_chunk(&mut self, chunk: u64) -> u64 {
        const BYTES: u64 = CHUNK_PAGES / 8;
        let mut first = u64::MAX;
        for (bitmap, data) in &mut self.data {
            if data.end <= chunk {
                let found = self.file.next_data(bitmap.saturating_add(chunk.saturating_mul(BYTES)));
                *data = match found.is_empty() {
                    true => u64::MAX..u64::MAX,
                    false => {
                        (found.start - *bitmap) / BYTES..(found.end - *bitmap).div_ceil(BYTES).max(chunk + 1)
                    }
                };
            }
            first = first.min(data.start.max(chunk));
        }
        first
    }
}

fn load(
    file: &dyn ReadAt,
    bitmap: u64,
    first_pfn: u64,
    end_pfn: u64,
    words: &mut [u64],
) -> Result<(), OpenError> {
    load_bits(file, bitmap, first_pfn, end_pfn, words).map_err(|error| {
        format_error(file, bitmap + first_pfn / 8, format!("cannot read a bitmap of the dump: {error}"))
    })
}

/// Bits `first_pfn` on of the bitmap at file offset `bitmap`. Those from `end_pfn` on come as clear, and are not read.
pub(super) fn load_bits(
    file: &dyn ReadAt,
    bitmap: u64,
    first_pfn: u64,
    end_pfn: u64,
    words: &mut [u64],
) -> io::Result<()> {
    let wanted = words.len() as u64 * 64;
    let count = end_pfn.saturating_sub(first_pfn).min(wanted) as usize;
    let shift = (first_pfn % 8) as usize;
    let bytes = (shift + count).div_ceil(8);
    words.fill(0);
    if count == 0 {
        return Ok(());
    }
    let here = bytes.min(words.len() * 8);
    let offset = bitmap + first_pfn / 8;
    file.read_exact_at(offset, &mut words.as_mut_bytes()[..here])?;
    words.iter_mut().for_each(|word| *word = u64::from_le(*word));
    if shift != 0 {
        // The last bits of a full buffer are in one byte more.
        let mut extra = [0];
        if bytes > here {
            file.read_exact_at(offset + here as u64, &mut extra)?;
        }
        let mut carry = u64::from(extra[0]);
        for word in words.iter_mut().rev() {
            let low = *word;
            *word = low >> shift | carry << (64 - shift);
            carry = low;
        }
    }
    bits::clear_range(words, count, words.len() * 64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use pagehaul_physmem::file::PlainFile;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Counts and searches agree with a walk over all bits, wherever the file has holes.
        #[test]
        fn counts_are_those_of_the_bits(
            set in proptest::collection::btree_set((0..6u64, 0..3u64, 0..300u64), 0..60),
        ) {
            const MAX: u64 = 6 * 40 * CHUNK_PAGES;
            let pfns: std::collections::BTreeSet<u64> = set
                .into_iter()
                .map(|(far, group, pfn)| far * 40 * CHUNK_PAGES + group * 37 * GROUP_PAGES + pfn)
                .collect();
            let file = tempfile::NamedTempFile::new().unwrap();
            let (bitmap1, bitmap2) = (4096, 4096 + MAX / 8);
            let mut bytes = std::collections::BTreeMap::<u64, u8>::new();
            for pfn in &pfns {
                *bytes.entry(pfn / 8).or_default() |= 1 << (pfn % 8);
            }
            file.as_file().set_len(bitmap2 + MAX / 8).unwrap();
            for (at, byte) in &bytes {
                for bitmap in [bitmap1, bitmap2] {
                    std::os::unix::fs::FileExt::write_all_at(file.as_file(), &[*byte], bitmap + at).unwrap();
                }
            }
            let file = PlainFile::open(file.path()).unwrap();
            let sections = Sections {
                headers_end: 0, bitmap1, bitmap2, descriptors: 0, foreign: 0, count: 0, eraseinfo: None,
            };
            let index = BitmapIndex::build(&file, &sections, MAX, 12).unwrap();
            prop_assert_eq!(index.dumped(), pfns.len() as u64);
            prop_assert_eq!(index.ranges().bytes(), (pfns.len() as u64) << 12);
            for group in (0..MAX / GROUP_PAGES).filter(|group| group % 64 < 3 || group % 37 == 0) {
                let first = group * GROUP_PAGES;
                prop_assert_eq!(index.before_group(group), pfns.range(..first).count() as u64, "group {}", group);
                let next = pfns.range(first..).next().map(|pfn| pfn / GROUP_PAGES);
                prop_assert_eq!(index.next_group(group), next, "group {}", group);
            }
        }
    }
}
