//! The tables of kallsyms, as they are in a kernel's memory.

use std::ops::Range;

use crate::encoding::{TOKENS, Tokens};

/// Symbols of a kernel. The largest distribution kernels have 300,000.
pub(crate) const MAX_SYMBOLS: u32 = 4 << 20;

/// How the addresses of symbols are stored. Decided by the value of `_stext`, not by the release: distributions
/// backport changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Addresses of 8 bytes (until 4.5, and without CONFIG_KALLSYMS_BASE_RELATIVE until 64e166099b69, 6.11).
    Absolute,
    /// 4 bytes: per-CPU offsets as they are, other addresses below a base (2213e9a66bb8, 4.6).
    AbsolutePerCpu,
    /// 4 bytes to add to a base (01157ddc58dc, 6.15).
    Relative,
    /// 4 bytes to add to their own address (a081b5789255, 7.0).
    PlaceRelative,
}

/// Addresses as they are stored.
pub(crate) enum Addresses {
    Absolute(Vec<u8>),
    /// `lost` are the bytes that cannot be read.
    Offsets {
        bytes: Vec<u8>,
        at: u64,
        base: Option<u64>,
        lost: Vec<Range<usize>>,
    },
}

/// What was read of a kernel.
pub(crate) struct Tables {
    pub(crate) count: usize,
    pub(crate) names: Vec<u8>,
    /// Of names of which bytes are lost.
    pub(crate) lost: Option<LostNames>,
    pub(crate) tokens: Tokens,
    pub(crate) addresses: Addresses,
    /// Virtual addresses from the first table to the last.
    pub(crate) extent: Range<u64>,
}

/// Names that can be read in part: each block of [`PER_MARKER`] begins at a marker.
pub(crate) struct LostNames {
    /// The bytes that cannot be read.
    pub(crate) bytes: Vec<Range<usize>>,
    /// Where each block begins.
    pub(crate) markers: Vec<u32>,
}

/// Symbols that one marker stands for.
pub(crate) const PER_MARKER: usize = 256;

/// Returns whether some of `bytes` are lost.
pub(crate) fn is_lost(lost: &[Range<usize>], bytes: &Range<usize>) -> bool {
    lost.iter().any(|gap| gap.start < bytes.end && bytes.start < gap.end)
}

impl Addresses {
    /// Returns the virtual addresses from the first table to the last. They follow each other: the addresses precede the
    /// number of symbols, or follow the index of tokens.
    pub(crate) fn extent(&self, count_at: u64, token_index: u64) -> Range<u64> {
        // Room for the base, and for the number of symbols.
        const MORE: u64 = 16;
        let index_end = token_index.saturating_add(2 * TOKENS as u64);
        let (start, end) = match self {
            Self::Absolute(bytes) => (count_at.saturating_sub(bytes.len() as u64), index_end),
            Self::Offsets { bytes, at, .. } => (*at, at.saturating_add(bytes.len() as u64)),
        };
        start.min(count_at)..end.max(index_end).saturating_add(MORE)
    }

    /// Returns the address of a symbol, if the addresses can be stored so.
    pub(crate) fn get(&self, encoding: Encoding, number: usize) -> Option<u64> {
        match (self, encoding) {
            (Self::Absolute(bytes), Encoding::Absolute) => {
                Some(u64::from_le_bytes(*bytes.as_chunks::<8>().0.get(number)?))
            }
            (Self::Absolute(_), _) | (Self::Offsets { .. }, Encoding::Absolute) => None,
            (Self::Offsets { bytes, at, base, lost }, encoding) => {
                if is_lost(lost, &(4 * number..4 * number + 4)) {
                    return None;
                }
                let offset = i32::from_le_bytes(*bytes.as_chunks::<4>().0.get(number)?);
                let place = at.wrapping_add(4 * number as u64);
                match encoding {
                    Encoding::AbsolutePerCpu if offset >= 0 => base.map(|_| offset as u64),
                    Encoding::AbsolutePerCpu => {
                        base.map(|base| base.wrapping_sub(1).wrapping_sub(i64::from(offset) as u64))
                    }
                    Encoding::Relative => base.map(|base| base.wrapping_add(u64::from(offset as u32))),
                    _ => Some(place.wrapping_add(i64::from(offset) as u64)),
                }
            }
        }
    }
}
