//! Functions by address, for events that carry addresses within them.

/// The kernel's functions, sorted by address.
#[derive(Debug, Default)]
pub struct Names(Vec<(u64, String)>);

impl Names {
    /// Takes lines as in `/proc/kallsyms`.
    pub fn parse(kallsyms: &str) -> Self {
        let entry = |line: &str| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let (kind, name) = (words.next()?, words.next()?);
            // Trampolines and BPF programs lie among the modules: what follows one of them is not part of it.
            if words.next().is_some_and(|owner| owner.starts_with("[__builtin__") || owner == "[bpf]") {
                return None;
            }
            // Addresses are zero for those who may not see them.
            (address != 0 && matches!(kind, "t" | "T" | "w" | "W")).then(|| (address, name.to_owned()))
        };
        let mut list: Vec<_> = kallsyms.lines().filter_map(entry).collect();
        list.sort();
        Self(list)
    }

    /// The function an address is in: ftrace's are a few bytes behind the function's begin.
    pub fn of(&self, address: u64) -> Option<&str> {
        let after = self.0.partition_point(|(start, _)| *start <= address);
        let (start, name) = self.0.get(after.checked_sub(1)?)?;
        // Farther than any function is long: a part that the list leaves out.
        (address - start < 1 << 16).then_some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_within_functions_are_theirs() {
        let names = Names::parse(
            "ffffffff81000100 T b\nffffffff81000000 t a\n0 t hidden\nffffffff81000104 d data\nx",
        );
        assert_eq!(names.of(0xffff_ffff_8100_0004), Some("a"));
        assert_eq!(names.of(0xffff_ffff_8100_0104), Some("b"));
        assert_eq!(names.of(0xffff_ffff_80ff_ffff), None);
        assert_eq!(names.of(0xffff_ffff_a100_0000), None);
    }
}
