//! Symbols of one loaded module.

use std::ops::Range;

/// Bytes of an ELF symbol (`Elf64_Sym`).
pub const SYMBOL_BYTES: usize = 24;

/// The symbol table that the kernel keeps of a module (`struct mod_kallsyms`).
#[derive(Debug, Clone, Default)]
pub struct ModuleSymbols {
    name: String,
    ranges: Vec<Range<u64>>,
    /// Address and name, by address.
    symbols: Vec<(u64, String)>,
}

impl ModuleSymbols {
    /// Reads the table. `symbols` are ELF symbols, `strings` their names; `ranges` are the module's memory.
    pub fn parse(name: String, ranges: Vec<Range<u64>>, symbols: &[u8], strings: &[u8]) -> Self {
        let mut found: Vec<(u64, String)> = symbols
            .as_chunks::<SYMBOL_BYTES>()
            .0
            .iter()
            .filter_map(|symbol| {
                let word = |at: usize| symbol.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word));
                let section = symbol.get(6..)?.first_chunk().map(|word| u16::from_le_bytes(*word))?;
                let value = symbol.get(8..)?.first_chunk().map(|word| u64::from_le_bytes(*word))?;
                let name = strings.get(word(0)? as usize..)?.split(|byte| *byte == 0).next()?;
                // As `find_kallsyms_symbol` skips them: undefined, unnamed, mapping symbols, padding.
                let skipped = section == 0
                    || name.is_empty()
                    || name.starts_with(b".L")
                    || name.starts_with(b"$")
                    || name.starts_with(b"__pfx_");
                (!skipped).then(|| (value, String::from_utf8_lossy(name).into_owned()))
            })
            .collect();
        // Stable: of several at one address the first in the table counts.
        found.sort_by_key(|(address, _)| *address);
        Self { name, ranges, symbols: found }
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
        let (start, name) = self.symbols.get(first).filter(|(start, _)| range.contains(start))?;
        let end = self.symbols.get(at + 1).map_or(range.end, |(next, _)| (*next).min(range.end));
        Some((*start, end - start, name))
    }

    /// Returns the address of a symbol.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.symbols.iter().find(|(_, known)| known == name).map(|(address, _)| *address)
    }
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
}
