//! Page tables that KVM makes for its guests on x86: they carry no mark.

use std::collections::HashSet;

use pagehaul_btf::{Fault, Object, Space};
use pagehaul_machine::{PageCount, Pfn, PhysAddr};

use super::{KVM_TABLES, Walks};
use crate::claims::{Claimant, ClaimantId};

/// The name of the module that has the types.
const KVM: &str = "kvm";
/// Levels of tables below a root, at most 5.
const MAX_LEVEL: u64 = 5;
/// The address in an entry, and the bit of one that maps a large page (Intel's and AMD's formats).
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const LARGE: u64 = 1 << 7;

/// Tables of one guest.
struct Tables<'s> {
    types: &'s Space<'s>,
    claimant: ClaimantId,
    /// Tables that were found.
    seen: HashSet<Pfn>,
    /// Tables whose entries are read: PFN and level.
    left: Vec<(Pfn, u64)>,
    /// Bits of an address in an entry.
    address: u64,
    /// Where `private` of a struct page is, which leads to the table's `struct kvm_mmu_page`.
    private: u64,
}

impl Walks<'_> {
    pub(super) fn kvm(&mut self) {
        if let Err(why) = self.guests() {
            self.failed(KVM_TABLES, why);
        }
    }

    fn guests(&mut self) -> Result<(), Fault> {
        let machine = self.machine;
        let list = match machine.symbol_in(KVM, "vm_list") {
            Ok(list) => list,
            // A kernel without KVM, or the module is not loaded.
            Err(Fault::NoSymbol(_)) => return Ok(()),
            Err(why) => return Err(why),
        };
        if machine.memory().u64(list)? == list {
            return Ok(());
        }
        let types = machine.types_with("kvm_mmu_page", KVM)?;
        // Other architectures have tables of another kind.
        if !types.has("kvm", "arch.active_mmu_pages") {
            return Ok(());
        }
        // VMCOREINFO has it for the orders of free blocks.
        let private = machine.kernel().info().offset("page.private");
        let private =
            private.ok_or_else(|| Fault::NotRead("VMCOREINFO has no OFFSET(page.private)".into()))?;
        let found = types.object(list, "list_head")?.list("kvm", "vm_list")?;
        let mut broken = found.broken;
        for guest in found.items {
            if let Err(why) = self.guest(&types, &guest, private) {
                broken.get_or_insert_with(|| format!("those of the guest at {:#x}: {why}", guest.address()));
            }
        }
        broken.map_or(Ok(()), |why| Err(Fault::NotRead(why)))
    }

    fn guest(&mut self, types: &Space<'_>, guest: &Object<'_>, private: u64) -> Result<(), Fault> {
        let claimant = self.claims.claimant(Claimant::KvmTables { mm: guest.get("mm")?.pointer()? });
        // AMD's memory encryption marks entries by a bit of the address.
        let encryption = self.machine.kernel().info().number("sme_mask").unwrap_or(0) as u64;
        let address = ADDRESS & !encryption;
        let mut tables = Tables { types, claimant, seen: HashSet::new(), left: Vec::new(), address, private };
        // Tables of shadow paging are all in the list. Those of the other (02c00b3a2f7e, 5.11: `tdp_mmu`) are only below their roots since
        // d25ceb926436 (6.2), which counts them.
        let mut broken = None;
        for (list, is_root) in [("active_mmu_pages", false), ("tdp_mmu_roots", true)] {
            let Ok(list) = guest.get(&format!("arch.{list}")) else { continue };
            let found = list.list("kvm_mmu_page", "link")?;
            broken = broken.or(found.broken);
            for table in found.items {
                let (at, level) = (table.get("spt")?.pointer()?, table.number("role.level")?);
                match self.pfn_at(at) {
                    Ok(pfn) => {
                        // Those of two-dimensional paging are counted as they are linked to another (43a063cab325, 6.1).
                        let is_root = is_root && !tables.seen.contains(&pfn);
                        self.kvm_roots += PageCount::new(is_root.into());
                        self.found(&mut tables, pfn, level);
                    }
                    Err(why) => drop(broken.get_or_insert_with(|| why.to_string())),
                }
            }
        }
        while let Some((pfn, level)) = tables.left.pop() {
            if let Err(why) = self.entries(&mut tables, pfn, level) {
                broken.get_or_insert_with(|| format!("the table in PFN {:#x}: {why}", pfn.number()));
            }
        }
        broken.map_or(Ok(()), |why| Err(Fault::NotRead(why)))
    }

    fn found(&mut self, tables: &mut Tables<'_>, pfn: Pfn, level: u64) {
        // The machine's pages bound them.
        if pfn.number() < self.pages_of_machine() && tables.seen.insert(pfn) {
            self.claims.add(pfn..pfn + PageCount::new(1), tables.claimant);
            if (2..=MAX_LEVEL).contains(&level) {
                tables.left.push((pfn, level));
            }
        }
    }

    /// Finds the tables that the entries of a table lead to.
    fn entries(&mut self, tables: &mut Tables<'_>, pfn: Pfn, level: u64) -> Result<(), Fault> {
        let page_size = self.kernel.page_size();
        let mut bytes = vec![0; page_size.bytes()];
        let read = self.view.read(pfn.start(page_size).get(), &mut bytes);
        read.map_err(|why| Fault::NotRead(why.to_string()))?;
        for word in bytes.as_chunks::<8>().0 {
            let entry = u64::from_le_bytes(*word);
            let child = PhysAddr::new(entry & tables.address).pfn(page_size);
            if entry & tables.address == 0 || entry & LARGE != 0 || tables.seen.contains(&child) {
                continue;
            }
            if let Some(level) = self.table_in(tables, child, level) {
                self.found(tables, child, level);
            }
        }
        Ok(())
    }

    /// Returns the level of the table in a page, or `None` if the page is no table. An entry of a table of `level` leads to the page. A page
    /// is a table only if it leads to a `struct kvm_mmu_page` that has this page.
    fn table_in(&mut self, tables: &Tables<'_>, pfn: Pfn, level: u64) -> Option<u64> {
        let page = self.memmap.struct_page(pfn)?;
        let known = self.machine.memory().u64(page.get().wrapping_add(tables.private)).ok()?;
        let known = tables.types.object(known, "kvm_mmu_page").ok().filter(|_| known >> 63 == 1)?;
        let at = known.get("spt").ok()?.pointer().ok()?;
        let found = known.number("role.level").ok()?;
        (self.pfn_at(at).ok()? == pfn && found < level).then_some(found)
    }
}
