//! The kernel's own symbols.

use std::ops::Range;

use pagehaul_kernel::{ReadVirtual, VmcoreInfo};

use crate::encoding::{Tokens, entry};
use crate::tables::{Encoding, Tables};
use crate::{SymbolError, find, search};

/// The symbols of the kernel image.
#[derive(Debug)]
pub struct Kallsyms {
    names: Vec<u8>,
    tokens: Tokens,
    encoding: Encoding,
    /// Address and position in `names`, by address; of equal ones in the order of the tables.
    by_address: Vec<(u64, u32)>,
    /// Hash of the name and index in `by_address`, by hash.
    by_name: Vec<(u32, u32)>,
    extent: Range<u64>,
}

impl Kallsyms {
    /// Reads the symbols.
    pub fn read(info: &VmcoreInfo, memory: &dyn ReadVirtual) -> Result<Self, SymbolError> {
        let stext = info.symbol("_stext").ok_or(SymbolError::NoAnchor)?;
        let found = find::by_vmcoreinfo(info, memory).unwrap_or(Err(SymbolError::NotFound));
        match found.and_then(|tables| Self::decode(tables, stext)) {
            Ok(symbols) => Ok(symbols),
            Err(SymbolError::NotFound) => Self::search(stext, memory),
            // Damaged keys do not make the tables unusable.
            Err(error) => Self::search(stext, memory).map_err(|_| error),
        }
    }

    /// Reads the symbols, and finds their tables by a search of the kernel image from `stext` on.
    pub fn search(stext: u64, memory: &dyn ReadVirtual) -> Result<Self, SymbolError> {
        Self::decode(search::search(stext, memory)?, stext)
    }

    fn decode(tables: Tables, stext: u64) -> Result<Self, SymbolError> {
        let Tables { count, mut names, tokens, addresses, extent } = tables;
        let mut positions = Vec::with_capacity(count);
        let mut hashes = Vec::with_capacity(count);
        let mut anchor = None;
        let mut at = 0;
        let mut name = Vec::new();
        for number in 0..count {
            let damaged = SymbolError::Damaged { table: "kallsyms_names", reason: "a name passes its end" };
            let Some((encoded, next)) = entry(&names, at) else { return Err(damaged) };
            tokens.expand(encoded, &mut name);
            if name == b"_stext" {
                anchor = Some(number);
            }
            positions.push(at as u32);
            hashes.push(hash(&name));
            at = next;
        }
        names.truncate(at);
        let wrong = SymbolError::WrongAnchor { expected: stext };
        let Some(anchor) = anchor else { return Err(wrong) };
        let fits = |encoding: &Encoding| addresses.get(*encoding, anchor) == Some(stext);
        let all = [Encoding::AbsolutePerCpu, Encoding::Relative, Encoding::PlaceRelative, Encoding::Absolute];
        let Some(encoding) = all.into_iter().find(fits) else { return Err(wrong) };
        let mut order: Vec<(u64, u32)> = (0..count as u32)
            .filter_map(|number| Some((addresses.get(encoding, number as usize)?, number)))
            .collect();
        drop(addresses);
        order.sort_unstable();
        let mut by_name: Vec<(u32, u32)> = order
            .iter()
            .enumerate()
            .filter_map(|(at, (_, number))| Some((*hashes.get(*number as usize)?, at as u32)))
            .collect();
        by_name.sort_unstable();
        let by_address = order
            .into_iter()
            .filter_map(|(address, number)| Some((address, *positions.get(number as usize)?)))
            .collect();
        Ok(Self { names, tokens, encoding, by_address, by_name, extent })
    }

    /// Returns how addresses are stored.
    pub fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Returns the virtual addresses of the tables: all that a search needs to find them again.
    pub fn extent(&self) -> Range<u64> {
        self.extent.clone()
    }

    /// Returns the number of symbols.
    pub fn len(&self) -> usize {
        self.by_address.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_address.is_empty()
    }

    /// Returns all symbols by address: address, type letter, name. Since 6.16 data has the letter `T` too.
    pub fn iter(&self) -> impl Iterator<Item = (u64, char, String)> {
        (0..self.by_address.len()).filter_map(|at| {
            let (address, letter, name) = self.at(at)?;
            Some((address, char::from(letter), name))
        })
    }

    /// Returns the address of a symbol. Of several with the name, the lowest.
    pub fn address(&self, name: &str) -> Option<u64> {
        let hash = hash(name.as_bytes());
        let start = self.by_name.partition_point(|(known, _)| *known < hash);
        let candidates = self.by_name.iter().skip(start).take_while(|(known, _)| *known == hash);
        for (_, at) in candidates {
            if let Some((address, _, found)) = self.at(*at as usize)
                && found == name
            {
                return Some(address);
            }
        }
        None
    }

    /// Returns the symbol that `address` lies in: its address, its size up to the next symbol, its name. Of several at
    /// one address the first in the tables, as the kernel does; `__pfx_` symbols (function padding) do not count.
    pub fn containing(&self, address: u64) -> Option<(u64, u64, String)> {
        let mut at = self.by_address.partition_point(|(start, _)| *start <= address).checked_sub(1)?;
        let end = self.by_address.get(at + 1).map_or(u64::MAX, |(next, _)| *next);
        let mut best: Option<(u64, String)> = None;
        // Several symbols of one address, and at most one of padding before them.
        for _ in 0..4096 {
            let (start, _, name) = self.at(at)?;
            match &best {
                Some((found, _)) if *found != start => break,
                _ if name.starts_with("__pfx_") => {}
                _ => best = Some((start, name)),
            }
            let Some(before) = at.checked_sub(1) else { break };
            at = before;
        }
        best.map(|(start, name)| (start, end - start, name))
    }

    fn at(&self, at: usize) -> Option<(u64, u8, String)> {
        let (address, position) = *self.by_address.get(at)?;
        let (encoded, _) = entry(&self.names, position as usize)?;
        let mut name = Vec::new();
        let letter = self.tokens.expand(encoded, &mut name)?;
        Some((address, letter, String::from_utf8_lossy(&name).into_owned()))
    }
}

/// FNV-1a.
fn hash(name: &[u8]) -> u32 {
    name.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
