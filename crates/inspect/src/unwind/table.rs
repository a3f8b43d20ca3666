//! The ORC tables of the kernel or of a module: addresses, sorted, and an entry for each.

use std::ops::Range;

use pagehaul_kernel::{ReadVirtual, TranslateError};
use pagehaul_symbols::Symbols;

use super::orc::{Entry, Version};

/// Entries of one table. Distribution kernels have 480,000.
const MAX_ENTRIES: u64 = 8 << 20;
/// Bytes of an entry.
const ENTRY_BYTES: u64 = 6;
/// Entries that the detection of the layout examines.
const SAMPLES: u64 = 1 << 12;
/// Hashes of `.orc_header` that are known, by their first 4 bytes (`scripts/orc_hash.sh`).
const HASHES: [([u8; 4], Version); 3] = [
    ([0xfe, 0x5d, 0x32, 0xbf], Version::V3),
    ([0x13, 0x7c, 0x36, 0xad], Version::V4),
    ([0xdb, 0x84, 0xae, 0xd4], Version::V2),
];

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The kernel has none.
    #[error("the kernel has no ORC tables (before 4.14, or built with another unwinder)")]
    Missing,
    /// The addresses contradict each other.
    #[error("the kernel's ORC tables are damaged: {entries} entries in {bytes} bytes")]
    Damaged {
        /// Number of entries by the addresses.
        entries: u64,
        /// Bytes of the entries.
        bytes: u64,
    },
    /// The tables cannot be read.
    #[error("cannot read the kernel's ORC tables: {0}")]
    Unreadable(#[from] TranslateError),
}

/// A table. Its entries are read when they are needed: the stacks of a dump take a fraction of 4 MB.
#[derive(Debug, Clone)]
pub struct Table {
    /// Address of the first word of the addresses.
    addresses: u64,
    /// Address of the first entry.
    entries: u64,
    count: u64,
    version: Version,
    /// Code that the table is for.
    text: Vec<Range<u64>>,
}

impl Table {
    /// Finds the kernel's table. `declared` is the layout that `struct orc_entry` has in the kernel's types.
    pub fn of_kernel(
        symbols: &Symbols,
        memory: &dyn ReadVirtual,
        declared: Option<Version>,
    ) -> Result<Self, TableError> {
        let symbol = |name| symbols.address(name).ok_or(TableError::Missing);
        let addresses = symbol("__start_orc_unwind_ip")?..symbol("__stop_orc_unwind_ip")?;
        let entries = symbol("__start_orc_unwind")?..symbol("__stop_orc_unwind")?;
        let count = addresses.end.saturating_sub(addresses.start) / 4;
        let bytes = entries.end.saturating_sub(entries.start);
        if count == 0 || count > MAX_ENTRIES || bytes != count * ENTRY_BYTES {
            return Err(TableError::Damaged { entries: count, bytes });
        }
        let mut table = Self::new(addresses.start, entries.start, count, Version::V1);
        // A missing page affects few stacks; if the middle one is missing, all are likely to be.
        table.entry(memory, count / 2)?;
        let header = symbols.address("__start_orc_header").and_then(|at| memory.bytes(at, 20).ok());
        let by_header = header.and_then(|header| {
            HASHES.iter().find(|(hash, _)| header.starts_with(hash)).map(|(_, version)| *version)
        });
        table.version = by_header.or(declared).unwrap_or_else(|| table.guess_version(memory));
        Ok(table)
    }

    /// Returns the table of a module (`mod->arch`), which has the kernel's version.
    pub fn of_module(
        &self,
        addresses: u64,
        entries: u64,
        count: u64,
        text: Vec<Range<u64>>,
    ) -> Result<Self, TableError> {
        if count == 0 || count > MAX_ENTRIES {
            return Err(TableError::Missing);
        }
        Ok(Self { text, ..Self::new(addresses, entries, count, self.version) })
    }

    /// Returns a table of `count` addresses and as many entries.
    pub fn new(addresses: u64, entries: u64, count: u64, version: Version) -> Self {
        Self { addresses, entries, count, version, text: Vec::new() }
    }

    fn entry(&self, memory: &dyn ReadVirtual, index: u64) -> Result<[u8; 6], TableError> {
        let mut entry = [0; ENTRY_BYTES as usize];
        memory.read(self.entries.wrapping_add(ENTRY_BYTES * index), &mut entry)?;
        Ok(entry)
    }

    /// Detects the layout by the bits that entries use: only V2 has the bit 11 of `end`, only V3 and V4 have types above 3.
    fn guess_version(&self, memory: &dyn ReadVirtual) -> Version {
        let mut types = [0_u32; 8];
        let mut bit_11 = 0_u32;
        let mut sp_registers = [0_u32; 16];
        let step = (self.count / SAMPLES).max(1);
        for entry in (0..self.count).step_by(step as usize).filter_map(|at| self.entry(memory, at).ok()) {
            let bits = u16::from_le_bytes([entry[4], entry[5]]);
            if let Some(count) = types.get_mut(usize::from(bits >> 8 & 7)) {
                *count += 1;
            }
            if let Some(count) = sp_registers.get_mut(usize::from(bits & 15)) {
                *count += 1;
            }
            bit_11 += u32::from(bits >> 11 & 1);
        }
        // Most entries are calls: 2 in the types of three bits, 0 before.
        if types[2] > types[0] {
            return if sp_registers[3] > sp_registers[5] { Version::V4 } else { Version::V3 };
        }
        if bit_11 > 0 { Version::V2 } else { Version::V1 }
    }

    /// Returns the layout of its entries.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns whether the table is for code at `pc`, of a module.
    pub fn covers(&self, pc: u64) -> bool {
        self.text.iter().any(|range| range.contains(&pc))
    }

    /// Returns the entry of the instruction at `pc`.
    pub fn find(&self, memory: &dyn ReadVirtual, pc: u64) -> Option<Entry> {
        let address = |index: u64| {
            let place = self.addresses.wrapping_add(4 * index);
            let offset = i64::from(memory.u32(place).ok()? as i32) as u64;
            Some(place.wrapping_add(offset))
        };
        let mut low = 0;
        let mut high = self.count;
        while low < high {
            let middle = low + (high - low) / 2;
            if address(middle)? <= pc {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let entry = self.entry(memory, low.checked_sub(1)?).ok()?;
        Some(Entry::decode(entry, self.version))
    }
}
