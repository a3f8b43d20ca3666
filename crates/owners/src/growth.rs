//! What grew between two moments of one machine.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use pagehaul_machine::{PageCount, PageSize};
use serde::{Deserialize, Serialize};

use crate::balance::{NOT_KNOWN, UNKNOWN_CACHE};
use crate::report::{Balance, Cgroups, Owner, Row, RowKind};

/// How the sentence begins that each reading of a running kernel has in `missing`. Nothing is lost by it.
const OF_LIVE: &str = "the kernel ran on while";

/// The part of a balance that is compared: what [`Balance`] is written as in JSON can be read again.
#[derive(Debug, Clone, Deserialize)]
pub struct Moment {
    page_size: PageSize,
    #[serde(default)]
    managed: Option<PageCount>,
    rows: Vec<Row>,
    cgroups: Cgroups,
    #[serde(default)]
    missing: Vec<String>,
    /// `None`: of a pagehaul that did not write it.
    #[serde(default)]
    is_whole: Option<bool>,
    #[serde(default)]
    incomplete: bool,
}

impl From<Balance> for Moment {
    fn from(balance: Balance) -> Self {
        let Balance { page_size, managed, rows, cgroups, missing, is_whole, incomplete, .. } = balance;
        Self { page_size, managed, rows, cgroups, missing, is_whole: Some(is_whole), incomplete }
    }
}

/// What changed from one moment to another. What is equal is left out, and the largest changes come first. All numbers are pages.
#[derive(Debug, Clone, Serialize)]
pub struct Growth {
    /// Bytes of a page.
    pub page_size: PageSize,
    /// Pages that the allocator manages, if their number changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed: Option<[Option<PageCount>; 2]>,
    /// Pages of each moment whose struct pages cannot be read.
    pub lost: [PageCount; 2],
    /// Whether struct pages or structures of each moment cannot be read, so that its rows are lower bounds or not known.
    pub damaged: [bool; 2],
    /// Rows, and owners in them.
    pub rows: Vec<RowGrowth>,
    /// Memory cgroups, by the pages that are charged to them and their children.
    pub cgroups: Vec<OwnerGrowth>,
    /// What is missing in each, one sentence each.
    pub missing: [Vec<String>; 2],
}

/// A row that changed or may have, or has owners that did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RowGrowth {
    pub kind: RowKind,
    /// `None`: the moment is damaged, and nothing is known of this row.
    pub before: Option<PageCount>,
    /// The same of the later moment.
    pub after: Option<PageCount>,
    /// Whether `before` and `after` are lower bounds: more pages can be among those that are lost.
    pub at_least: [bool; 2],
    /// Owners that changed. None are listed if those of one moment are not known.
    pub owners: Vec<OwnerGrowth>,
}

/// An owner, or several of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OwnerGrowth {
    pub name: String,
    /// `None`: it is not among the largest owners that were kept, or the moment is damaged, and does not have it.
    pub before: Option<PageCount>,
    /// The same of the later moment.
    pub after: Option<PageCount>,
    /// Whether `before` and `after` are lower bounds.
    pub at_least: [bool; 2],
}

impl RowGrowth {
    /// Returns the difference of the numbers that are known.
    pub fn growth(&self) -> i128 {
        grown(self.before, self.after)
    }
}

impl OwnerGrowth {
    /// Returns the difference of the numbers that are known.
    pub fn growth(&self) -> i128 {
        grown(self.before, self.after)
    }
}

fn grown(before: Option<PageCount>, after: Option<PageCount>) -> i128 {
    signed(after.unwrap_or_default()) - signed(before.unwrap_or_default())
}

impl Moment {
    /// Returns whether struct pages or structures cannot be read. A lost struct page breaks lists and blocks, so that pages which are not
    /// lost change rows, too.
    pub fn is_damaged(&self) -> bool {
        self.lost() > PageCount::ZERO || !self.is_walked()
    }

    /// Returns whether the dump lacks pages.
    pub fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    /// Returns whether no row is left, as the struct pages of all memory are lost.
    pub fn lost_all(&self) -> bool {
        self.is_damaged() && self.rows.iter().all(|row| row.kind == RowKind::Undecided)
    }

    /// Returns whether all structures but struct pages were read.
    fn is_walked(&self) -> bool {
        // Without the field, a sentence that is harmless cannot be told from others.
        self.is_whole.unwrap_or_else(|| self.missing.iter().all(|why| why.starts_with(OF_LIVE)))
    }

    fn row(&self, kind: RowKind) -> Option<&Row> {
        self.rows.iter().find(|row| row.kind == kind)
    }

    /// Returns the pages whose struct pages cannot be read.
    fn lost(&self) -> PageCount {
        self.row(RowKind::Undecided).map_or(PageCount::ZERO, |row| row.pages)
    }

    /// Returns what is known of the pages of a row.
    fn pages(&self, kind: RowKind) -> Known {
        let row = self.row(kind);
        let pages = row.map_or(PageCount::ZERO, |row| row.pages);
        // How much is lost is known.
        if !self.is_damaged() || kind == RowKind::Undecided {
            return Known { pages: Some(pages), at_least: false };
        }
        let least = match kind {
            kind if !is_marked(kind) => PageCount::ZERO,
            // Files whose inodes cannot be read can be shared memory.
            RowKind::File if !self.is_walked() => row.map_or(PageCount::ZERO, |row| {
                row.owners.iter().filter(|owner| owner.file.is_some()).map(|owner| owner.pages).sum()
            }),
            _ => pages,
        };
        // That it has at least nothing says nothing.
        let is_known = least > PageCount::ZERO;
        Known { pages: is_known.then_some(least), at_least: is_known }
    }

    /// Returns the owners of a row; `None` if they are not known.
    fn owners(&self, kind: RowKind) -> Option<Kept<'_>> {
        let row = self.row(kind);
        let owners: Vec<&Owner> = row.map_or_else(Vec::new, |row| row.owners.iter().collect());
        if !self.is_damaged() {
            let all = row.is_none_or(|row| row.owner_count <= row.owners.len());
            return Some(Kept { owners: by_name(&owners), all, at_least: false });
        }
        let has_least: fn(&Owner) -> bool = match kind {
            kind if !is_marked(kind) => return None,
            _ if self.is_walked() => |_: &Owner| true,
            // Which process has a page is found in others' mappings, which can be lost.
            RowKind::Anonymous | RowKind::HugeTlb => return None,
            RowKind::File | RowKind::Shmem => |owner: &Owner| owner.file.is_some(),
            _ => |owner: &Owner| owner.name != NOT_KNOWN && !owner.name.starts_with(UNKNOWN_CACHE),
        };
        let owners: Vec<&Owner> = owners.into_iter().filter(|owner| has_least(owner)).collect();
        Some(Kept { owners: by_name(&owners), all: false, at_least: true })
    }
}

/// Returns whether the pages of a row are those whose own struct pages, or whose heads', say so: such a row loses pages, but never gains
/// any from damage. All others have pages by walks, by counters, or because nothing else has them.
fn is_marked(kind: RowKind) -> bool {
    match kind {
        RowKind::Free
        | RowKind::Unaccepted
        | RowKind::Anonymous
        | RowKind::File
        | RowKind::Shmem
        | RowKind::HugeTlb
        | RowKind::Slab
        | RowKind::PagePool
        | RowKind::Zsmalloc
        | RowKind::Typed
        | RowKind::HwPoison
        | RowKind::Undecided => true,
        // Large kmalloc is a counter's difference until 6.18, and pages of balloons are in part outside of what is managed.
        RowKind::PerCpuLists
        | RowKind::LargeKmalloc
        | RowKind::Vmalloc
        | RowKind::KernelStacks
        | RowKind::PageTables
        | RowKind::KvmTables
        | RowKind::PerCpu
        | RowKind::Pipes
        | RowKind::Sockets
        | RowKind::RingBuffers
        | RowKind::IoUring
        | RowKind::Cma
        | RowKind::Offline
        | RowKind::NoOwner => false,
    }
}

/// What one moment says of a number.
#[derive(Clone, Copy)]
struct Known {
    pages: Option<PageCount>,
    at_least: bool,
}

/// Why two moments cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("they have pages of {} and {} bytes: they are not of one machine", .before.bytes(), .after.bytes())]
pub struct NotComparable {
    before: PageSize,
    after: PageSize,
}

/// Compares two moments.
pub fn growth(before: &Moment, after: &Moment) -> Result<Growth, NotComparable> {
    if before.page_size != after.page_size {
        return Err(NotComparable { before: before.page_size, after: after.page_size });
    }
    let moments = [before, after];
    let damaged = moments.map(Moment::is_damaged);
    let mut rows: Vec<RowGrowth> = RowKind::ALL
        .into_iter()
        .filter_map(|kind| {
            let [old, new] = moments.map(|moment| moment.pages(kind));
            let owners = before.owners(kind).zip(after.owners(kind));
            let row = RowGrowth {
                kind,
                before: old.pages,
                after: new.pages,
                at_least: [old.at_least, new.at_least],
                owners: owners.map_or_else(Vec::new, |(old, new)| changes([old, new], damaged)),
            };
            // A row that one moment does not know, and of which the other has nothing, is left out.
            (row.growth() != 0 || !row.owners.is_empty()).then_some(row)
        })
        .collect();
    rows.sort_by_key(|row| order([row.before, row.after], row.at_least, damaged));
    let cgroups = changes(
        moments.map(|moment| Kept {
            owners: moment
                .cgroups
                .largest
                .iter()
                .filter_map(|cgroup| Some((cgroup.path.as_str(), cgroup.usage?)))
                .collect(),
            // The kernel counts their pages, but can have lost a cgroup.
            all: moment.is_walked()
                && moment.cgroups.count <= moment.cgroups.largest.len()
                && moment.cgroups.largest.iter().all(|cgroup| cgroup.usage.is_some()),
            at_least: false,
        }),
        damaged,
    );
    let managed = [before.managed, after.managed];
    Ok(Growth {
        page_size: after.page_size,
        managed: (managed[0] != managed[1]).then_some(managed),
        lost: moments.map(Moment::lost),
        damaged,
        rows,
        cgroups,
        missing: [before.missing.clone(), after.missing.clone()],
    })
}

/// Orders changes: those of which nothing is known last, the others by size.
fn order(moments: [Option<PageCount>; 2], at_least: [bool; 2], damaged: [bool; 2]) -> (bool, Reverse<u128>) {
    let is_lost = |at: usize| moments[at].is_none() && damaged[at];
    let is_unknown = at_least == [true; 2] || is_lost(0) || is_lost(1);
    (is_unknown, Reverse(grown(moments[0], moments[1]).unsigned_abs()))
}

/// The owners that one moment has.
struct Kept<'a> {
    owners: BTreeMap<&'a str, PageCount>,
    /// Whether there are no more.
    all: bool,
    /// Whether they can have more pages.
    at_least: bool,
}

/// Files that were deleted can have the name of another.
fn by_name<'a>(owners: &[&'a Owner]) -> BTreeMap<&'a str, PageCount> {
    let mut named = BTreeMap::new();
    for owner in owners {
        let pages: &mut PageCount = named.entry(owner.name.as_str()).or_default();
        *pages = PageCount::new(pages.get().saturating_add(owner.pages.get()));
    }
    named
}

/// The owners whose pages changed, by the size of the change. Of one that only one moment kept, while the other left out smaller ones or
/// lost some, the other number is not known.
fn changes(moments: [Kept<'_>; 2], damaged: [bool; 2]) -> Vec<OwnerGrowth> {
    let known = |kept: &Kept<'_>, name: &str| match kept.owners.get(name) {
        Some(pages) => Known { pages: Some(*pages), at_least: kept.at_least },
        None => Known { pages: kept.all.then_some(PageCount::ZERO), at_least: false },
    };
    let [before, after] = &moments;
    let mut names: Vec<&str> = before.owners.keys().chain(after.owners.keys()).copied().collect();
    names.sort_unstable();
    names.dedup();
    let mut changed: Vec<OwnerGrowth> = names
        .into_iter()
        .map(|name| {
            let [old, new] = [known(before, name), known(after, name)];
            OwnerGrowth {
                name: name.into(),
                before: old.pages,
                after: new.pages,
                at_least: [old.at_least, new.at_least],
            }
        })
        .filter(|owner| owner.before != owner.after)
        .collect();
    changed.sort_by_key(|owner| order([owner.before, owner.after], owner.at_least, damaged));
    changed
}

fn signed(pages: PageCount) -> i128 {
    i128::from(pages.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Cgroup, FileDetail};

    fn row(kind: RowKind, pages: u64, owners: &[(&str, u64)], owner_count: usize) -> Row {
        let owner = |(name, pages): &(&str, u64)| Owner {
            name: (*name).into(),
            pages: PageCount::new(*pages),
            ..Owner::default()
        };
        Row { kind, pages: PageCount::new(pages), owners: owners.iter().map(owner).collect(), owner_count }
    }

    fn moment(rows: Vec<Row>) -> Moment {
        Moment {
            page_size: PageSize::KIB_4,
            managed: None,
            rows,
            cgroups: Cgroups::default(),
            missing: Vec::new(),
            is_whole: Some(true),
            incomplete: false,
        }
    }

    fn change(name: &str, before: Option<u64>, after: Option<u64>) -> OwnerGrowth {
        OwnerGrowth {
            name: name.into(),
            before: before.map(PageCount::new),
            after: after.map(PageCount::new),
            at_least: [false; 2],
        }
    }

    /// What is known of a row: both numbers, and whether they are lower bounds. `None`: it is not listed.
    fn of(growth: &Growth, kind: RowKind) -> Option<([Option<u64>; 2], [bool; 2])> {
        let row = growth.rows.iter().find(|row| row.kind == kind)?;
        Some(([row.before, row.after].map(|pages| pages.map(PageCount::get)), row.at_least))
    }

    #[test]
    fn the_largest_changes_come_first() {
        let before = moment(vec![
            row(RowKind::Slab, 10, &[("dentry", 6), ("inode", 4)], 2),
            row(RowKind::Free, 90, &[], 0),
        ]);
        let after = moment(vec![
            row(RowKind::Slab, 70, &[("dentry", 65), ("inode", 5)], 2),
            row(RowKind::Vmalloc, 2, &[("load_module", 2)], 1),
            row(RowKind::Free, 28, &[], 0),
        ]);
        let growth = growth(&before, &after).unwrap();
        let kinds: Vec<_> = growth.rows.iter().map(|row| (row.kind, row.growth())).collect();
        assert_eq!(kinds, [(RowKind::Free, -62), (RowKind::Slab, 60), (RowKind::Vmalloc, 2)]);
        assert_eq!(
            growth.rows[1].owners,
            [change("dentry", Some(6), Some(65)), change("inode", Some(4), Some(5))]
        );
        assert_eq!(growth.rows[2].owners, [change("load_module", Some(0), Some(2))]);
    }

    #[test]
    fn an_owner_that_was_left_out_is_not_new() {
        let before = moment(vec![row(RowKind::Shmem, 10, &[("/a", 6)], 2)]);
        let after = moment(vec![row(RowKind::Shmem, 12, &[("/b", 7)], 1)]);
        let growth = growth(&before, &after).unwrap();
        assert_eq!(growth.rows[0].owners, [change("/b", None, Some(7)), change("/a", Some(6), Some(0))]);
    }

    /// One struct page of a machine that did not change: pages that are not lost leave their rows, too.
    #[test]
    fn a_lost_struct_page_is_no_growth() {
        let whole = moment(vec![
            row(RowKind::Slab, 70, &[("dentry", 65), ("inode", 5)], 2),
            row(RowKind::PageTables, 222, &[("init/1", 222)], 1),
            row(RowKind::NoOwner, 872, &[("perhaps of slab kmalloc-64", 20), ("compound pages", 852)], 2),
            row(RowKind::PerCpuLists, 4862, &[], 0),
        ]);
        let lost = moment(vec![
            row(RowKind::Slab, 69, &[("dentry", 64), ("inode", 5)], 2),
            row(RowKind::PageTables, 247, &[("init/1", 247)], 1),
            row(RowKind::Undecided, 1, &[], 0),
            row(RowKind::NoOwner, 4710, &[("perhaps of slab kmalloc-64", 742), ("compound pages", 3968)], 2),
            row(RowKind::PerCpuLists, 950, &[], 0),
        ]);
        let later = growth(&whole, &lost).unwrap();
        assert_eq!(later.damaged, [false, true]);
        assert_eq!(of(&later, RowKind::Slab), Some(([Some(70), Some(69)], [false, true])));
        for (kind, pages) in
            [(RowKind::PageTables, 222), (RowKind::NoOwner, 872), (RowKind::PerCpuLists, 4862)]
        {
            assert_eq!(of(&later, kind), Some(([Some(pages), None], [false; 2])), "{kind:?}");
        }
        assert!(later.rows.iter().all(|row| row.kind == RowKind::Slab || row.owners.is_empty()));
        let dentry = OwnerGrowth { at_least: [false, true], ..change("dentry", Some(65), Some(64)) };
        assert_eq!(later.rows.iter().find(|row| row.kind == RowKind::Slab).unwrap().owners, [dentry]);
        // What is known comes first.
        let kinds: Vec<_> = later.rows.iter().map(|row| row.kind).collect();
        assert_eq!(kinds[2..], [RowKind::PerCpuLists, RowKind::NoOwner, RowKind::PageTables]);
        assert_eq!(of(&later, RowKind::Undecided), Some(([Some(0), Some(1)], [false; 2])));
        let earlier = growth(&lost, &whole).unwrap();
        assert_eq!(of(&earlier, RowKind::Slab), Some(([Some(69), Some(70)], [true, false])));
        assert_eq!(of(&earlier, RowKind::PageTables), Some(([None, Some(222)], [false; 2])));
        // Neither side says anything.
        assert!(growth(&lost, &lost).unwrap().rows.is_empty());
    }

    #[test]
    fn what_was_lost_is_not_nothing() {
        let whole = moment(vec![row(RowKind::Slab, 70, &[("dentry", 65)], 1)]);
        let lost = moment(vec![row(RowKind::File, 1, &[], 0), row(RowKind::Undecided, 2, &[], 0)]);
        assert_eq!(of(&growth(&whole, &lost).unwrap(), RowKind::Slab), Some(([Some(70), None], [false; 2])));
        let back = growth(&lost, &whole).unwrap();
        let slab = back.rows.iter().find(|row| row.kind == RowKind::Slab).unwrap();
        assert_eq!((slab.before, &slab.owners[..]), (None, &[change("dentry", None, Some(65))][..]));
    }

    #[test]
    fn a_walk_that_broke_found_not_nothing() {
        let whole = moment(vec![
            row(RowKind::PerCpu, 6, &[], 0),
            row(RowKind::Anonymous, 9, &[("init/1", 9)], 1),
            row(RowKind::Slab, 9, &[("dentry", 9)], 1),
        ]);
        let broken = Moment {
            is_whole: Some(false),
            ..moment(vec![
                row(RowKind::Anonymous, 9, &[("exited processes", 9)], 1),
                row(RowKind::Slab, 9, &[(NOT_KNOWN, 9)], 1),
            ])
        };
        assert!(broken.is_damaged() && !broken.lost_all());
        let growth = growth(&whole, &broken).unwrap();
        assert_eq!(of(&growth, RowKind::PerCpu), Some(([Some(6), None], [false; 2])));
        // Whose they are is not known.
        assert_eq!(of(&growth, RowKind::Anonymous), None);
        let slab = growth.rows.iter().find(|row| row.kind == RowKind::Slab).unwrap();
        assert_eq!(slab.owners, [change("dentry", Some(9), None)]);
    }

    /// Shared memory whose inode cannot be read is among files.
    #[test]
    fn files_without_an_inode_are_perhaps_none() {
        let mut files = row(RowKind::File, 9, &[("/a", 5), ("address space 0x1000: lost", 4)], 2);
        files.owners[0].file = Some(FileDetail::default());
        let whole = moment(vec![row(RowKind::File, 5, &[("/a", 5)], 1)]);
        let broken = Moment { is_whole: Some(false), ..moment(vec![files]) };
        assert!(growth(&whole, &broken).unwrap().rows.is_empty());
    }

    /// JSON that an earlier version wrote.
    #[test]
    fn without_the_field_sentences_say_whether_a_moment_is_whole() {
        let of = |missing: &[&str]| {
            let missing = missing.iter().map(|why| (*why).to_owned()).collect();
            Moment { is_whole: None, missing, ..moment(Vec::new()) }.is_damaged()
        };
        assert!(!of(&[]));
        assert!(!of(&[
            "the kernel ran on while its memory was read: rows and counters are of moments that differ"
        ]));
        assert!(of(&["per-CPU memory: no page"]));
    }

    #[test]
    fn nothing_is_left_where_all_struct_pages_are_lost() {
        let lost = || row(RowKind::Undecided, 100, &[], 0);
        assert!(moment(vec![lost()]).lost_all());
        assert!(!moment(vec![lost(), row(RowKind::Free, 1, &[], 0)]).lost_all());
        assert!(!moment(Vec::new()).lost_all());
    }

    /// The kernel counts what is charged to a cgroup.
    #[test]
    fn cgroups_are_known_where_struct_pages_are_lost() {
        let mut before = moment(vec![row(RowKind::Undecided, 100, &[], 0)]);
        let mut after = before.clone();
        let cgroup = Cgroup { path: "/a".into(), usage: Some(PageCount::new(50)), ..Cgroup::default() };
        after.cgroups = Cgroups { count: 1, largest: vec![cgroup], ..Cgroups::default() };
        assert_eq!(growth(&before, &after).unwrap().cgroups, [change("/a", Some(0), Some(50))]);
        std::mem::swap(&mut before, &mut after);
        assert_eq!(growth(&before, &after).unwrap().cgroups, [change("/a", Some(50), Some(0))]);
    }

    #[test]
    fn owners_of_one_name_are_one() {
        let before = moment(vec![row(RowKind::Shmem, 10, &[("/a", 6), ("/a", 4)], 2)]);
        let after = moment(vec![row(RowKind::Shmem, 10, &[("/a", 10)], 1)]);
        assert!(growth(&before, &after).unwrap().rows.is_empty());
    }

    #[test]
    fn moments_of_machines_with_other_pages_are_refused() {
        let before = moment(Vec::new());
        let after = Moment { page_size: PageSize::new(65536).unwrap(), ..before.clone() };
        assert!(growth(&before, &after).is_err());
    }
}
