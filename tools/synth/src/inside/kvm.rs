//! Guests of KVM and their page tables.

use std::collections::BTreeMap;

use super::Arena;
use super::btf::{Record, member};
use crate::content::{PAGE, PageBytes};

/// A guest.
#[derive(Clone, Debug, Default)]
pub struct Guest {
    /// Tables of shadow paging, which a list has: PFNs.
    pub shadows: Vec<u64>,
    /// Tables of two-dimensional paging: PFN, level, and the table whose entry leads to it; none for a root.
    pub tables: Vec<(u64, u32, Option<u64>)>,
    /// Entries that lead to no table: PFN of the table, and entry.
    pub entries: Vec<(u64, u64)>,
}

/// What pages have.
#[derive(Default)]
pub(super) struct Written {
    pub(super) tables: BTreeMap<u64, PageBytes>,
    pub(super) privates: Vec<(u64, u64)>,
}

/// The structures.
pub(super) const KVM: [Record; 4] = [
    ("kvm", 64, &[("mm", "u64", 0), ("vm_list", "list_head", 8), ("arch", "kvm_arch", 24)]),
    ("kvm_arch", 40, &[("active_mmu_pages", "list_head", 0), ("tdp_mmu_roots", "list_head", 16)]),
    ("kvm_mmu_page", 32, &[("link", "list_head", 0), ("spt", "u64", 16), ("role", "kvm_mmu_page_role", 24)]),
    ("kvm_mmu_page_role", 4, &[("level", "u32:4+0", 0)]),
];

/// Writes them. `process` is the task that has them.
pub(super) fn write(
    arena: &mut Arena,
    guests: &[Guest],
    direct_map: u64,
    process: Option<u64>,
    symbols: &mut Vec<(u64, String)>,
) -> Written {
    let mut written = Written::default();
    let list = arena.record("list_head");
    symbols.push((list, "vm_list".into()));
    let mut heads = vec![list];
    for guest in guests {
        let kvm = arena.record("kvm");
        heads.push(kvm + member("kvm", "vm_list").0);
        let mm = process.map_or(0, |task| arena.get(task + member("task_struct", "mm").0));
        arena.set(kvm, "kvm", "mm", mm);
        let list = |name: &str| kvm + member("kvm", "arch").0 + member("kvm_arch", name).0;
        let (mut active, mut roots) = (vec![list("active_mmu_pages")], vec![list("tdp_mmu_roots")]);
        let shadows = guest.shadows.iter().map(|pfn| (*pfn, 1, None, false));
        let tables = guest.tables.iter().map(|(pfn, level, parent)| (*pfn, *level, *parent, true));
        for (pfn, level, parent, is_tdp) in shadows.chain(tables) {
            let page = arena.record("kvm_mmu_page");
            arena.set(page, "kvm_mmu_page", "spt", direct_map + pfn * PAGE as u64);
            arena.bytes(page + member("kvm_mmu_page", "role").0, &level.to_le_bytes());
            written.privates.push((pfn, page));
            written.tables.entry(pfn).or_insert([0; PAGE]);
            match parent {
                None if is_tdp => roots.push(page),
                None => active.push(page),
                // Present, as Intel's tables have it.
                Some(parent) => put(&mut written, parent, pfn << 12 | 7),
            }
        }
        for (pfn, entry) in &guest.entries {
            put(&mut written, *pfn, *entry);
        }
        arena.ring(&active);
        arena.ring(&roots);
    }
    arena.ring(&heads);
    written
}

/// Puts an entry into a table, behind those that it has.
fn put(written: &mut Written, pfn: u64, entry: u64) {
    let table = written.tables.entry(pfn).or_insert([0; PAGE]);
    let free = table.as_chunks_mut::<8>().0.iter_mut().find(|word| **word == [0; 8]);
    *free.expect("a table has 512 entries") = entry.to_le_bytes();
}
