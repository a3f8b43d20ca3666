use std::fmt::Write;
use std::sync::OnceLock;

/// Names of the kernel's functions by address.
#[derive(Debug, Clone, Default)]
pub struct Symbols {
    text: String,
    /// Addresses and where their lines are in `text`, sorted; made when first needed, since the whole list has 200,000.
    table: OnceLock<Vec<(u64, usize)>>,
}

impl Symbols {
    /// Takes the text of `/proc/kallsyms`.
    pub fn from_kallsyms(text: String) -> Self {
        Self { text, table: OnceLock::new() }
    }

    /// The text it was made from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The part of `text` that names these addresses.
    pub fn select(text: &str, addresses: &std::collections::BTreeSet<u64>) -> Self {
        let all = Self::from_kallsyms(text.to_owned());
        let mut selected = String::new();
        for &address in addresses {
            if let Some(name) = all.name(address) {
                // Writing to a string cannot fail.
                let _ = writeln!(selected, "{address:016x} t {name}");
            }
        }
        Self::from_kallsyms(selected)
    }

    /// The function that begins at an address.
    pub fn name(&self, address: u64) -> Option<&str> {
        let table = self.table.get_or_init(|| {
            let mut offset = 0;
            let mut table = Vec::new();
            for line in self.text.split_inclusive('\n') {
                let address = line.split(' ').next().and_then(|word| u64::from_str_radix(word, 16).ok());
                // Addresses are zero for those who may not see them.
                if let Some(address @ 1..) = address {
                    table.push((address, offset));
                }
                offset += line.len();
            }
            table.sort_unstable();
            table
        });
        let at = table.partition_point(|&(start, _)| start < address);
        let &(_, offset) = table.get(at).filter(|&&(start, _)| start == address)?;
        let line = self.text.get(offset..)?.lines().next()?;
        line.split([' ', '\t']).nth(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_address() {
        let text = "ffffffff81000010 t second\nffffffff81000000 T first\n0000000000000000 t hidden\nffffffffc0000000 t third\t[module]\nnonsense\n";
        let symbols = Symbols::from_kallsyms(text.into());
        assert_eq!(symbols.name(0xffff_ffff_8100_0000), Some("first"));
        assert_eq!(symbols.name(0xffff_ffff_8100_0010), Some("second"));
        assert_eq!(symbols.name(0xffff_ffff_c000_0000), Some("third"));
        assert_eq!(symbols.name(0xffff_ffff_8100_0001), None);
        assert_eq!(symbols.name(0), None);
        let selected = Symbols::select(text, &[0xffff_ffff_8100_0010, 5].into());
        assert_eq!(selected.text(), "ffffffff81000010 t second\n");
    }
}
