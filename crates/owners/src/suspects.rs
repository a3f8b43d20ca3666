//! Who can have taken the memory: owners that belong together as one. A fork bomb is many processes of one name, a log that fills a
//! tmpfs is many files of one mount.

use std::collections::HashMap;

use pagehaul_machine::PageCount;

use crate::report::{Owner, RowKind, Suspect};

/// Suspects that are kept.
const MOST: usize = 20;
/// Processes that are kept of those that hold deleted files.
const MAX_HOLDERS: usize = 4;

/// Groups all owners of all rows; the largest groups come first.
pub(crate) fn suspects<'a>(rows: impl Iterator<Item = (RowKind, u64, &'a [Owner])>) -> Vec<Suspect> {
    let mut found: Vec<Suspect> = Vec::new();
    for (kind, pages, owners) in rows.filter(|(kind, ..)| !kind.is_free()) {
        if !is_open(kind) {
            let (recorded, rest) = recorded(kind, pages, owners);
            found.extend(recorded);
            found.extend(
                (rest > 0).then(|| Suspect { pages: PageCount::new(rest), ..Suspect::new(kind, None) }),
            );
            continue;
        }
        let mut groups: HashMap<(&str, bool), Suspect> = HashMap::new();
        for owner in owners {
            let (key, grouped) = group(kind, owner);
            let suspect =
                groups.entry((key, grouped)).or_insert_with(|| Suspect::new(kind, Some(key.to_owned())));
            suspect.add(owner);
        }
        found.extend(groups.into_values().map(|mut suspect| {
            // One process has its ID, one file its name.
            if suspect.members == 1 && kind.is_of_processes() {
                suspect.name = suspect.largest.as_ref().map(|(name, _)| name.clone());
            }
            suspect
        }));
    }
    found.sort_by(|a, b| {
        let order = |suspect: &Suspect| (std::cmp::Reverse(suspect.pages), suspect.kind);
        order(a).cmp(&order(b)).then_with(|| a.name.cmp(&b.name))
    });
    found.truncate(MOST);
    found
}

/// Returns the owners of a row whose allocation is on record, and the pages of the rest.
fn recorded(kind: RowKind, pages: u64, owners: &[Owner]) -> (Vec<Suspect>, u64) {
    let mut rest = pages;
    let mut found = Vec::new();
    for owner in owners.iter().filter(|owner| owner.allocation.is_some()) {
        let mut suspect = Suspect::new(kind, Some(owner.name.clone()));
        suspect.add(owner);
        rest = rest.saturating_sub(owner.pages.get());
        found.push(suspect);
    }
    (found, rest)
}

/// Whether the owners of a row are suspects, and not the row.
fn is_open(kind: RowKind) -> bool {
    use RowKind::{
        Anonymous, Cma, File, HugeTlb, IoUring, KvmTables, PageTables, RingBuffers, Shmem, Slab, Sockets,
        Vmalloc, Zsmalloc,
    };
    let of_users =
        matches!(kind, Anonymous | File | HugeTlb | IoUring | KvmTables | PageTables | Shmem | Sockets);
    of_users || matches!(kind, Cma | RingBuffers | Slab | Vmalloc | Zsmalloc)
}

fn is_erased(comm: &str) -> bool {
    comm.bytes().all(|letter| letter == b'X')
}

/// Returns the name of the group that an owner is in, and whether the name is that of a group.
fn group(kind: RowKind, owner: &Owner) -> (&str, bool) {
    match (&owner.file, kind) {
        (Some(file), RowKind::Shmem | RowKind::File) => match (&file.mount, kind) {
            (Some(mount), _) => (mount, true),
            (None, RowKind::File) => (&file.device, true),
            (None, _) => (&owner.name, false),
        },
        (None, RowKind::Vmalloc) => match owner.name.rsplit_once('/') {
            // Maps of one name.
            Some((map, _)) if map.starts_with("BPF map ") => (map, true),
            _ => (&owner.name, false),
        },
        (None, kind) if kind.is_of_processes() => match owner.name.rsplit_once('/') {
            // Names that were erased are all alike.
            Some((comm, pid)) if pid.bytes().all(|digit| digit.is_ascii_digit()) && !is_erased(comm) => {
                (comm, true)
            }
            _ => (&owner.name, false),
        },
        _ => (&owner.name, false),
    }
}

impl Suspect {
    pub(crate) fn new(kind: RowKind, name: Option<String>) -> Self {
        Self {
            kind,
            name,
            pages: PageCount::ZERO,
            members: 0,
            largest: None,
            deleted: 0,
            deleted_pages: PageCount::ZERO,
            held_by: Vec::new(),
            holders: 0,
            mounted: false,
        }
    }

    fn add(&mut self, owner: &Owner) {
        self.members += 1;
        self.pages += owner.pages;
        if self.largest.as_ref().is_none_or(|(_, pages)| *pages < owner.pages) {
            self.largest = Some((owner.name.clone(), owner.pages));
        }
        let Some(file) = &owner.file else { return };
        self.mounted |= file.mount.is_some();
        if file.deleted {
            self.deleted += 1;
            self.deleted_pages += owner.pages;
            for name in &file.held_by {
                if !self.held_by.contains(name) && self.held_by.len() < MAX_HOLDERS {
                    self.held_by.push(name.clone());
                }
            }
            self.holders = self.holders.max(file.holders).max(self.held_by.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Allocation, FileDetail};

    #[test]
    fn an_owner_on_record_is_a_suspect_and_the_rest_of_its_row_another() {
        let recorded = Owner { allocation: Some(Allocation::default()), ..owner("allocated in f", 70) };
        let owners = [recorded, owner("perhaps of slab x", 20), owner("compound pages", 10)];
        let found = suspects([(RowKind::NoOwner, 100, owners.as_slice())].into_iter());
        let found: Vec<_> = found.iter().map(|it| (it.name.as_deref(), it.pages.get())).collect();
        assert_eq!(found, [(Some("allocated in f"), 70), (None, 30)]);
    }

    fn owner(name: &str, pages: u64) -> Owner {
        Owner { name: name.into(), pages: PageCount::new(pages), ..Owner::default() }
    }

    fn file(name: &str, pages: u64, mount: Option<&str>, held_by: Option<&str>) -> Owner {
        let detail = FileDetail {
            mount: mount.map(str::to_owned),
            deleted: held_by.is_some(),
            held_by: held_by.into_iter().map(str::to_owned).collect(),
            holders: usize::from(held_by.is_some()),
            ..FileDetail::default()
        };
        Owner { file: Some(detail), ..owner(name, pages) }
    }

    #[test]
    fn owners_that_belong_together_are_one() {
        let processes =
            [owner("bomb/7", 30), owner("bomb/8", 40), owner("init/1", 60), owner("exited processes", 5)];
        let files = [
            file("/log/a", 50, Some("/log"), None),
            file("/log/b", 20, Some("/log"), Some("java/4711")),
            file("memfd:x", 9, None, None),
        ];
        let rows = [
            (RowKind::Anonymous, 135, processes.as_slice()),
            (RowKind::Shmem, 79, files.as_slice()),
            (RowKind::NoOwner, 65, &[]),
            (RowKind::Free, 500, &[]),
        ];
        let found = suspects(rows.into_iter());
        let named: Vec<(Option<&str>, u64, usize)> =
            found.iter().map(|it| (it.name.as_deref(), it.pages.get(), it.members)).collect();
        assert_eq!(
            named,
            [
                (Some("bomb"), 70, 2),
                (Some("/log"), 70, 2),
                (None, 65, 0),
                (Some("init/1"), 60, 1),
                (Some("memfd:x"), 9, 1),
                (Some("exited processes"), 5, 1),
            ]
        );
        assert_eq!((found[1].deleted, found[1].deleted_pages.get(), found[1].holders), (1, 20, 1));
        assert_eq!(found[1].held_by, ["java/4711"]);
    }
}
