//! Both bitmaps: read sequentially when a dump is opened, and in pieces afterwards.
//!
//! PFNs here count the dump's own pages, which may be larger than 4 KiB.

use std::io;

use pagehaul_physmem::bits;
use pagehaul_physmem::file::ReadAt;
use pagehaul_physmem::{OpenError, Piece, RangeMap};
use zerocopy::IntoBytes;

use super::Sections;
use super::parse::format_error;

/// 64-bit words of a bitmap read at once while a dump is opened: 32 KiB, a GiB of memory.
const CHUNK_WORDS: usize = 4096;
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

/// Counts of the bitmaps: 264 bytes per GiB of memory, 16.5 MiB for 64 TiB.
#[derive(PartialEq, Eq)]
pub(super) struct BitmapIndex {
    ranges: RangeMap,
    /// Set bits of bitmap 2 before each chunk, and in all.
    chunks: Vec<u64>,
    /// Set bits before each group within its chunk.
    groups: Vec<u32>,
    /// Pages in bitmap 2 but not in bitmap 1: none, unless one is damaged.
    pub(super) contradictions: u64,
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
        let mut chunks = vec![0];
        let mut groups = Vec::new();
        let mut pieces: Vec<Piece> = Vec::new();
        let (mut exists, mut dumped) = (vec![0; CHUNK_WORDS], vec![0; CHUNK_WORDS]);
        let mut total = 0;
        let mut contradictions = 0;
        let mut pfn = 0;
        while pfn < max_mapnr {
            load(file, sections.bitmap2, pfn, max_mapnr, &mut dumped)?;
            load(file, sections.bitmap1, pfn, max_mapnr, &mut exists)?;
            let mut within = 0;
            for group in 0..GROUPS {
                groups.push(within as u32);
                let words = group * GROUP_WORDS..(group + 1) * GROUP_WORDS;
                for (exists, dumped) in exists[words.clone()].iter_mut().zip(&dumped[words]) {
                    within += u64::from(dumped.count_ones());
                    contradictions += u64::from((dumped & !*exists).count_ones());
                    *exists |= dumped;
                }
            }
            total += within;
            chunks.push(total);
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
            pfn += CHUNK_PAGES;
        }
        Ok(Self { ranges: RangeMap::new(pieces), chunks, groups, contradictions })
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
        let at = usize::try_from(group).unwrap_or(usize::MAX);
        match (self.groups.get(at), self.chunks.get(at / GROUPS)) {
            (Some(within), Some(before)) => before + u64::from(*within),
            _ => self.dumped(),
        }
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
