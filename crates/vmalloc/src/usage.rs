//! The present state of the vmalloc space.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;

use crate::areas::{Area, AreaKind, Areas};
use crate::error::VmallocError;

/// The areas of the vmalloc space at one time.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Usage {
    /// Size of the address space in KiB: `VmallocTotal`.
    pub total_kib: u64,
    /// KiB used by vmalloc: `VmallocUsed`. Includes neither device mappings nor areas that are freed but not
    /// purged.
    pub used_kib: u64,
    /// Areas and bytes by kind.
    pub kinds: BTreeMap<&'static str, AreaTotal>,
    /// By allocating function, largest first.
    pub callers: Vec<NamedTotal>,
    /// Bytes of a page.
    pub page_size: u64,
    /// Pages by NUMA node.
    pub nodes: BTreeMap<u32, u64>,
    /// The address range in use, unless the kernel hashes addresses.
    pub space: Option<Space>,
}

/// Number and size of areas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct AreaTotal {
    /// Number of areas.
    pub areas: u64,
    /// Bytes of address space, guard pages included.
    pub bytes: u64,
}

/// The areas of a function or task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NamedTotal {
    /// The function or task.
    pub name: String,
    /// Its areas.
    #[serde(flatten)]
    pub total: AreaTotal,
}

/// The address range in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Space {
    /// Lowest address in use.
    pub first: u64,
    /// One past the highest address in use.
    pub end: u64,
    /// Bytes of the largest gap between two areas.
    pub largest_gap: u64,
    /// Number of gaps.
    pub gaps: u64,
    /// Bytes above the highest area, according to `VmallocTotal`.
    pub above: u64,
}

impl Usage {
    /// Reads the state of the running kernel.
    ///
    /// # Errors
    /// [`VmallocError::Proc`] if a file cannot be read, usually for lack of root.
    pub fn read() -> Result<Self, VmallocError> {
        let read = |path: &'static str, hint: &'static str| {
            std::fs::read_to_string(path).map_err(|source| VmallocError::Proc { path, source, hint })
        };
        let info = match read("/proc/vmallocinfo", "; it is for root") {
            Err(VmallocError::Proc { path, source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                let hint = ": this kernel was built without CONFIG_MMU or /proc is not mounted";
                return Err(VmallocError::Proc { path, source, hint });
            }
            other => other?,
        };
        let page_size = rustix::param::page_size() as u64;
        Ok(Self::new(&Areas::parse(&info)?, &read("/proc/meminfo", "")?, page_size))
    }

    /// Evaluates a list of areas and the text of `/proc/meminfo` of a machine with pages of `page_size` bytes.
    pub fn new(areas: &Areas, meminfo: &str, page_size: u64) -> Self {
        let total_kib = field(meminfo, "VmallocTotal");
        let mut usage =
            Self { total_kib, page_size, used_kib: field(meminfo, "VmallocUsed"), ..Self::default() };
        let mut callers: BTreeMap<&str, AreaTotal> = BTreeMap::new();
        for area in &areas.list {
            usage.kinds.entry(area.kind.name()).or_default().add(area.size);
            if area.kind != AreaKind::Unpurged {
                callers.entry(area.caller.as_deref().unwrap_or("(unknown)")).or_default().add(area.size);
            }
            for (node, pages) in &area.nodes {
                let sum = usage.nodes.entry(*node).or_default();
                *sum = sum.saturating_add(*pages);
            }
        }
        usage.callers =
            callers.into_iter().map(|(name, total)| NamedTotal { name: name.to_owned(), total }).collect();
        usage.callers.sort_by_key(|caller| std::cmp::Reverse(caller.total.bytes));
        usage.space = areas.by_address().and_then(|sorted| space(&sorted, total_kib));
        usage
    }

    /// Returns the areas of a kind.
    pub fn kind(&self, kind: AreaKind) -> AreaTotal {
        self.kinds.get(kind.name()).copied().unwrap_or_default()
    }
}

impl AreaTotal {
    /// Adds an area.
    pub(crate) fn add(&mut self, bytes: u64) {
        *self += Self { areas: 1, bytes };
    }
}

impl std::ops::AddAssign for AreaTotal {
    fn add_assign(&mut self, other: Self) {
        self.areas += other.areas;
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

/// KASLR moves the vmalloc space in steps of 1 GiB; the first area is at its start.
const BEGIN_STEP: u64 = 1 << 30;

fn space(sorted: &[&Area], total_kib: u64) -> Option<Space> {
    let first = sorted.first()?.start;
    let total = total_kib.saturating_mul(1024);
    let limit = (first & !(BEGIN_STEP - 1)).saturating_add(total);
    let mut space = Space { first, end: first, largest_gap: 0, gaps: 0, above: 0 };
    // Modules have their own address range, far above.
    for area in sorted.iter().filter(|area| area.start < limit) {
        let gap = area.start.saturating_sub(space.end);
        space.gaps += u64::from(gap > 0);
        space.largest_gap = space.largest_gap.max(gap);
        space.end = space.end.max(area.start.saturating_add(area.size));
    }
    space.above = limit.saturating_sub(space.end);
    Some(space)
}

/// Returns the number in a line `NAME: 123 kB`; 0 if missing.
pub(crate) fn field(text: &str, name: &str) -> u64 {
    let value =
        |line: &str| line.strip_prefix(name)?.strip_prefix(':')?.split_whitespace().next()?.parse().ok();
    text.lines().find_map(value).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_gaps_are_right() {
        let text = "\
0xffffc90000000000-0xffffc90000005000 20480 a+0x1/0x2 pages=4 vmalloc N0=4
0xffffc90000010000-0xffffc90000012000 8192 b+0x1/0x2 ioremap
0xffffc90000006000-0xffffc9000000b000 20480 a+0x9/0xa pages=4 vmalloc N0=1 N1=3
0xffffc90000012000-0xffffc90000013000 4096 unpurged vm_area
0xffffffffc0000000-0xffffffffc0002000 8192 c+0x9/0xa pages=1 vmalloc N0=1
";
        let meminfo = "MemTotal: 1 kB\nVmallocTotal:   1024 kB\nVmallocUsed:  32 kB\nVmallocChunk: 0 kB\n";
        let usage = Usage::new(&Areas::parse(text).unwrap(), meminfo, 4096);
        assert_eq!((usage.total_kib, usage.used_kib), (1024, 32));
        assert_eq!(usage.callers[0].name, "a");
        assert_eq!(usage.callers[0].total, AreaTotal { areas: 2, bytes: 40_960 });
        assert_eq!(usage.callers.len(), 3);
        assert_eq!(usage.kind(AreaKind::Unpurged), AreaTotal { areas: 1, bytes: 4096 });
        assert_eq!(usage.nodes, [(0, 6), (1, 3)].into());
        let space = usage.space.unwrap();
        assert_eq!((space.largest_gap, space.gaps, space.above), (0x5000, 2, (1 << 20) - 0x13000));
    }

    #[test]
    fn a_real_kernels_files_are_understood() {
        let text = include_str!("../tests/data/vmallocinfo-6.12.txt");
        let areas = Areas::parse(text).unwrap();
        assert!(!areas.hashed);
        let usage = Usage::new(&areas, include_str!("../tests/data/meminfo-6.12.txt"), 4096);
        let count = |word: &str| text.lines().filter(|line| line.contains(word)).count() as u64;
        assert_eq!(usage.kind(AreaKind::Vmalloc).areas, count(" vmalloc"));
        assert_eq!(usage.kind(AreaKind::Ioremap).areas, count(" ioremap"));
        assert_eq!(usage.kind(AreaKind::Unpurged).areas, count("unpurged vm_area"));
        assert_eq!(usage.kind(AreaKind::Other).areas, 0);
        assert_eq!(usage.callers.iter().map(|caller| caller.total.areas).sum::<u64>(), count("+0x"));
        // Modules lie beyond, and do not count as a distant part of the vmalloc space.
        let space = usage.space.unwrap();
        assert_eq!(usage.total_kib, 34_359_738_367);
        assert!(space.end - space.first < 33 << 40 && space.largest_gap < 32 << 40);
    }

    #[test]
    fn nothing_is_not_an_error() {
        let usage = Usage::new(&Areas::parse("").unwrap(), "", 4096);
        assert!(usage.space.is_none() && usage.callers.is_empty());
    }
}
