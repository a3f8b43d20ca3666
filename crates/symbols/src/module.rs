//! Symbols of one loaded module.

use std::ops::Range;

/// Bytes of an ELF symbol (`Elf64_Sym`).
pub const SYMBOL_BYTES: usize = 24;

/// Longest name of a symbol, with its zero byte (`KSYM_NAME_LEN`; 128 before Linux 6.1, commit b8a94bfb3395).
const NAME_BYTES: usize = 512;

/// The symbol table that the kernel keeps of a module (`struct mod_kallsyms`).
#[derive(Debug, Clone, Default)]
pub struct ModuleSymbols {
    name: String,
    ranges: Vec<Range<u64>>,
    /// Address, and place of the name, by address. Names are not copied: all could be the end of one long string.
    symbols: Vec<(u64, usize)>,
    strings: Vec<u8>,
}

impl ModuleSymbols {
    /// Reads the table. `symbols` are ELF symbols, `strings` their names; `ranges` are the module's memory.
    pub fn parse(name: String, ranges: Vec<Range<u64>>, symbols: &[u8], strings: &[u8]) -> Self {
        let mut found: Vec<(u64, usize)> = symbols
            .as_chunks::<SYMBOL_BYTES>()
            .0
            .iter()
            .filter_map(|symbol| {
                let word = |at: usize| symbol.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word));
                let section = symbol.get(6..)?.first_chunk().map(|word| u16::from_le_bytes(*word))?;
                let value = symbol.get(8..)?.first_chunk().map(|word| u64::from_le_bytes(*word))?;
                let place = word(0)? as usize;
                let name = name_at(strings, place)?;
                // As `find_kallsyms_symbol` skips them: undefined, unnamed, mapping symbols, padding.
                let skipped = section == 0
                    || name.is_empty()
                    || name.starts_with(".L")
                    || name.starts_with('$')
                    || name.starts_with("__pfx_");
                (!skipped).then_some((value, place))
            })
            .collect();
        // Stable: of several at one address the first in the table counts.
        found.sort_by_key(|(address, _)| *address);
        Self { name, ranges, symbols: found, strings: strings.to_vec() }
    }

    /// Returns the module's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether `address` is in the module.
    pub fn contains(&self, address: u64) -> bool {
        self.ranges.iter().any(|range| range.contains(&address))
    }

    /// Returns the symbol that `address` lies in: its address, its size up to the next symbol, its name.
    pub fn containing(&self, address: u64) -> Option<(u64, u64, &str)> {
        let range = self.ranges.iter().find(|range| range.contains(&address))?;
        let at = self.symbols.partition_point(|(start, _)| *start <= address).checked_sub(1)?;
        let (start, _) = self.symbols.get(at)?;
        let first = self.symbols.partition_point(|(other, _)| other < start);
        let (start, place) = self.symbols.get(first).filter(|(start, _)| range.contains(start))?;
        let end = self.symbols.get(at + 1).map_or(range.end, |(next, _)| (*next).min(range.end));
        Some((*start, end - start, name_at(&self.strings, *place)?))
    }

    /// Returns the address of a symbol.
    pub fn address(&self, name: &str) -> Option<u64> {
        let is_it = |place| name_at(&self.strings, place) == Some(name);
        self.symbols.iter().find(|(_, place)| is_it(*place)).map(|(address, _)| *address)
    }
}

/// Returns the name at a place of the strings; none if it is longer than the kernel's, or not UTF-8.
fn name_at(strings: &[u8], place: usize) -> Option<&str> {
    let rest = strings.get(place..)?;
    let end = rest.iter().take(NAME_BYTES).position(|byte| *byte == 0)?;
    str::from_utf8(rest.get(..end)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_symbol_of_an_address() {
        let strings = b"\0probe\0alias\0gone\0";
        let mut symbols = Vec::new();
        for (name, section, value) in
            [(1_u32, 1_u16, 0x1000_u64), (7, 1, 0x1000), (13, 0, 0x1008), (1, 1, 0x1040)]
        {
            symbols.extend(name.to_le_bytes());
            symbols.extend([0, 0]);
            symbols.extend(section.to_le_bytes());
            symbols.extend(value.to_le_bytes());
            symbols.extend([0; 8]);
        }
        let module =
            ModuleSymbols::parse("m".into(), vec![0x1000..0x2000, 0x8000..0x9000], &symbols, strings);
        assert_eq!(module.containing(0x1010), Some((0x1000, 0x40, "probe")));
        assert_eq!(module.containing(0x1fff), Some((0x1040, 0xfc0, "probe")));
        assert_eq!(module.containing(0x2000), None);
        assert_eq!(module.address("alias"), Some(0x1000));
    }

    /// All symbols name one long string: copies of it would take 64 GiB.
    #[test]
    fn names_take_the_memory_of_their_strings() {
        let mut symbol = [0; SYMBOL_BYTES];
        symbol[6] = 1;
        let symbols = symbol.repeat(1 << 16);
        let mut strings = vec![b'x'; 1 << 20];
        let long = ModuleSymbols::parse("m".into(), vec![0..0x1000, 0x1000..u64::MAX], &symbols, &strings);
        assert_eq!(long.containing(0), None);
        strings[NAME_BYTES - 1] = 0;
        let longest = ModuleSymbols::parse("m".into(), vec![0..0x1000, 0x1000..u64::MAX], &symbols, &strings);
        assert_eq!(longest.containing(0).map(|(_, _, name)| name.len()), Some(NAME_BYTES - 1));
    }
}
