//! Which mappings a core holds: the rules of `/proc/PID/coredump_filter` (core(5)), with kinds included and excluded.

use std::fmt;
use std::str::FromStr;

use crate::mapping::Mapping;
use crate::procfs;
use crate::units::Pid;
use crate::units::page_size;

/// A kind of mapping: the bits of `coredump_filter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Private memory without a file, or written to since it was mapped.
    AnonPrivate = 0,
    /// Shared memory without a name: MAP_SHARED without a file, memfd, System V.
    AnonShared = 1,
    /// Private mappings of files.
    FilePrivate = 2,
    /// Shared mappings of files.
    FileShared = 3,
    /// The first page of mapped ELF files, which holds their build ID.
    ElfHeaders = 4,
    /// Private huge pages.
    HugePrivate = 5,
    /// Shared huge pages.
    HugeShared = 6,
    /// Private DAX mappings.
    DaxPrivate = 7,
    /// Shared DAX mappings.
    DaxShared = 8,
}

/// A set of kinds, as `coredump_filter` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kinds(u16);

impl Kinds {
    /// No kind.
    pub const NONE: Self = Self(0);
    /// The kernel's default: 0x33.
    pub(crate) const DEFAULT: Self = Self(0x33);

    /// Names, each for one kind or several.
    const NAMES: [(&str, u16); 15] = [
        ("anon-private", 1 << 0),
        ("anon-shared", 1 << 1),
        ("file-private", 1 << 2),
        ("file-shared", 1 << 3),
        ("elf-headers", 1 << 4),
        ("huge-private", 1 << 5),
        ("huge-shared", 1 << 6),
        ("dax-private", 1 << 7),
        ("dax-shared", 1 << 8),
        ("anonymous", 0b0_0000_0011),
        ("shared", 0b1_0100_1010),
        ("file", 0b0_0000_1100),
        ("huge", 0b0_0110_0000),
        ("dax", 0b1_1000_0000),
        ("all", 0b1_1111_1111),
    ];

    /// Whether `kind` is in it.
    pub fn has(self, kind: Kind) -> bool {
        self.0 >> kind as u8 & 1 == 1
    }

    /// What is in one or the other.
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in this, but not in the other.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// What a process's `coredump_filter` says; the default where there is none (kernels without ELF cores).
    pub(crate) fn of_process(pid: Pid) -> Self {
        let text = procfs::read_text(pid, "coredump_filter").unwrap_or_default();
        u16::from_str_radix(text.trim(), 16).map_or(Self::DEFAULT, |bits| Self(bits & 0x1ff))
    }
}

impl FromStr for Kinds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').try_fold(Self::NONE, |kinds, name| {
            let found = Self::NAMES.iter().find(|(known, _)| *known == name.trim());
            found.map(|(_, bits)| kinds.with(Self(*bits))).ok_or_else(|| {
                let known: Vec<&str> = Self::NAMES.iter().map(|(name, _)| *name).collect();
                format!("{name:?} is not a kind of mapping; expected {}", known.join(", "))
            })
        })
    }
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = Self::NAMES[..9].iter().filter(|(_, bits)| self.0 & bits != 0).map(|(name, _)| *name);
        let names: Vec<&str> = names.collect();
        f.write_str(if names.is_empty() { "none" } else { "" })?;
        f.write_str(&names.join(","))
    }
}

/// Bytes of a mapping, from its start, that belong in a core. The kernel's `vma_dump_size()` (fs/coredump.c) decides
/// the same way; `is_dax` and `is_elf` say what smaps does not.
pub(crate) fn dumped(
    mapping: &Mapping,
    kinds: Kinds,
    is_dax: impl FnOnce() -> bool,
    is_elf: impl FnOnce() -> bool,
) -> u64 {
    let whole = |wanted: bool| if wanted { mapping.len() } else { 0 };
    // The kernel's own pages without which a debugger cannot unwind out of system calls.
    if mapping.name == b"[vdso]" {
        return mapping.len();
    }
    // [vvar] and other pages of devices: never of the process.
    if mapping.has(b"dd") || mapping.has(b"io") || mapping.name.starts_with(b"[vvar") {
        return 0;
    }
    let by_sharing = |private, shared| whole(kinds.has(if mapping.is_shared() { shared } else { private }));
    if mapping.has_file() && is_dax() {
        return by_sharing(Kind::DaxPrivate, Kind::DaxShared);
    }
    if mapping.has(b"ht") {
        return by_sharing(Kind::HugePrivate, Kind::HugeShared);
    }
    if mapping.is_shared() {
        return whole(kinds.has(if mapping.is_deleted() { Kind::AnonShared } else { Kind::FileShared }));
    }
    let written = mapping.anonymous > 0 || mapping.swapped > 0;
    if written && kinds.has(Kind::AnonPrivate) {
        return mapping.len();
    }
    if !mapping.has_file() {
        // Never written to: it reads as zeros, if it may be read.
        return 0;
    }
    if kinds.has(Kind::FilePrivate) {
        return mapping.len();
    }
    let has_header = kinds.has(Kind::ElfHeaders) && mapping.offset == 0 && mapping.read && is_elf();
    if has_header { page_size() } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(name: &str, inode: u64, anonymous: u64, flags: &[[u8; 2]]) -> Mapping {
        Mapping {
            range: 0x10000..0x20000,
            read: true,
            inode,
            name: name.into(),
            anonymous,
            flags: flags.to_vec(),
            ..Mapping::default()
        }
    }

    /// Bytes of a mapping with these kinds, as neither DAX nor ELF.
    fn plain(mapping: &Mapping, kinds: &str) -> u64 {
        dumped(mapping, kinds.parse().unwrap(), || false, || false)
    }

    #[test]
    fn kinds_have_names_and_bits() {
        assert_eq!("anonymous,elf-headers,huge-private".parse::<Kinds>(), Ok(Kinds::DEFAULT));
        assert_eq!(Kinds::DEFAULT.to_string(), "anon-private,anon-shared,elf-headers,huge-private");
        assert_eq!(Kinds::NONE.to_string(), "none");
        assert!(
            "anon,oops".parse::<Kinds>().unwrap_err().contains("oops") || "oops".parse::<Kinds>().is_err()
        );
        let all: Kinds = "all".parse().unwrap();
        assert!(!all.without("dax".parse().unwrap()).has(Kind::DaxShared));
    }

    #[test]
    fn each_kind_decides_over_its_mappings() {
        let heap = mapping("[heap]", 0, 4096, &[]);
        let shm = mapping("/memfd:x (deleted)", 5, 0, &[*b"sh"]);
        let file = mapping("/var/db", 5, 0, &[*b"sh"]);
        let data = mapping("/lib/libc.so", 5, 4096, &[]);
        let text = mapping("/lib/libc.so", 5, 0, &[]);
        let huge = mapping("/anon_hugepage (deleted)", 5, 0, &[*b"ht"]);
        for (mapping, kind) in [
            (&heap, "anon-private"),
            (&shm, "anon-shared"),
            (&file, "file-shared"),
            (&data, "anon-private"),
            (&text, "file-private"),
            (&huge, "huge-private"),
        ] {
            assert_eq!(plain(mapping, kind), 0x10000, "{kind}");
            let others = "all".parse::<Kinds>().unwrap().without(kind.parse().unwrap());
            let others =
                if kind == "anon-private" { others.without("file".parse().unwrap()) } else { others };
            assert_eq!(dumped(mapping, others, || false, || false), 0, "without {kind}");
        }
        assert_eq!(dumped(&file, "dax-shared".parse().unwrap(), || true, || false), 0x10000);
        assert_eq!(dumped(&file, "file".parse().unwrap(), || true, || false), 0);
        assert_eq!(dumped(&text, "elf-headers".parse().unwrap(), || false, || true), page_size());
    }

    #[test]
    fn what_must_not_be_dumped_is_not() {
        let secret = mapping("[heap]", 0, 4096, &[*b"dd"]);
        let device = mapping("/dev/fb0", 5, 0, &[*b"sh", *b"io"]);
        let untouched = mapping("", 0, 0, &[]);
        let vdso = mapping("[vdso]", 0, 0, &[*b"dd"]);
        assert_eq!(plain(&secret, "all"), 0);
        assert_eq!(plain(&device, "all"), 0);
        assert_eq!(plain(&untouched, "all"), 0);
        assert_eq!(dumped(&vdso, Kinds::NONE, || false, || false), 0x10000);
    }
}
