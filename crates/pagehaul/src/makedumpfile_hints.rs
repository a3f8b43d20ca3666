//! Equivalents of makedumpfile's options, for error messages.

/// What to write instead of an option of makedumpfile.
pub(crate) fn instead_of(option: &str) -> Option<&'static str> {
    Some(match option.split(' ').next().unwrap_or(option) {
        "--compress" => "-c zlib",
        "-l" => "-c lzo",
        "-p" => "-c snappy",
        "-z" => "-c zstd",
        "-E" => "-f elf",
        "-F" => "`-` as the output",
        "-D" | "--message-level" => "-v, or -q for errors only",
        "--num-threads" => "-t N; the default is every CPU",
        "--split" => "several outputs: `pagehaul capture /proc/vmcore /disk1/part /disk2/part`",
        "-R" | "--reassemble" => "`pagehaul convert`, which takes parts and flattened dumps",
        "--dump-dmesg" => "`pagehaul dmesg`",
        "--mem-usage" => "`pagehaul capture --dry-run`",
        "--check-params" => "`pagehaul capture --dry-run`, which reads the source",
        "-x" | "-i" => "none is needed; VMCOREINFO in the dump is enough",
        "--cyclic-buffer" | "--non-cyclic" | "--non-mmap" => {
            "none is needed; memory is bounded at any size of machine"
        }
        "-X" | "--xen-syms" | "--xen-vmcoreinfo" | "--config" | "--eppic" | "--sadump" => {
            "none; pagehaul does not do this (README, \"When not to use it\")"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_known_as_clap_names_them() {
        assert_eq!(instead_of("-l"), Some("-c lzo"));
        assert_eq!(instead_of("--compress <CODEC[:LEVEL]>"), Some("-c zlib"));
        assert_eq!(instead_of("--no-such-option"), None);
    }
}
