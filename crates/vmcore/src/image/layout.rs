//! Where the bytes of a raw image belong in physical memory.

use std::fmt;
use std::str::FromStr;

use pagehaul_physmem::Piece;

use super::limits::{END_OF_MEMORY, MAX_MISSING};

const GIB_4: u64 = 4 << 30;
/// Ranges of a layout.
const MAX_RANGES: usize = 4096;

/// Machines that leave a gap below 4 GiB, and where it starts. Their memory files have memory without the gap.
const GAPS: [(&str, u64); 4] = [
    // `MMIO32_MEM_START` is 1 GiB below 4 GiB (Firecracker, src/vmm/src/arch/x86_64/layout.rs); it was 768 MiB in early releases.
    ("firecracker", 0xc000_0000),
    // `MEM_32BIT_RESERVED_START` is 1 GiB below 4 GiB (Cloud Hypervisor, arch/src/x86_64/layout.rs).
    ("cloud-hypervisor", 0xc000_0000),
    // `pc_init1` (QEMU, hw/i386/pc_piix.c): 3.5 GiB, or 3 GiB if there is more memory.
    ("pc", 0xe000_0000),
    // `pc_q35_init` (QEMU, hw/i386/pc_q35.c): 2.75 GiB, or 2 GiB if there is more memory.
    ("q35", 0xb000_0000),
];

/// Where the bytes of a raw image belong in physical memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// A machine that has memory from 0 up to a gap that starts here, and from 4 GiB on.
    Gap {
        /// Name of the machine.
        machine: &'static str,
        /// Where the gap starts.
        start: u64,
    },
    /// Ranges of addresses, and the offset in the file of the first byte of each. An end of `None` is that of the file.
    Ranges(Vec<(u64, Option<u64>, u64)>),
}

/// A layout that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The text is none.
    #[error(
        "expected `flat`, {}, or ranges START-END@OFFSET such as 0-bfffffff@0,100000000-@c0000000 (hexadecimal, END is the last \
         byte, without it the end of the file)",
        GAPS.map(|(name, _)| format!("`{name}`")).join(", ")
    )]
    Syntax,
    /// The file next to an image has no layout of it.
    #[error("no ranges of memory are in it; expected `state.json` of a snapshot by Cloud Hypervisor")]
    Snapshot,
    /// A range is empty or has no place.
    #[error("the layout has the impossible range {}", shown(.0))]
    Range((u64, Option<u64>, u64)),
    /// Two ranges have the same address.
    #[error("the layout has the address {0:#x} twice")]
    Overlap(u64),
    /// The file is shorter.
    #[error("the layout has bytes at offset {offset:#x}, but the file has {size:#x}")]
    Beyond {
        /// Where a range starts in the file.
        offset: u64,
        /// Bytes of the file.
        size: u64,
    },
}

impl Layout {
    /// A file whose offsets are physical addresses.
    pub fn flat() -> Self {
        Self::Ranges(vec![(0, None, 0)])
    }

    /// Returns the memory of a file of `size` bytes.
    pub(super) fn pieces(&self, size: u64) -> Result<Vec<Piece>, LayoutError> {
        let ranges = match self {
            Self::Gap { machine, start } => below_and_above(gap_start(machine, *start, size), size),
            Self::Ranges(ranges) => ranges.clone(),
        };
        let mut pieces = ranges
            .into_iter()
            .map(|range| {
                let (start, last, offset) = range;
                let rest = size.checked_sub(offset).filter(|rest| *rest > 0);
                let rest = rest.ok_or(LayoutError::Beyond { offset, size })?;
                let bytes = match last {
                    Some(last) => last.checked_sub(start).and_then(|bytes| bytes.checked_add(1)),
                    None => Some(rest),
                };
                let end =
                    bytes.and_then(|bytes| start.checked_add(bytes)).filter(|end| *end <= END_OF_MEMORY);
                let end = end.filter(|end| end - start <= rest.saturating_add(MAX_MISSING));
                let end = end.ok_or(LayoutError::Range(range))?;
                Ok(Piece { start, end, stored: end - start, offset })
            })
            .collect::<Result<Vec<_>, LayoutError>>()?;
        pieces.sort_by_key(|piece| piece.start);
        match pieces.windows(2).find(|pair| matches!(pair, [one, next] if next.start < one.end)) {
            Some(pair) => Err(LayoutError::Overlap(pair.last().map_or(0, |piece| piece.start))),
            None => Ok(pieces),
        }
    }
}

/// QEMU moves the gap down once memory does not fit below it.
fn gap_start(machine: &str, start: u64, size: u64) -> u64 {
    match machine {
        "pc" if size >= start => 0xc000_0000,
        "q35" if size >= start => 0x8000_0000,
        _ => start,
    }
}

fn below_and_above(start: u64, size: u64) -> Vec<(u64, Option<u64>, u64)> {
    if size <= start {
        return vec![(0, None, 0)];
    }
    vec![(0, Some(start - 1), 0), (GIB_4, None, start)]
}

impl FromStr for Layout {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Self, LayoutError> {
        if text == "flat" {
            return Ok(Self::flat());
        }
        if let Some((machine, start)) = GAPS.into_iter().find(|(name, _)| *name == text) {
            return Ok(Self::Gap { machine, start });
        }
        let ranges = text.split(',').map(range).collect::<Option<Vec<_>>>().ok_or(LayoutError::Syntax)?;
        if ranges.len() > MAX_RANGES {
            return Err(LayoutError::Syntax);
        }
        Ok(Self::Ranges(ranges))
    }
}

/// `START-END@OFFSET`, without `@OFFSET` at the start of the file.
fn range(text: &str) -> Option<(u64, Option<u64>, u64)> {
    let (range, offset) = text.trim().split_once('@').unwrap_or((text.trim(), "0"));
    let (start, last) = range.split_once('-')?;
    let last = if last.is_empty() { None } else { Some(hexadecimal(last)?) };
    Some((hexadecimal(start)?, last, hexadecimal(offset)?))
}

fn hexadecimal(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    // from_str_radix takes a sign.
    if !digits.starts_with(|first: char| first.is_ascii_hexdigit()) {
        return None;
    }
    u64::from_str_radix(digits, 16).ok()
}

fn shown((start, last, offset): &(u64, Option<u64>, u64)) -> impl fmt::Display {
    let last = last.map_or_else(String::new, |last| format!("{last:x}"));
    format!("{start:x}-{last}@{offset:x}")
}

impl fmt::Display for Layout {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gap { machine, .. } => out.write_str(machine),
            Self::Ranges(ranges) => {
                let ranges: Vec<String> = ranges.iter().map(|range| shown(range).to_string()).collect();
                out.write_str(&ranges.join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    fn pieces(text: &str, size: u64) -> Result<Vec<Range<u64>>, String> {
        let layout: Layout = text.parse().map_err(|error: LayoutError| error.to_string())?;
        let pieces = layout.pieces(size).map_err(|error| error.to_string())?;
        Ok(pieces.into_iter().map(|piece| piece.start..piece.end).collect())
    }

    #[test]
    fn machines_have_their_memory_below_and_above_the_gap() {
        assert_eq!(pieces("flat", 0x1000), Ok(vec![0..0x1000]));
        assert_eq!(pieces("firecracker", 1 << 30), Ok(vec![0..1 << 30]));
        let above = |start: u64, size: u64| Ok(vec![0..start, GIB_4..GIB_4 + size - start]);
        assert_eq!(pieces("firecracker", 6 << 30), above(0xc000_0000, 6 << 30));
        assert_eq!(pieces("cloud-hypervisor", 6 << 30), above(0xc000_0000, 6 << 30));
        assert_eq!(pieces("pc", 0xd000_0000), Ok(vec![0..0xd000_0000]));
        assert_eq!(pieces("pc", 6 << 30), above(0xc000_0000, 6 << 30));
        assert_eq!(pieces("q35", 6 << 30), above(0x8000_0000, 6 << 30));
    }

    #[test]
    fn ranges_name_addresses_and_offsets() {
        assert_eq!(pieces("40000000-", 0x1000), Ok(vec![0x4000_0000..0x4000_1000]));
        let two = "100000000-@3000,0x0-0xfff@0x0";
        assert_eq!(pieces(two, 0x4000), Ok(vec![0..0x1000, GIB_4..GIB_4 + 0x1000]));
        let layout: Layout = two.parse().unwrap();
        assert_eq!(layout.to_string(), "100000000-@3000,0-fff@0");
        assert_eq!(layout.to_string().parse(), Ok(layout));
    }

    #[test]
    fn impossible_layouts_are_refused() {
        for text in ["", "x86", "1-2-3", "-1", "1000", "0-@-1", "+1-2", "0-1@", "12-,"] {
            assert!(pieces(text, 0x1000).unwrap_err().starts_with("expected `flat`, "), "{text}");
        }
        assert_eq!(pieces("10-f", 0x1000).unwrap_err(), "the layout has the impossible range 10-f@0");
        assert!(pieces("ffffffffffffffff-", 0x1000).unwrap_err().contains("impossible"));
        assert!(pieces("0-ffffffffffffffff", 0x1000).unwrap_err().contains("impossible"));
        assert!(pieces("0-fffffffffff", 0x1000).unwrap_err().contains("impossible"));
        let twice = pieces("0-fff,800-@800", 0x1000).unwrap_err();
        assert_eq!(twice, "the layout has the address 0x800 twice");
        let beyond = pieces("0-@1000", 0x1000).unwrap_err();
        assert_eq!(beyond, "the layout has bytes at offset 0x1000, but the file has 0x1000");
    }
}
