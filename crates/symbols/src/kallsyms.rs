//! The kernel's own symbols.

use std::ops::Range;

use pagehaul_kernel::{ReadVirtual, VmcoreInfo};

use crate::encoding::{Tokens, entry, hash};
use crate::error::SymbolError;
use crate::tables::{Encoding, PER_MARKER, Tables, is_lost};
use crate::{find, search};

/// The symbols of the kernel image.
#[derive(Debug)]
pub struct Kallsyms {
    names: Vec<u8>,
    tokens: Tokens,
    encoding: Encoding,
    /// By address; of equal ones in the order of the tables.
    by_address: Vec<Symbol>,
    by_name: Chains,
    extent: Range<u64>,
}

#[derive(Debug, Clone, Copy)]
struct Symbol {
    address: u64,
    /// Where its name is in the names.
    position: u32,
    /// Hash of its name.
    hash: u32,
}

/// A hash table of symbols: chains of indices in `by_address`, ascending.
#[derive(Debug)]
struct Chains {
    /// First index of each chain.
    heads: Vec<u32>,
    /// Next index of each symbol's chain.
    next: Vec<u32>,
}

/// Where the name of a symbol is whose name is lost.
const NO_NAME: u32 = u32::MAX;

/// Symbols of VMCOREINFO whose values tell how addresses are stored, the first that is not lost.
const ANCHORS: [&str; 3] = ["_stext", "init_uts_ns", "node_online_map"];

/// Ends a chain.
const END: u32 = u32::MAX;

impl Chains {
    fn new(symbols: &[Symbol]) -> Self {
        let mut heads = vec![END; symbols.len().next_power_of_two()];
        let mut next = vec![END; symbols.len()];
        let mask = heads.len() - 1;
        for ((at, symbol), next) in symbols.iter().enumerate().zip(&mut next).rev() {
            if let Some(head) = heads.get_mut(symbol.hash as usize & mask) {
                *next = std::mem::replace(head, at as u32);
            }
        }
        Self { heads, next }
    }

    /// Returns the indices of symbols whose names may have this hash.
    fn of(&self, hash: u32) -> impl Iterator<Item = usize> {
        let mask = self.heads.len().wrapping_sub(1);
        let head = self.heads.get(hash as usize & mask).copied();
        let known = |at: &u32| *at != END;
        std::iter::successors(head.filter(known), move |at| {
            self.next.get(*at as usize).copied().filter(known)
        })
        .map(|at| at as usize)
    }
}

impl Kallsyms {
    /// Returns the symbols of a kernel whose symbols cannot be read: none.
    pub fn none() -> Self {
        Self {
            names: Vec::new(),
            tokens: Tokens::default(),
            encoding: Encoding::Absolute,
            by_address: Vec::new(),
            by_name: Chains::new(&[]),
            extent: 0..0,
        }
    }

    /// Reads the symbols.
    pub fn read(info: &VmcoreInfo, memory: &dyn ReadVirtual) -> Result<Self, SymbolError> {
        let stext = info.symbol("_stext").ok_or(SymbolError::NoAnchor)?;
        let anchors = ANCHORS.iter().filter_map(|name| Some((*name, info.symbol(name)?))).collect::<Vec<_>>();
        let found = find::by_vmcoreinfo(info, memory).unwrap_or(Err(SymbolError::NotFound));
        match found.and_then(|tables| Self::decode(tables, stext, &anchors)) {
            Ok(symbols) => Ok(symbols),
            Err(SymbolError::NotFound) => Self::search(stext, memory),
            // Damaged keys do not make the tables unusable.
            Err(error) => Self::search(stext, memory).map_err(|_| error),
        }
    }

    /// Reads the symbols, and finds their tables by a search of the kernel image from `stext` on.
    pub fn search(stext: u64, memory: &dyn ReadVirtual) -> Result<Self, SymbolError> {
        Self::decode(search::search(stext, memory)?, stext, &[("_stext", stext)])
    }

    fn decode(tables: Tables, stext: u64, anchors: &[(&str, u64)]) -> Result<Self, SymbolError> {
        let Tables { count, mut names, lost, tokens, addresses, extent } = tables;
        let damaged = |reason| SymbolError::Damaged { table: "kallsyms_names", reason };
        // A name takes two bytes at least, whatever a damaged count says.
        let mut by_address = Vec::with_capacity(count.min(names.len() / 2));
        let anchors: Vec<(u32, &str, u64)> =
            anchors.iter().map(|(name, value)| (hash(name.as_bytes()), *name, *value)).collect();
        let mut found = Vec::new();
        let (mut at, mut end) = (0, 0);
        // Whether the names from here to the next marker cannot be told apart.
        let mut is_cut = false;
        let mut name = Vec::new();
        for number in 0..count {
            if let Some(lost) = &lost
                && number.is_multiple_of(PER_MARKER)
            {
                let marker = lost.markers.get(number / PER_MARKER).map_or(0, |marker| *marker as usize);
                if !is_cut && marker != at {
                    return Err(damaged("its markers contradict it"));
                }
                (at, is_cut) = (marker, false);
            }
            let entry = if is_cut { None } else { entry(&names, at) };
            let is_known = |next: usize| lost.as_ref().is_none_or(|lost| !is_lost(&lost.bytes, &(at..next)));
            let (encoded, next) = match entry {
                Some((encoded, next)) if is_known(next) => (encoded, next),
                None if lost.is_none() => return Err(damaged("a name passes its end")),
                _ => {
                    is_cut = true;
                    by_address.push(Symbol { address: number as u64, position: NO_NAME, hash: 0 });
                    continue;
                }
            };
            // Each has a letter at least: where bytes were lost, zeros would shift all names that follow.
            if encoded.is_empty() {
                return Err(damaged("a name is empty"));
            }
            let hash = tokens.hash(encoded);
            if let Some((_, anchor, value)) = anchors.iter().find(|(of, ..)| *of == hash) {
                tokens.expand(encoded, &mut name);
                found.extend((name == anchor.as_bytes()).then_some((number, *value)));
            }
            // How addresses are stored is known once an anchor is.
            by_address.push(Symbol { address: number as u64, position: at as u32, hash });
            at = next;
            end = end.max(next);
        }
        names.truncate(end);
        let wrong = SymbolError::WrongAnchor { expected: stext };
        // The first that is known: others serve if that one is lost.
        let stored =
            [Encoding::AbsolutePerCpu, Encoding::Relative, Encoding::PlaceRelative, Encoding::Absolute];
        let is_stored = |number| stored.into_iter().any(|encoding| addresses.get(encoding, number).is_some());
        found.sort_by_key(|(_, value)| *value != stext);
        let Some((anchor, value)) = found.into_iter().find(|(number, _)| is_stored(*number)) else {
            return Err(wrong);
        };
        let fits = |encoding: &Encoding| addresses.get(*encoding, anchor) == Some(value);
        let Some(encoding) = stored.into_iter().find(fits) else { return Err(wrong) };
        // Behind a symbol whose successor is lost nothing has a name.
        let (mut before, mut ends) = (None, Vec::new());
        by_address.retain_mut(|symbol| {
            let address = addresses.get(encoding, symbol.address as usize);
            if address.is_none() {
                ends.extend(before.take().map(|before: u64| before.saturating_add(1)));
            }
            before = address;
            symbol.address = address.unwrap_or(0);
            address.is_some()
        });
        by_address.extend(ends.into_iter().map(|address| Symbol { address, position: NO_NAME, hash: 0 }));
        drop(addresses);
        by_address.sort_unstable_by_key(|symbol| (symbol.address, symbol.position));
        let by_name = Chains::new(&by_address);
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
        let candidates = self.by_name.of(hash);
        candidates
            .filter(|at| self.by_address.get(*at).is_some_and(|symbol| symbol.hash == hash))
            .find_map(|at| self.at(at).filter(|(_, _, found)| found == name))
            .map(|(address, _, _)| address)
    }

    /// Returns the symbol that `address` lies in: its address, its size up to the next symbol, its name. Of several at
    /// one address the first in the tables, as the kernel does; `__pfx_` symbols (function padding) do not count.
    pub fn containing(&self, address: u64) -> Option<(u64, u64, String)> {
        let mut at = self.by_address.partition_point(|symbol| symbol.address <= address).checked_sub(1)?;
        let end = self.by_address.get(at + 1).map_or(u64::MAX, |next| next.address);
        let mut best: Option<(u64, String)> = None;
        // Several symbols of one address, and at most one of padding before them.
        for _ in 0..4096 {
            let start = self.by_address.get(at)?.address;
            if best.as_ref().is_some_and(|(found, _)| *found != start) {
                break;
            }
            match self.at(at) {
                Some((_, _, name)) if name.starts_with("__pfx_") => {}
                Some((start, _, name)) => best = Some((start, name)),
                // Its name is lost: those below end before it.
                None if best.is_none() => return None,
                None => {}
            }
            let Some(before) = at.checked_sub(1) else { break };
            at = before;
        }
        best.map(|(start, name)| (start, end - start, name))
    }

    fn at(&self, at: usize) -> Option<(u64, u8, String)> {
        let Symbol { address, position, .. } = *self.by_address.get(at)?;
        let (encoded, _) = entry(&self.names, position as usize)?;
        let mut name = Vec::new();
        let letter = self.tokens.expand(encoded, &mut name)?;
        Some((address, letter, String::from_utf8_lossy(&name).into_owned()))
    }
}
