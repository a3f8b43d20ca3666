//! Where everything stands in a core: headers and notes, then the mappings in the order of their addresses.

use std::collections::HashMap;
use std::fs;
use std::ops::Range;

use crate::PAGE;
use crate::elf::{self, Load};
use crate::filter::{self, Kinds};
use crate::mapping::Mapping;
use crate::procfs::Pid;

/// What is known of where a mapping's contents are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Private memory without a file: only what its page tables hold exists.
    Anonymous,
    /// Huge pages: likewise.
    Huge,
    /// Shared memory: in the file's pages, whether this process has touched them or not.
    Shared,
    /// A file's, or changed from it: all of it.
    File,
}

/// A mapping of which something is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Addresses stored.
    pub(crate) addresses: Range<u64>,
    /// Where they start in the core.
    pub(crate) offset: u64,
    pub(crate) content: Content,
    /// Which of the process's mappings it is.
    pub(crate) mapping: usize,
}

/// A core's layout.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Headers and notes; as long as the first segment's offset.
    pub(crate) head: Vec<u8>,
    pub(crate) segments: Vec<Segment>,
    /// Bytes of the whole core.
    pub(crate) size: u64,
    /// Bytes of mappings, and of those that are left out by kind.
    pub(crate) mapped: u64,
    pub(crate) left_out: u64,
}

/// Bytes of each mapping that belong in the core.
pub(crate) fn select(pid: Pid, mappings: &[Mapping], kinds: Kinds) -> Vec<u64> {
    // Files are mapped in several pieces: look once at each.
    let mut dax: HashMap<u64, bool> = HashMap::new();
    mappings
        .iter()
        .map(|mapping| {
            let mut is_dax = || is_dax(pid, mapping);
            filter::dumped(
                mapping,
                kinds,
                || *dax.entry(mapping.inode).or_insert_with(&mut is_dax),
                || is_elf(pid, mapping),
            )
        })
        .collect()
}

/// Whether a mapped file is on DAX, where the system lets us look.
fn is_dax(pid: Pid, mapping: &Mapping) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    let found = statx(CWD, mapping.link(pid), AtFlags::empty(), StatxFlags::TYPE);
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::DAX))
}

/// Whether the first page of a mapping is an ELF file's: what the kernel goes by where a file is not executable. Reading
/// the file, not the memory, keeps this out of the way of a process that runs.
fn is_elf(pid: Pid, mapping: &Mapping) -> bool {
    use std::os::unix::fs::FileExt;
    let mut magic = [0; 4];
    let path = mapping.link(pid);
    let file = fs::File::open(path).or_else(|_| {
        use std::os::unix::ffi::OsStrExt;
        let mut path = format!("/proc/{pid}/root").into_bytes();
        path.extend(&mapping.name);
        let meta = fs::metadata(std::ffi::OsStr::from_bytes(&path))?;
        if !meta.is_file() {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        fs::File::open(std::ffi::OsStr::from_bytes(&path))
    });
    file.is_ok_and(|file| file.read_exact_at(&mut magic, 0).is_ok()) && magic == *b"\x7fELF"
}

/// Lays a core out. `stored` has the bytes wanted of each mapping.
pub(crate) fn lay_out(mappings: &[Mapping], stored: &[u64], notes: &[u8], incomplete: bool) -> Layout {
    let start = elf::notes_offset(mappings.len()) + notes.len() as u64;
    let mut offset = start.next_multiple_of(PAGE);
    let mut loads = Vec::with_capacity(mappings.len());
    let mut segments = Vec::new();
    for (index, (mapping, &stored)) in mappings.iter().zip(stored).enumerate() {
        let bit = |set: bool, bit: u32| if set { bit } else { 0 };
        loads.push(Load {
            offset,
            address: mapping.range.start,
            stored,
            size: mapping.len(),
            flags: bit(mapping.read, 4) | bit(mapping.write, 2) | bit(mapping.execute, 1),
        });
        if stored > 0 {
            let addresses = mapping.range.start..mapping.range.start + stored;
            segments.push(Segment { addresses, offset, content: content(mapping), mapping: index });
            offset += stored;
        }
    }
    let mut head = elf::headers(&loads, notes.len() as u64, incomplete);
    head.extend(notes);
    head.resize(start.next_multiple_of(PAGE) as usize, 0);
    let mapped = mappings.iter().map(Mapping::len).sum();
    let left_out = mapped - stored.iter().sum::<u64>();
    Layout { head, segments, size: offset, mapped, left_out }
}

fn content(mapping: &Mapping) -> Content {
    if mapping.has(b"ht") {
        Content::Huge
    } else if mapping.is_shared() {
        Content::Shared
    } else if mapping.has_file() || mapping.name == b"[vdso]" {
        Content::File
    } else {
        Content::Anonymous
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_follow_the_head_without_gaps() {
        let mapping = |start: u64, pages: u64| Mapping {
            range: start..start + pages * PAGE,
            read: true,
            ..Mapping::default()
        };
        let mappings = [mapping(0x1000, 4), mapping(0x8000, 2), mapping(0x20000, 1)];
        let layout = lay_out(&mappings, &[4 * PAGE, 0, PAGE], &[1; 100], false);
        assert_eq!(layout.head.len() as u64, PAGE);
        assert_eq!(layout.segments.len(), 2);
        assert_eq!(layout.segments[0].offset, PAGE);
        assert_eq!(layout.segments[1].offset, 5 * PAGE);
        assert_eq!((layout.size, layout.mapped, layout.left_out), (6 * PAGE, 7 * PAGE, 2 * PAGE));
        let headers = elf::parse(|at, len| Ok::<_, ()>(layout.head[at as usize..][..len].to_vec()));
        let headers = headers.unwrap().unwrap();
        assert_eq!(headers.loads.len(), 3);
        assert_eq!((headers.loads[1].stored, headers.loads[1].size), (0, 2 * PAGE));
        assert_eq!(headers.notes, (elf::notes_offset(3), 100));
    }
}
