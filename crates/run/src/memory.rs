//! Sizes in files of `/proc`.

use std::fs;
use std::path::Path;

/// Bytes in a line such as `MemAvailable:   65128 kB`, of a text such as `/proc/meminfo`; `name` is its first word.
pub fn bytes_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// Does the same for a file.
pub fn bytes_in(path: impl AsRef<Path>, name: &str) -> Option<u64> {
    bytes_of(&fs::read_to_string(path).ok()?, name)
}

/// Bytes that can be allocated without swapping.
pub fn available() -> Option<u64> {
    bytes_in("/proc/meminfo", "MemAvailable:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_found_by_name() {
        let text = "MemTotal: 9 kB\nMemAvailable:       4 kB\nHugePages_Total: 7\n";
        assert_eq!(bytes_of(text, "MemAvailable:"), Some(4096));
        assert_eq!([bytes_of(text, "MemFree:"), bytes_of(text, "HugePages_Total:")], [None; 2]);
        assert!(available().is_some_and(|bytes| bytes > 0));
    }
}
