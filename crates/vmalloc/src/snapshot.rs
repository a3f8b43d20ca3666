//! What there is now.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;

use crate::VmallocError;
use crate::areas::{Area, AreaKind, Areas};

/// The vmalloc space at one time.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Snapshot {
    /// KiB of address space: `VmallocTotal`.
    pub total_kib: u64,
    /// KiB in use by vmalloc itself: `VmallocUsed`. Neither mappings of devices nor areas freed but not purged are in it.
    pub used_kib: u64,
    /// Areas and bytes by kind.
    pub kinds: BTreeMap<&'static str, Sum>,
    /// By the function that asked for them, largest first.
    pub callers: Vec<Caller>,
    /// Pages by NUMA node.
    pub nodes: BTreeMap<u32, u64>,
    /// Where the areas lie, unless the kernel hides it.
    pub space: Option<Space>,
}

/// How many, how large.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Sum {
    /// Areas.
    pub areas: u64,
    /// Bytes of address space, guard pages included.
    pub bytes: u64,
}

/// What a function holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Caller {
    /// Its name.
    pub name: String,
    /// What it holds.
    #[serde(flatten)]
    pub sum: Sum,
}

/// Where areas lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Space {
    /// The lowest address in use.
    pub first: u64,
    /// One past the highest.
    pub end: u64,
    /// Bytes of the largest gap between two areas.
    pub largest_gap: u64,
    /// How many gaps there are.
    pub gaps: u64,
    /// Bytes above the highest area, by `VmallocTotal`.
    pub above: u64,
}

impl Snapshot {
    /// Takes one of the running kernel.
    ///
    /// # Errors
    /// [`VmallocError::Proc`] in one sentence: mostly, root is needed.
    pub fn take() -> Result<Self, VmallocError> {
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
        Ok(Self::of(&Areas::parse(&info)?, &read("/proc/meminfo", "")?))
    }

    /// Of a list of areas and the text of `/proc/meminfo`.
    pub fn of(areas: &Areas, meminfo: &str) -> Self {
        let total_kib = field(meminfo, "VmallocTotal");
        let mut snapshot = Self { total_kib, used_kib: field(meminfo, "VmallocUsed"), ..Self::default() };
        let mut callers: BTreeMap<&str, Sum> = BTreeMap::new();
        for area in &areas.list {
            snapshot.kinds.entry(area.kind.name()).or_default().add(area);
            if area.kind != AreaKind::Unpurged {
                callers.entry(area.caller.as_deref().unwrap_or("(unknown)")).or_default().add(area);
            }
            for (node, pages) in &area.nodes {
                let sum = snapshot.nodes.entry(*node).or_default();
                *sum = sum.saturating_add(*pages);
            }
        }
        snapshot.callers =
            callers.into_iter().map(|(name, sum)| Caller { name: name.to_owned(), sum }).collect();
        snapshot.callers.sort_by_key(|caller| std::cmp::Reverse(caller.sum.bytes));
        snapshot.space = areas.by_address().and_then(|sorted| space(&sorted, total_kib));
        snapshot
    }

    /// Areas of a kind.
    pub fn kind(&self, kind: AreaKind) -> Sum {
        self.kinds.get(kind.name()).copied().unwrap_or_default()
    }
}

impl Sum {
    fn add(&mut self, area: &Area) {
        self.areas += 1;
        self.bytes = self.bytes.saturating_add(area.size);
    }
}

/// KASLR moves the begin of the vmalloc space in steps of 1 GiB, and the first area is at its begin.
const BEGIN_STEP: u64 = 1 << 30;

fn space(sorted: &[&Area], total_kib: u64) -> Option<Space> {
    let first = sorted.first()?.start;
    let total = total_kib.saturating_mul(1024);
    let limit = (first & !(BEGIN_STEP - 1)).saturating_add(total);
    let mut space = Space { first, end: first, largest_gap: 0, gaps: 0, above: 0 };
    // Modules are in a space of their own, far above.
    for area in sorted.iter().filter(|area| area.start < limit) {
        let gap = area.start.saturating_sub(space.end);
        space.gaps += u64::from(gap > 0);
        space.largest_gap = space.largest_gap.max(gap);
        space.end = space.end.max(area.start.saturating_add(area.size));
    }
    space.above = limit.saturating_sub(space.end);
    Some(space)
}

/// The number of a line `NAME: 123 kB`.
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
        let snapshot = Snapshot::of(&Areas::parse(text).unwrap(), meminfo);
        assert_eq!((snapshot.total_kib, snapshot.used_kib), (1024, 32));
        assert_eq!(snapshot.callers[0].name, "a");
        assert_eq!(snapshot.callers[0].sum, Sum { areas: 2, bytes: 40_960 });
        assert_eq!(snapshot.callers.len(), 3);
        assert_eq!(snapshot.kind(AreaKind::Unpurged), Sum { areas: 1, bytes: 4096 });
        assert_eq!(snapshot.nodes, [(0, 6), (1, 3)].into());
        let space = snapshot.space.unwrap();
        assert_eq!((space.largest_gap, space.gaps, space.above), (0x5000, 2, (1 << 20) - 0x13000));
    }

    #[test]
    fn a_real_kernels_files_are_understood() {
        let text = include_str!("../tests/data/vmallocinfo-6.12.txt");
        let areas = Areas::parse(text).unwrap();
        assert!(!areas.hidden);
        let snapshot = Snapshot::of(&areas, include_str!("../tests/data/meminfo-6.12.txt"));
        let count = |word: &str| text.lines().filter(|line| line.contains(word)).count() as u64;
        assert_eq!(snapshot.kind(AreaKind::Vmalloc).areas, count(" vmalloc"));
        assert_eq!(snapshot.kind(AreaKind::Ioremap).areas, count(" ioremap"));
        assert_eq!(snapshot.kind(AreaKind::Unpurged).areas, count("unpurged vm_area"));
        assert_eq!(snapshot.kind(AreaKind::Other).areas, 0);
        assert_eq!(snapshot.callers.iter().map(|caller| caller.sum.areas).sum::<u64>(), count("+0x"));
        // Modules, which lie beyond, do not count as far away parts of the vmalloc space.
        let space = snapshot.space.unwrap();
        assert_eq!(snapshot.total_kib, 34_359_738_367);
        assert!(space.end - space.first < 33 << 40 && space.largest_gap < 32 << 40);
    }

    #[test]
    fn nothing_is_not_an_error() {
        let snapshot = Snapshot::of(&Areas::parse("").unwrap(), "");
        assert!(snapshot.space.is_none() && snapshot.callers.is_empty());
    }
}
