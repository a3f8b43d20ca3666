//! What grew between two moments of one machine.

use std::collections::BTreeMap;

use pagehaul_machine::{PageCount, PageSize};
use serde::{Deserialize, Serialize};

use crate::report::{Balance, Cgroups, Owner, Row, RowKind};

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
}

impl From<Balance> for Moment {
    fn from(balance: Balance) -> Self {
        let Balance { page_size, managed, rows, cgroups, missing, .. } = balance;
        Self { page_size, managed, rows, cgroups, missing }
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
    /// Pages of each moment whose struct pages cannot be read: any row or owner may have them.
    pub lost: [PageCount; 2],
    /// Rows, and owners in them.
    pub rows: Vec<RowGrowth>,
    /// Memory cgroups, by the pages that are charged to them and their children.
    pub cgroups: Vec<OwnerGrowth>,
    /// What is missing in each, one sentence each.
    pub missing: [Vec<String>; 2],
}

/// A row that changed, or has owners that did.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RowGrowth {
    pub kind: RowKind,
    /// `None`: it has none that is known, and struct pages that cannot be read may have the other moment's.
    pub before: Option<PageCount>,
    /// The same of the later moment.
    pub after: Option<PageCount>,
    /// Owners that changed.
    pub owners: Vec<OwnerGrowth>,
}

/// An owner, or several of one name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OwnerGrowth {
    pub name: String,
    /// `None`: it is not among the largest owners that were kept, or struct pages that cannot be read may be its.
    pub before: Option<PageCount>,
    /// The same of the later moment.
    pub after: Option<PageCount>,
}

impl RowGrowth {
    /// Returns by how many pages it grew, or the most that is known.
    pub fn growth(&self) -> i128 {
        grown(self.before, self.after)
    }
}

impl OwnerGrowth {
    /// Returns by how many pages it grew, or the most that is known.
    pub fn growth(&self) -> i128 {
        grown(self.before, self.after)
    }
}

fn grown(before: Option<PageCount>, after: Option<PageCount>) -> i128 {
    signed(after.unwrap_or_default()) - signed(before.unwrap_or_default())
}

impl Moment {
    /// Returns the pages whose struct pages cannot be read.
    fn lost(&self) -> PageCount {
        let lost = self.rows.iter().find(|row| row.kind == RowKind::Undecided);
        lost.map_or(PageCount::ZERO, |row| row.pages)
    }
}

/// Returns the pages of what has `pages` in one moment and `other` in the other; `None` if it has none, and the `lost` ones may be its.
fn known(pages: PageCount, other: PageCount, lost: PageCount) -> Option<PageCount> {
    let is_known = pages > PageCount::ZERO || lost == PageCount::ZERO || lost < other;
    is_known.then_some(pages)
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
    let lost = [before.lost(), after.lost()];
    let mut rows: Vec<RowGrowth> = RowKind::ALL
        .into_iter()
        .filter_map(|kind| {
            let [old, new] = [before, after].map(|moment| moment.rows.iter().find(|row| row.kind == kind));
            let [in_old, in_new] = [old, new].map(|row| row.map_or(PageCount::ZERO, |row| row.pages));
            let owners = changes([(lost[0], old), (lost[1], new)].map(|(lost, row)| Kept {
                lost,
                owners: row.map_or_else(BTreeMap::new, |row| by_name(&row.owners)),
                all: row.is_none_or(|row| row.owner_count <= row.owners.len()),
            }));
            // How much is lost is known.
            let [lost_of_old, lost_of_new] =
                if kind == RowKind::Undecided { [PageCount::ZERO; 2] } else { lost };
            let row = RowGrowth {
                kind,
                before: known(in_old, in_new, lost_of_old),
                after: known(in_new, in_old, lost_of_new),
                owners,
            };
            (row.growth() != 0 || !row.owners.is_empty()).then_some(row)
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.growth().unsigned_abs()));
    let cgroups = changes([before, after].map(|moment| Kept {
        // The kernel counts them.
        lost: PageCount::ZERO,
        owners: moment.cgroups.largest.iter().map(|cgroup| (cgroup.path.as_str(), cgroup.usage)).collect(),
        all: moment.cgroups.count <= moment.cgroups.largest.len(),
    }));
    let managed = [before.managed, after.managed];
    Ok(Growth {
        page_size: after.page_size,
        managed: (managed[0] != managed[1]).then_some(managed),
        lost,
        rows,
        cgroups,
        missing: [before.missing.clone(), after.missing.clone()],
    })
}

/// The owners that one moment has.
struct Kept<'a> {
    /// Pages that may be anyone's.
    lost: PageCount,
    owners: BTreeMap<&'a str, PageCount>,
    /// Whether there are no more.
    all: bool,
}

/// Files that were deleted can have the name of another.
fn by_name(owners: &[Owner]) -> BTreeMap<&str, PageCount> {
    let mut named = BTreeMap::new();
    for owner in owners {
        let pages: &mut PageCount = named.entry(owner.name.as_str()).or_default();
        *pages = PageCount::new(pages.get().saturating_add(owner.pages.get()));
    }
    named
}

/// The owners whose pages changed, by the size of the change. Of one that only one moment kept, while the other left out smaller ones,
/// the other number is not known.
fn changes([before, after]: [Kept<'_>; 2]) -> Vec<OwnerGrowth> {
    let pages = |kept: &Kept<'_>, other: &Kept<'_>, name| {
        let found = |kept: &Kept<'_>| kept.owners.get(name).copied();
        found(kept).or_else(|| {
            let other = found(other).unwrap_or_default();
            known(PageCount::ZERO, other, kept.lost).filter(|_| kept.all)
        })
    };
    let mut names: Vec<&str> = before.owners.keys().chain(after.owners.keys()).copied().collect();
    names.sort_unstable();
    names.dedup();
    let mut changed: Vec<OwnerGrowth> = names
        .into_iter()
        .map(|name| OwnerGrowth {
            name: name.into(),
            before: pages(&before, &after, name),
            after: pages(&after, &before, name),
        })
        .filter(|owner| owner.before != owner.after)
        .collect();
    changed.sort_by_key(|owner| std::cmp::Reverse(owner.growth().unsigned_abs()));
    changed
}

fn signed(pages: PageCount) -> i128 {
    i128::from(pages.get())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Cgroup;

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
        }
    }

    fn change(name: &str, before: Option<u64>, after: Option<u64>) -> OwnerGrowth {
        OwnerGrowth {
            name: name.into(),
            before: before.map(PageCount::new),
            after: after.map(PageCount::new),
        }
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

    #[test]
    fn what_was_lost_is_not_nothing() {
        let slab = || row(RowKind::Slab, 70, &[("dentry", 65), ("inode", 5)], 2);
        let whole = moment(vec![slab()]);
        let lost = |pages| moment(vec![row(RowKind::Undecided, pages, &[], 0)]);
        let before = growth(&lost(100), &whole).unwrap();
        let of_slab =
            |growth: &Growth| growth.rows.iter().find(|row| row.kind == RowKind::Slab).unwrap().clone();
        assert_eq!((of_slab(&before).before, of_slab(&before).growth()), (None, 70));
        assert_eq!(of_slab(&before).owners[0], change("dentry", None, Some(65)));
        assert_eq!(of_slab(&growth(&whole, &lost(100)).unwrap()).after, None);
        // Too few for it.
        let few = growth(&lost(69), &whole).unwrap();
        assert_eq!(of_slab(&few).before, Some(PageCount::ZERO));
        assert_eq!(of_slab(&few).owners[0], change("dentry", None, Some(65)));
        assert_eq!(
            few.rows.iter().find(|row| row.kind == RowKind::Undecided).unwrap().after,
            Some(PageCount::ZERO)
        );
    }

    /// The kernel counts what is charged to a cgroup.
    #[test]
    fn cgroups_are_known_where_struct_pages_are_lost() {
        let mut before = moment(vec![row(RowKind::Undecided, 100, &[], 0)]);
        let mut after = before.clone();
        let cgroup = Cgroup { path: "/a".into(), usage: PageCount::new(50), ..Cgroup::default() };
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
