//! Pages of vmalloc areas (`vm_struct.pages`), and which of them are kernel stacks.

use std::collections::HashSet;

use pagehaul_btf::{Fault, Object};
use pagehaul_inspect::vmap_areas;

use pagehaul_machine::{PageCount, VirtAddr};

use super::{VMALLOC, Walks};
use crate::claims::Claimant;

/// Areas whose pages `vmalloc` allocated (`VM_ALLOC`, include/linux/vmalloc.h). The pages of others belong to someone else.
const VM_ALLOC: u64 = 2;
/// Pages of all areas that are read: 256 GiB in pages of 4 KiB.
const MAX_PAGES: u64 = 1 << 26;
/// Stacks that a CPU keeps for new tasks (`NR_CACHED_STACKS`, kernel/fork.c).
const CACHED_STACKS: u64 = 2;

impl Walks<'_> {
    pub(super) fn vmalloc(&mut self) {
        if let Err(why) = self.areas() {
            self.failed(VMALLOC, why);
        }
    }

    fn areas(&mut self) -> Result<(), Fault> {
        let machine = self.machine;
        let (areas, mut broken) = vmap_areas(machine)?;
        let (stacks, kept) = self.stack_areas();
        let stack = self.claims.claimant(Claimant::KernelStack);
        let callers: HashSet<u64> = areas
            .iter()
            .filter_map(|area| area.get("vm").and_then(|vm| vm.target()).ok())
            .filter(|vm| stacks.contains(&vm.address()))
            .filter_map(|vm| vm.number("caller").ok())
            .collect();
        let maps = self.bpf_maps();
        let mut left = MAX_PAGES;
        for area in areas {
            let Ok(vm) = area.get("vm").and_then(|vm| vm.target()) else { continue };
            let caller = vm.number("caller").unwrap_or(0);
            // Stacks of tasks that are gone, and those that a CPU keeps, have the caller of other stacks.
            let is_stack = stacks.contains(&vm.address()) || callers.contains(&caller);
            let range = area.number("va_start").unwrap_or(0)..area.number("va_end").unwrap_or(0);
            let map = (range.start < range.end).then(|| maps.range(range).next()).flatten();
            let claimant = match (is_stack, map) {
                (true, _) => stack,
                (false, Some((_, map))) => self.claims.claimant(Claimant::BpfMap { map: map.clone() }),
                (false, None) => self.claims.claimant(Claimant::Vmalloc { caller }),
            };
            if kept.contains(&vm.address()) {
                self.kept_stacks += PageCount::new(vm.number("nr_pages").unwrap_or(0));
            }
            if let Err(why) = self.area(&vm, claimant, &mut left) {
                broken.get_or_insert_with(|| format!("that of {:#x}: {why}", vm.address()));
            }
        }
        if let Some(why) = broken {
            self.missing(VMALLOC, why);
        }
        if left == 0 {
            self.missing.push("vmalloc areas: their pages beyond 67,108,864 are not read".into());
        }
        Ok(())
    }

    fn area(&mut self, vm: &Object<'_>, claimant: u32, left: &mut u64) -> Result<(), Fault> {
        let pages = vm.get("pages")?.pointer()?;
        if pages == 0 || vm.number("flags")? & VM_ALLOC == 0 {
            return Ok(());
        }
        let count = vm.number("nr_pages")?.min(*left);
        *left -= count;
        // A page of pointers at a time.
        let mut at = 0;
        while at < count {
            let len = (count - at).min(512);
            let bytes = self.machine.memory().bytes(pages.wrapping_add(8 * at), 8 * len as usize)?;
            for word in bytes.as_chunks::<8>().0 {
                if let Some(pfn) = self.memmap.pfn(VirtAddr::new(u64::from_le_bytes(*word))) {
                    self.claims.add(pfn..pfn + PageCount::new(1), claimant);
                }
            }
            at += len;
        }
        Ok(())
    }

    /// Addresses of the `vm_struct`s of stacks (CONFIG_VMAP_STACK), and those among them that CPUs keep.
    fn stack_areas(&self) -> (HashSet<u64>, HashSet<u64>) {
        let machine = self.machine;
        let mut kept = HashSet::new();
        for cpu in machine.cpu_mask("__cpu_possible_mask").unwrap_or_default() {
            let Ok(cached) = machine.per_cpu("cached_stacks", cpu) else { continue };
            let areas = (0..CACHED_STACKS).map(|at| machine.memory().u64(cached.wrapping_add(8 * at)));
            kept.extend(areas.filter_map(Result::ok));
        }
        kept.remove(&0);
        let mut found = kept.clone();
        let idle =
            machine.cpu_mask("__cpu_possible_mask").unwrap_or_default().into_iter().filter_map(|cpu| {
                machine
                    .space()
                    .object(machine.per_cpu("runqueues", cpu).ok()?, "rq")
                    .ok()?
                    .number("idle")
                    .ok()
            });
        for task in self.tasks.all.iter().map(|task| task.address.0).chain(idle) {
            let area = machine.space().object(task, "task_struct");
            found.extend(area.and_then(|task| task.get("stack_vm_area")?.pointer()).ok());
        }
        found.remove(&0);
        (found, kept)
    }
}
