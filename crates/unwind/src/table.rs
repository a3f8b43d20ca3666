//! The ORC tables of the kernel or of a module: addresses, sorted, and an entry for each.

use std::ops::Range;

use pagehaul_kernel::{ReadVirtual, TranslateError};
use pagehaul_symbols::Symbols;

use crate::orc::{Entry, Version};

/// Entries of one table. Distribution kernels have 480,000.
const MOST_ENTRIES: u64 = 8 << 20;
/// Bytes of an entry.
const ENTRY_BYTES: u64 = 6;
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
        /// Entries, as the addresses say.
        entries: u64,
        /// Bytes of the entries.
        bytes: u64,
    },
    /// The tables cannot be read.
    #[error("cannot read the kernel's ORC tables: {0}")]
    Unreadable(#[from] TranslateError),
}

/// A table.
#[derive(Debug, Clone)]
pub struct Table {
    /// Address of the first word of `addresses`.
    start: u64,
    addresses: Vec<u8>,
    entries: Vec<u8>,
    version: Version,
    /// Code that the table is for.
    text: Vec<Range<u64>>,
}

impl Table {
    /// Reads the kernel's table.
    pub fn of_kernel(symbols: &Symbols, memory: &dyn ReadVirtual) -> Result<Self, TableError> {
        let symbol = |name| symbols.address(name).ok_or(TableError::Missing);
        let addresses = symbol("__start_orc_unwind_ip")?..symbol("__stop_orc_unwind_ip")?;
        let entries = symbol("__start_orc_unwind")?..symbol("__stop_orc_unwind")?;
        let count = addresses.end.saturating_sub(addresses.start) / 4;
        let bytes = entries.end.saturating_sub(entries.start);
        if count == 0 || count > MOST_ENTRIES || bytes != count * ENTRY_BYTES {
            return Err(TableError::Damaged { entries: count, bytes });
        }
        let mut table = Self::read(memory, addresses.start, entries.start, count, Version::V1)?;
        table.version = table.find_version(symbols, memory);
        Ok(table)
    }

    /// Reads the table of a module (`mod->arch`), which has the kernel's version.
    pub fn of_module(
        &self,
        memory: &dyn ReadVirtual,
        addresses: u64,
        entries: u64,
        count: u64,
        text: Vec<Range<u64>>,
    ) -> Result<Self, TableError> {
        if count == 0 || count > MOST_ENTRIES {
            return Err(TableError::Missing);
        }
        Ok(Self { text, ..Self::read(memory, addresses, entries, count, self.version)? })
    }

    fn read(
        memory: &dyn ReadVirtual,
        addresses: u64,
        entries: u64,
        count: u64,
        version: Version,
    ) -> Result<Self, TableError> {
        Ok(Self {
            start: addresses,
            addresses: memory.bytes(addresses, (4 * count) as usize)?,
            entries: memory.bytes(entries, (ENTRY_BYTES * count) as usize)?,
            version,
            text: Vec::new(),
        })
    }

    /// From the bytes of both tables; `start` is the address of the first.
    pub fn from_bytes(start: u64, addresses: Vec<u8>, entries: Vec<u8>, version: Version) -> Self {
        Self { start, addresses, entries, version, text: Vec::new() }
    }

    /// By the header's hash; without one (before 6.3.10) by the bits that entries use: only V2 has the bit 11 of `end`,
    /// only V3 has types above 3.
    fn find_version(&self, symbols: &Symbols, memory: &dyn ReadVirtual) -> Version {
        let header = symbols.address("__start_orc_header").and_then(|at| memory.bytes(at, 20).ok());
        if let Some(header) = header {
            let known = HASHES.iter().find(|(hash, _)| header.starts_with(hash));
            if let Some((_, version)) = known {
                return *version;
            }
        }
        let mut types = [0_u32; 8];
        let mut bit_11 = 0_u32;
        let mut sp_registers = [0_u32; 16];
        for entry in self.entries.as_chunks::<6>().0 {
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
    pub fn find(&self, pc: u64) -> Option<Entry> {
        let words = self.addresses.as_chunks::<4>().0;
        let address = |index: usize| {
            let offset = i64::from(i32::from_le_bytes(*words.get(index)?)) as u64;
            Some(self.start.wrapping_add(4 * index as u64).wrapping_add(offset))
        };
        let mut low = 0;
        let mut high = words.len();
        while low < high {
            let middle = low + (high - low) / 2;
            if address(middle)? <= pc {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let entry = self.entries.as_chunks::<6>().0.get(low.checked_sub(1)?)?;
        Some(Entry::decode(*entry, self.version))
    }
}
