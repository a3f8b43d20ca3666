use std::fmt::Write;
use std::sync::OnceLock;

/// The kernel's functions by address.
#[derive(Debug, Clone, Default)]
pub struct Symbols {
    text: String,
    /// Addresses and the offsets of their lines in `text`, sorted. Built on first use: the whole list has 200,000 entries.
    table: OnceLock<Vec<(u64, usize)>>,
}

impl Symbols {
    /// Takes the text of `/proc/kallsyms`.
    pub fn from_kallsyms(text: String) -> Self {
        Self { text, table: OnceLock::new() }
    }

    /// Reads `/proc/kallsyms` of the running kernel; empty if it cannot be read.
    pub fn of_kernel() -> Self {
        Self::from_kallsyms(std::fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the functions that start at one of `addresses`.
    pub fn select(&self, addresses: &std::collections::BTreeSet<u64>) -> Self {
        let mut selected = String::new();
        for &address in addresses {
            if let Some(name) = self.name(address) {
                // Writing to a string cannot fail.
                let _ = writeln!(selected, "{address:016x} t {name}");
            }
        }
        Self::from_kallsyms(selected)
    }

    /// Iterates over the names of all functions, in the order of the text.
    pub fn functions(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter_map(function).map(|(_, name)| name)
    }

    /// Returns the function that starts at `address`.
    pub fn name(&self, address: u64) -> Option<&str> {
        self.last_up_to(address).filter(|&(start, _)| start == address).map(|(_, name)| name)
    }

    /// Returns the function that contains `address`: addresses of ftrace are a few bytes past the function's start.
    pub fn containing(&self, address: u64) -> Option<&str> {
        // No function is longer; a farther one means that the list lacks the right one.
        self.last_up_to(address).filter(|&(start, _)| address - start < 1 << 16).map(|(_, name)| name)
    }

    /// Returns the last function that starts at or before `address`, with its start.
    fn last_up_to(&self, address: u64) -> Option<(u64, &str)> {
        let table = self.table.get_or_init(|| {
            let mut offset = 0;
            let mut table = Vec::new();
            for line in self.text.split_inclusive('\n') {
                // Addresses are zero without the permission to see them.
                if let Some((address @ 1.., _)) = function(line) {
                    table.push((address, offset));
                }
                offset += line.len();
            }
            table.sort_unstable();
            table
        });
        let after = table.partition_point(|&(start, _)| start <= address);
        let &(start, _) = table.get(after.checked_sub(1)?)?;
        // Of several names the first in the list.
        let &(_, offset) = table.get(table.partition_point(|&(earlier, _)| earlier < start))?;
        function(self.text.get(offset..)?.lines().next()?)
    }
}

/// Parses a line of `/proc/kallsyms`: `ADDRESS TYPE NAME [MODULE]`. Returns address and name of a function.
fn function(line: &str) -> Option<(u64, &str)> {
    let mut words = line.split_ascii_whitespace();
    let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
    // Trampolines and BPF programs lie among the modules and have no end: they would swallow the functions that follow.
    let module = words.next().unwrap_or_default();
    if !matches!(kind, "t" | "T" | "w" | "W") || module == "[bpf]" || module.starts_with("[__builtin__") {
        return None;
    }
    Some((u64::from_str_radix(address, 16).ok()?, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "ffffffff81000100 t second\nffffffff81000000 T first\n0000000000000000 t hidden\n\
        ffffffff81000104 d data\nffffffffc0000000 t third\t[module]\nffffffffc0000040 t bpf_prog\t[bpf]\nnonsense\n";

    #[test]
    fn functions_are_found_by_start() {
        let symbols = Symbols::from_kallsyms(TEXT.into());
        assert_eq!(symbols.name(0xffff_ffff_8100_0000), Some("first"));
        assert_eq!(symbols.name(0xffff_ffff_8100_0100), Some("second"));
        assert_eq!(symbols.name(0xffff_ffff_c000_0000), Some("third"));
        assert_eq!(symbols.name(0xffff_ffff_8100_0001), None);
        assert_eq!(symbols.name(0), None);
        assert_eq!(symbols.functions().collect::<Vec<_>>(), ["second", "first", "hidden", "third"]);
        let selected = symbols.select(&[0xffff_ffff_8100_0100, 5].into());
        assert_eq!(selected.text(), "ffffffff81000100 t second\n");
    }

    #[test]
    fn functions_are_found_by_an_address_inside() {
        let symbols = Symbols::from_kallsyms(TEXT.into());
        assert_eq!(symbols.containing(0xffff_ffff_8100_0004), Some("first"));
        assert_eq!(symbols.containing(0xffff_ffff_8100_0104), Some("second"));
        assert_eq!(symbols.containing(0xffff_ffff_c000_0044), Some("third"));
        assert_eq!(symbols.containing(0xffff_ffff_80ff_ffff), None);
        assert_eq!(symbols.containing(0xffff_ffff_a100_0000), None);
    }
}
