//! The mappings of a process, from `/proc/PID/smaps`.

use std::ops::Range;
use std::path::PathBuf;

use crate::error::ProcessError;
use crate::pagemap::Pagemap;
use crate::procfs;
use crate::units::Pid;
use crate::units::{PAGE, page_size};

/// One mapping.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// Addresses, whole pages.
    pub(crate) range: Range<u64>,
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) execute: bool,
    /// Offset in the file in bytes.
    pub(crate) offset: u64,
    /// Inode of the file; 0 for none.
    pub(crate) inode: u64,
    /// Path of the file, "[heap]" and the like, or nothing. Newlines are newlines again.
    pub(crate) name: Vec<u8>,
    /// Bytes in memory.
    pub(crate) resident: u64,
    /// Anonymous bytes in memory.
    pub(crate) anonymous: u64,
    /// Anonymous bytes that are swapped out.
    pub(crate) swapped: u64,
    /// Bytes in memory that other mappings have too: of pages that differ from those on disk, and of others.
    pub(crate) shared_dirty: u64,
    pub(crate) shared_clean: u64,
    /// The two-letter flags the kernel prints, such as "dd" for VM_DONTDUMP.
    pub(crate) flags: Vec<[u8; 2]>,
}

impl Mapping {
    /// Whether it has one of the kernel's flags, by its two letters (proc(5), "VmFlags").
    pub(crate) fn has(&self, flag: &[u8; 2]) -> bool {
        self.flags.contains(flag)
    }

    /// Whether writes go to the file, or to all who share the memory. Not the `s` among the modes: read-only shared
    /// mappings of files have that too, and count as private everywhere in the kernel.
    pub(crate) fn is_shared(&self) -> bool {
        self.has(b"sh")
    }

    /// Returns whether it may share anonymous pages with a parent or child until one of them writes.
    pub(crate) fn has_forked(&self) -> bool {
        let own = self.anonymous > 0 && self.shared_dirty > 0 || !self.has_file() && self.shared_clean > 0;
        !self.is_shared() && (own || self.has(b"ht") && self.shared_dirty > 0)
    }

    /// Returns whether it is the same mapping by what `maps` has. The heap and stacks may have grown.
    fn is_same(&self, now: &Self) -> bool {
        let key = |m: &Self| (m.range.clone(), m.read, m.write, m.execute, m.offset, m.inode);
        key(self) == key(now) && self.name == now.name
    }

    /// Whether there is a file behind it; the kernel's own [vdso] and the like have none.
    pub(crate) fn has_file(&self) -> bool {
        self.inode != 0
    }

    /// Returns whether its file has no name any more, as that of shared anonymous memory, memfd and System V segments.
    pub(crate) fn is_deleted(&self) -> bool {
        self.name.ends_with(b" (deleted)")
    }

    /// Bytes of memory it covers.
    pub(crate) fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// The link in /proc that opens the file behind it.
    pub(crate) fn link(&self, pid: Pid) -> PathBuf {
        procfs::path(pid, &format!("map_files/{:x}-{:x}", self.range.start, self.range.end))
    }
}

/// The mappings of a process through its living thread `tid`, in the order of their addresses.
pub(crate) fn read(pid: Pid, tid: Pid) -> Result<Vec<Mapping>, ProcessError> {
    let name = format!("task/{tid}/smaps");
    let text = procfs::read(pid, &name)?;
    parse(&text)
        .map_err(|line| ProcessError::Format { path: procfs::path(pid, &name), what: format!("line {line}") })
}

/// Reads the mappings of a process without what only smaps has: flags and resident sizes.
pub(crate) fn read_plain(pid: Pid, tid: Pid) -> Result<Vec<Mapping>, ProcessError> {
    let name = format!("task/{tid}/maps");
    let text = procfs::read(pid, &name)?;
    parse(&text)
        .map_err(|line| ProcessError::Format { path: procfs::path(pid, &name), what: format!("line {line}") })
}

/// Reads the mappings of a stopped process, and copies flags and sizes of those that are the same from `before`. The kernel
/// walks all page tables for smaps, which takes 10 ms per GB; `maps` takes none, and only whether mappings that were
/// untouched still are is looked up. Flags of a mapping (madvise's) may be older.
pub(crate) fn read_again(
    pid: Pid,
    tid: Pid,
    before: &[Mapping],
    pagemap: &mut Pagemap,
) -> Result<Vec<Mapping>, ProcessError> {
    let mut mappings = read_plain(pid, tid)?;
    for mapping in &mut mappings {
        let known = before.binary_search_by_key(&mapping.range.start, |known| known.range.start);
        match known.ok().and_then(|index| before.get(index)).filter(|known| known.is_same(mapping)) {
            Some(known) => *mapping = known.clone(),
            None => return read(pid, tid),
        }
        if mapping.anonymous == 0 && mapping.swapped == 0 && !mapping.is_shared() {
            match pagemap.has_own(mapping.range.clone()) {
                Ok(true) => mapping.anonymous = page_size(),
                Ok(false) => {}
                // A kernel that cannot scan.
                Err(_) => return read(pid, tid),
            }
        }
    }
    Ok(mappings)
}

/// Fails with the number of the first invalid line.
pub(crate) fn parse(text: &[u8]) -> Result<Vec<Mapping>, usize> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for (index, line) in text.split(|&byte| byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        // Headers start with a hexadecimal number in small letters, the others with a capital.
        if line.first().is_some_and(u8::is_ascii_uppercase) {
            if let Some(mapping) = mappings.last_mut() {
                property(mapping, line);
            }
        } else {
            mappings.push(header(line).ok_or(index + 1)?);
        }
    }
    // The vsyscall page belongs to the kernel and to no process's memory.
    mappings.retain(|mapping| mapping.range.start < 1 << 63);
    Ok(mappings)
}

fn header(line: &[u8]) -> Option<Mapping> {
    let mut rest = line;
    let mut word = || {
        let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after.strip_prefix(b" ").unwrap_or(after);
        std::str::from_utf8(word).ok()
    };
    let (start, end) = word()?.split_once('-')?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    let range = hex(start)?..hex(end)?;
    if range.is_empty() || !range.start.is_multiple_of(PAGE) || !range.end.is_multiple_of(PAGE) {
        return None;
    }
    let modes = word()?.as_bytes();
    let offset = hex(word()?)?;
    word()?;
    let inode = word()?.parse().ok()?;
    let name = rest.trim_ascii_start();
    Some(Mapping {
        range,
        read: modes.first() == Some(&b'r'),
        write: modes.get(1) == Some(&b'w'),
        execute: modes.get(2) == Some(&b'x'),
        offset,
        inode,
        name: unescape(name),
        ..Mapping::default()
    })
}

fn property(mapping: &mut Mapping, line: &[u8]) {
    let Ok(line) = std::str::from_utf8(line) else { return };
    let Some((key, value)) = line.split_once(':') else { return };
    let kib =
        || value.trim().strip_suffix(" kB").and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) << 10;
    match key {
        "Rss" => mapping.resident = kib(),
        "Anonymous" => mapping.anonymous = kib(),
        "Shared_Dirty" => mapping.shared_dirty += kib(),
        "Shared_Clean" => mapping.shared_clean = kib(),
        // Pages of huge page files are not in Rss, nor among the shared ones.
        "Private_Hugetlb" => mapping.resident += kib(),
        "Shared_Hugetlb" => {
            mapping.resident += kib();
            mapping.shared_dirty += kib();
        }
        "Swap" => mapping.swapped = kib(),
        "VmFlags" => {
            mapping.flags =
                value.split_whitespace().filter_map(|flag| flag.as_bytes().try_into().ok()).collect();
        }
        _ => {}
    }
}

/// Newlines in file names stand as `\012`; nothing else is escaped.
fn unescape(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"\\012") {
            out.push(b'\n');
            rest = after;
        } else {
            out.push(first);
            rest = after;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"\
7f0000000000-7f0000021000 rw-p 00000000 00:00 0 \n\
Size:                132 kB\n\
Rss:                  12 kB\n\
Anonymous:             8 kB\n\
Swap:                  4 kB\n\
VmFlags: rd wr mr mw me dd sd \n\
7f0000100000-7f0000101000 r-xs 00002000 08:01 77    /a b\\012c (deleted)\n\
VmFlags: rd ex sh\n\
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n";

    #[test]
    fn mappings_have_ranges_modes_flags_and_names() {
        let mappings = parse(TEXT).unwrap();
        assert_eq!(mappings.len(), 2);
        let [heap, file] = mappings.as_slice() else { unreachable!() };
        assert_eq!(heap.range, 0x7f00_0000_0000..0x7f00_0002_1000);
        assert_eq!((heap.resident, heap.anonymous, heap.swapped), (12 << 10, 8 << 10, 4 << 10));
        assert!(heap.write && !heap.is_shared() && heap.has(b"dd") && !heap.has(b"ht") && !heap.has_file());
        assert_eq!((file.offset, file.inode), (0x2000, 77));
        assert_eq!(file.name, b"/a b\nc (deleted)");
        assert!(file.is_shared() && file.execute && !file.write && file.is_deleted());
    }

    #[test]
    fn pages_in_common_with_a_child_are_told_from_those_of_files() {
        let forked = |modes: &str, inode: u32, properties: &str| {
            let text = format!(
                "7000-8000 {modes} 0 0:0 {inode}\n{properties}VmFlags: rd{}\n",
                if modes.ends_with('s') { " sh" } else { "" }
            );
            parse(text.as_bytes()).unwrap()[0].has_forked()
        };
        assert!(forked("rw-p", 0, "Shared_Dirty: 4 kB\nAnonymous: 4 kB\n"));
        assert!(forked("rw-p", 7, "Shared_Dirty: 4 kB\nAnonymous: 4 kB\n"));
        assert!(forked("rw-p", 0, "Shared_Clean: 4 kB\nAnonymous: 4 kB\n"));
        assert!(!forked("rw-p", 0, "Private_Dirty: 4 kB\nAnonymous: 4 kB\n"));
        // A file's pages that others map too.
        assert!(!forked("rw-p", 7, "Shared_Clean: 4 kB\nAnonymous: 4 kB\n"));
        assert!(!forked("rw-p", 7, "Shared_Dirty: 4 kB\nAnonymous: 0 kB\n"));
        assert!(!forked("rw-s", 7, "Shared_Dirty: 4 kB\nAnonymous: 4 kB\n"));
        let huge = b"7000-8000 rw-p 0 0:0 9\nShared_Hugetlb: 2048 kB\nVmFlags: rd wr ht\n";
        assert!(parse(huge).unwrap()[0].has_forked());
    }

    #[test]
    fn lines_that_make_no_sense_are_named() {
        assert_eq!(parse(b"7f00-6f00 rw-p 0 0:0 0\n"), Err(1));
        assert_eq!(parse(b"7000-8000 rw-p 0 0:0 0\nRss: 4 kB\nxyz\n"), Err(3));
        assert_eq!(parse(b"7001-8000 rw-p 0 0:0 0\n"), Err(1));
    }

    #[test]
    fn this_process_has_mappings() {
        let me = std::process::id() as Pid;
        let mappings = read(me, me).unwrap();
        assert!(mappings.iter().any(|mapping| mapping.name == b"[stack]" && mapping.write));
        let mut pagemap = Pagemap::open(std::path::Path::new("/proc/self/pagemap")).unwrap();
        let again = read_again(me, me, &mappings, &mut pagemap).unwrap();
        assert!(again.iter().zip(&mappings).filter(|(now, then)| now.flags == then.flags).count() > 5);
        assert!(mappings.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
    }
}
