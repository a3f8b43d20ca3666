//! Finds kallsyms' tables in the kernel image, where VMCOREINFO does not export them (before 6.0).
//!
//! Each table has a property that no other data has: the token table has the ten digits as tokens of one character, the index
//! points behind its zeros, the names end at the markers, and the base gives `_stext` its value.

use std::ops::Range;

use memchr::memmem;
use pagehaul_kernel::ReadVirtual;

use crate::encoding::{TOKENS, Tokens, entry};
use crate::error::SymbolError;
use crate::find::readable;
use crate::tables::{Addresses, MAX_SYMBOLS, PER_MARKER, Tables, is_lost};

/// The digits always stand for themselves, one behind the other.
const DIGITS: &[u8] = b"0\x001\x002\x003\x004\x005\x006\x007\x008\x009\0";
/// Bytes of the image that are searched. Kernels with KASAN have 100 MB.
const MAX_IMAGE: u64 = 512 << 20;
/// Bytes read at a time: their memory is reused, which the C library does not do for pieces of 4 MiB.
const PIECE: usize = 512 << 10;
/// Bytes that are announced at a time: of an image on a server, several pieces are fetched together.
const ANNOUNCED: u64 = 4 << 20;
/// Bytes of the tables below and above the token table. Before 6.4 (404bad70fcf7) all are below, and 100,000 symbols take 3 MB.
/// Else offsets are above; 300,000 symbols of the largest kernels have names, and addresses of 8 bytes, in 12 MB.
const AROUND: [(u64, usize); 2] = [(3 << 20, 64 << 10), (12 << 20, 4 << 20)];
/// Unreadable pages in a row at which the image ends.
///
/// The tables may lie behind 20 MB of text that an incomplete dump lacks.
const GAP_PAGES: usize = 16 << 10;

pub(crate) fn search(stext: u64, memory: &dyn ReadVirtual) -> Result<Tables, SymbolError> {
    let finder = memmem::Finder::new(DIGITS);
    let mut start = stext;
    let end = stext.saturating_add(MAX_IMAGE);
    let mut gap = 0;
    while start < end {
        if (start - stext).is_multiple_of(ANNOUNCED) {
            memory.will_need(&[start..start.saturating_add(ANNOUNCED)]);
        }
        // Pieces overlap, so that no table is cut.
        let (piece, lost) = memory.readable_bytes(start, PIECE + (1 << 16));
        for digits in finder.find_iter(&piece) {
            if let Some((table, index)) = token_table(&piece, digits)
                && let Some(tables) = AROUND.into_iter().find_map(|around| {
                    tables(memory, stext, start + table as u64, start + index as u64, around)
                })
            {
                return Ok(tables);
            }
        }
        gap = if lost > PIECE >> 12 { gap + lost } else { 0 };
        if gap >= GAP_PAGES {
            break;
        }
        start += PIECE as u64;
    }
    Err(SymbolError::NotFound)
}

/// Returns where the token table and its index start, if the digits at `digits` belong to one.
fn token_table(piece: &[u8], digits: usize) -> Option<(usize, usize)> {
    let mut end = digits;
    for _ in usize::from(b'0')..TOKENS {
        end += memchr::memchr(0, piece.get(end..end + 256.min(piece.len().checked_sub(end)?))?)? + 1;
    }
    [4, 8].into_iter().find_map(|align: usize| {
        let index = end.next_multiple_of(align);
        let words = piece.get(index..index + 2 * TOKENS)?.as_chunks::<2>().0;
        let offset = |token: usize| words.get(token).map(|word| usize::from(u16::from_le_bytes(*word)));
        let table = digits.checked_sub(offset(usize::from(b'0'))?)?;
        let behind_zero = |at: usize| at == 0 || piece.get(table + at - 1) == Some(&0);
        let mut before = None;
        for token in 0..TOKENS {
            let at = offset(token)?;
            if before.is_some_and(|before| at <= before) || !behind_zero(at) || token == 0 && at != 0 {
                return None;
            }
            before = Some(at);
        }
        Some((table, index))
    })
}

/// The memory around the token table.
struct Region {
    start: u64,
    bytes: Vec<u8>,
    /// The bytes that cannot be read, which are zeros.
    lost: Vec<Range<usize>>,
}

impl Region {
    fn u32(&self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    fn u64(&self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }

    /// Returns the number of symbols that precedes the names, with 4 or 8 bytes.
    fn count(&self, names: usize) -> impl Iterator<Item = (usize, usize)> {
        [8, 4].into_iter().filter_map(move |width| {
            let at = names.checked_sub(width)?;
            let count = self.u32(at)?;
            (count > 0 && count <= MAX_SYMBOLS).then_some((count as usize, at))
        })
    }

    /// Returns where `count` names from `at` end, if all are names.
    fn names_end(&self, mut at: usize, count: usize, limit: usize) -> Option<usize> {
        for _ in 0..count {
            let (tokens, next) = entry(&self.bytes, at)?;
            if tokens.is_empty() || next > limit {
                return None;
            }
            at = next;
        }
        Some(at)
    }
}

fn tables(
    memory: &dyn ReadVirtual,
    stext: u64,
    token_table: u64,
    token_index: u64,
    (below, above): (u64, usize),
) -> Option<Tables> {
    let start = token_table.saturating_sub(below).max(stext & !7);
    let below = (token_table - start) as usize;
    let (bytes, lost) = readable(memory, start, below + above);
    let region = Region { start, bytes, lost };
    let index = (token_index - start) as usize;
    let tokens =
        Tokens::new(region.bytes.get(below..index)?.to_vec(), region.bytes.get(index..index + 2 * TOKENS)?);
    let (names, count, count_at) = names_by_base(&region, stext, below)
        .or_else(|| names_by_markers::<4>(&region, below))
        .or_else(|| names_by_markers::<8>(&region, below))?;
    let end = region.names_end(names, count, below)?;
    let addresses = addresses(&region, stext, count, count_at, index + 2 * TOKENS)?;
    let extent = addresses.extent(region.start + count_at as u64, token_index);
    let names = region.bytes.get(names..end)?.to_vec();
    Some(Tables { count, names, lost: None, tokens: tokens.ok()?, addresses, extent })
}

/// 4.6 to 6.3: the base, the number of symbols and the names follow each other.
fn names_by_base(region: &Region, stext: u64, below: usize) -> Option<(usize, usize, usize)> {
    let base = stext.to_le_bytes();
    memmem::find_iter(region.bytes.get(..below)?, &base).find_map(|at| {
        let names = at + 16;
        let count = region.u32(at + 8).filter(|count| *count > 1000 && *count <= MAX_SYMBOLS)? as usize;
        region.names_end(names, count, below).map(|_| (names, count, at + 8))
    })
}

/// The markers, words of `WIDTH` bytes (8 before 4.20), end at the token table. The last one tells how far below them
/// the last 256 symbols start.
fn names_by_markers<const WIDTH: usize>(region: &Region, below: usize) -> Option<(usize, usize, usize)> {
    let word = |at: usize| match WIDTH {
        8 => region.u64(at),
        _ => region.u32(at).map(u64::from),
    };
    // At most 7 bytes of padding.
    (0..8).step_by(4).find_map(|padding| {
        let last_at = (below & !3).checked_sub(padding + WIDTH)?;
        let last = word(last_at)?;
        let mut at = last_at;
        let mut before = last;
        while before != 0 {
            at = at.checked_sub(WIDTH)?;
            let marker = word(at)?;
            if marker >= before || before - marker > 128 << 10 {
                return None;
            }
            before = marker;
        }
        let markers = (last_at - at) / WIDTH + 1;
        let latest = at.checked_sub(usize::try_from(last).ok()?)?;
        let earliest = latest.saturating_sub(PER_MARKER * 512);
        (earliest..=latest).rev().filter(|names| names.is_multiple_of(4)).find_map(|names| {
            region.count(names).find_map(|(count, count_at)| {
                if count.div_ceil(PER_MARKER) != markers {
                    return None;
                }
                let end = region.names_end(names, count, at)?;
                (at - end < 8).then_some((names, count, count_at))
            })
        })
    })
}

fn addresses(region: &Region, stext: u64, count: usize, count_at: usize, above: usize) -> Option<Addresses> {
    let offsets = |at: usize, base: Option<u64>| {
        let bytes = region.bytes.get(at..at + 4 * count)?.to_vec();
        // Zeros would be addresses of other symbols.
        let within =
            |gap: &Range<usize>| gap.start.max(at) - at..gap.end.min(at + 4 * count).saturating_sub(at);
        let lost = region.lost.iter().map(within).filter(|gap| !gap.is_empty()).collect();
        Some(Addresses::Offsets { bytes, at: region.start + at as u64, base, lost })
    };
    // Before 6.4: below, behind them the base.
    if let Some(base_at) = count_at.checked_sub(8)
        && region.u64(base_at) == Some(stext)
    {
        return offsets(base_at.checked_sub((4 * count).next_multiple_of(8))?, Some(stext));
    }
    // 404bad70fcf7 (6.4): behind the index; 7.0 has no base.
    for at in [above, above.next_multiple_of(8)] {
        let base_at = (at + 4 * count).next_multiple_of(8);
        let base = region.u64(base_at).filter(|base| *base == stext);
        let first = region.u32(at).map(|word| word as i32)?;
        if base.is_some() || (-(1 << 30)..0).contains(&first) {
            return offsets(at, base);
        }
    }
    // Without a base: addresses of 8 bytes, below.
    let at = count_at.checked_sub(8 * count)?;
    let bytes = region.bytes.get(at..count_at).filter(|_| !is_lost(&region.lost, &(at..count_at)))?;
    let known = bytes.as_chunks::<8>().0.iter().any(|word| u64::from_le_bytes(*word) == stext);
    known.then(|| Addresses::Absolute(bytes.to_vec()))
}
