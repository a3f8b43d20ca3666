//! The balance: walks, the scan, names, and the comparison.

use std::collections::HashMap;
use std::ops::Range;

use pagehaul_inspect::{
    Cache, Counters, Machine, PerCpuChunks, Tasks, caches, caller_name, nodes, per_cpu_chunks, tasks,
    zones_of,
};
use pagehaul_kernel::{Kernel, KernelError, Memmap};
use pagehaul_machine::{PageCount, Pfn, PhysAddr};
use pagehaul_physmem::PhysMemory;

use crate::claims::{Claimant, Claims};
use crate::fields::Fields;
use crate::identities::{Parts, identities};
use crate::report::{Balance, Outside, Owner, Row, RowKind};
use crate::resolve::files::{CachedFile, cached_file, note_holders};
use crate::resolve::mounts::Mounts;
use crate::resolve::processes::Processes;
use crate::scan::scan;
use crate::tally::{FilePages, Rules, Tally};
use crate::walks::{Walks, holders};

/// Owners of one row that are reported.
const MOST_OWNERS: usize = 100;
/// Files whose names are looked up, the largest first.
const MOST_FILES: usize = 1 << 20;

/// Finds the owners of all pages, with `threads` threads.
///
/// # Errors
/// Fails if no machine can have such struct pages. Structures that cannot be read make the report incomplete instead.
pub fn balance(
    machine: &Machine<'_>,
    kernel: &Kernel,
    memory: &dyn PhysMemory,
    threads: usize,
) -> Result<Balance, KernelError> {
    let mut missing = Vec::new();
    let end = PhysAddr::new(memory.ranges().end()).next_pfn(kernel.page_size());
    let memmap = Memmap::read(kernel, memory.view().as_mut(), end);
    let tasks = tasks(machine).unwrap_or_else(|why| {
        missing.push(format!("tasks: {why}"));
        Tasks::default()
    });
    let mut walks = Walks {
        machine,
        memmap: &memmap,
        tasks: &tasks,
        kernel_tables: kernel_tables(kernel, memory),
        claims: Claims::default(),
        missing,
        listed: PageCount::ZERO,
        kept_stacks: PageCount::ZERO,
    };
    walks.run();
    let Walks { claims, mut missing, listed, kept_stacks, .. } = walks;
    let chunks = per_cpu_chunks(machine).unwrap_or_else(|why| {
        missing.push(format!("per-CPU memory: {why}"));
        PerCpuChunks::default()
    });
    let rules = Rules { kernel, fields: Fields::new(machine), claims, chunks: chunks.addresses };
    let tally = scan(memory, &rules, threads)?;
    let parts = Parts {
        listed: listed.get(),
        kept_stacks: kept_stacks.get(),
        populated: chunks.pages.get(),
        ..Parts::default()
    };
    let mut builder = Builder { machine, rules: &rules, tasks: &tasks, rows: HashMap::new(), parts, missing };
    Ok(builder.build(tally))
}

/// Turns counts into rows.
struct Builder<'a> {
    machine: &'a Machine<'a>,
    rules: &'a Rules<'a>,
    tasks: &'a Tasks,
    rows: HashMap<RowKind, (u64, Vec<Owner>)>,
    parts: Parts,
    missing: Vec<String>,
}

impl Builder<'_> {
    fn build(&mut self, tally: Tally) -> Balance {
        let machine = self.machine;
        let (caches, broken) = caches(machine).unwrap_or_else(|why| (Vec::new(), Some(why.to_string())));
        self.missing.extend(broken.map(|why| format!("slab: {why}")));
        self.parts.managed = managed(machine);
        self.parts.marked_tables = tally.rows.get(&RowKind::PageTables).copied().unwrap_or(0);
        self.parts.anon_in_swap_cache = tally.anon_in_swap_cache;
        self.parts.shmem_in_swap_cache = tally.shmem_in_swap_cache;
        self.parts.unmapped = tally.unmapped;
        for (kind, pages) in &tally.rows {
            self.add(*kind, *pages);
        }
        let mut processes = Processes::new(machine, self.tasks);
        self.claimed(&tally);
        self.files(&tally, &mut processes);
        self.anonymous(&tally, &mut processes);
        self.huge(&tally, &mut processes);
        self.slab(&tally, &caches);
        self.kernel_pages(&tally, &caches);
        self.notes(&tally);
        if processes.exhausted() {
            self.missing
                .push("processes: too many mappings of anonymous memory, the rest has no process".into());
        }
        self.finish(&tally, &caches)
    }

    fn add(&mut self, kind: RowKind, pages: u64) {
        self.rows.entry(kind).or_default().0 += pages;
    }

    fn own(&mut self, kind: RowKind, owner: Owner) {
        let (pages, owners) = self.rows.entry(kind).or_default();
        *pages += owner.pages.get();
        owners.push(owner);
    }

    fn named(&mut self, kind: RowKind, name: impl Into<String>, pages: u64) {
        if pages > 0 {
            self.own(kind, Owner { name: name.into(), pages: PageCount::new(pages), ..Owner::default() });
        }
    }

    fn claimed(&mut self, tally: &Tally) {
        let mut callers: HashMap<String, u64> = HashMap::new();
        for (number, pages) in &tally.claims {
            match self.rules.claims.claimants.get(*number as usize) {
                Some(Claimant::PerCpuList) => self.add(RowKind::PerCpuLists, *pages),
                Some(Claimant::Vmalloc { caller }) => {
                    *callers.entry(caller_name(self.machine, *caller)).or_default() += pages;
                }
                Some(Claimant::KernelStack) => self.add(RowKind::KernelStacks, *pages),
                Some(Claimant::PageTable) => self.add(RowKind::PageTables, *pages),
                Some(Claimant::Pipe) => self.add(RowKind::Pipes, *pages),
                None => self.add(RowKind::NoOwner, *pages),
            }
        }
        for (caller, pages) in callers {
            self.named(RowKind::Vmalloc, caller, pages);
        }
    }

    fn files(&mut self, tally: &Tally, processes: &mut Processes<'_>) {
        let mut all: Vec<(u64, FilePages, bool)> =
            tally.files.iter().map(|(mapping, pages)| (*mapping, *pages, true)).collect();
        for (mapping, pages) in &tally.perhaps {
            all.push((*mapping, *pages, false));
        }
        // Pages on and off LRU lists of one file are one owner's.
        all.sort_unstable_by_key(|(mapping, _, certain)| (*mapping, !certain));
        let mut merged: Vec<(u64, FilePages, bool)> = Vec::new();
        for (mapping, pages, certain) in all {
            match merged.last_mut() {
                Some((last, sum, _)) if *last == mapping => sum.merge(pages),
                _ => merged.push((mapping, pages, certain)),
            }
        }
        merged.sort_unstable_by_key(|(mapping, pages, _)| (std::cmp::Reverse(pages.pages), *mapping));
        let mut files: Vec<CachedFile> = Vec::new();
        let mut mounts = Mounts::default();
        let mut unnamed = 0;
        for (at, (mapping, pages, certain)) in merged.into_iter().enumerate() {
            if mapping == 0 {
                let truncated = pages.pages.saturating_sub(tally.shmem_in_swap_cache);
                self.named(RowKind::File, "(truncated, but still referenced)", truncated);
                self.named(RowKind::Shmem, "(swap cache)", pages.pages - truncated);
                continue;
            }
            if at >= MOST_FILES {
                unnamed += pages.pages;
                continue;
            }
            match cached_file(self.machine, &mut mounts, mapping, pages) {
                Ok(Some(file)) => {
                    self.parts.cached += pages.pages;
                    self.parts.by_nrpages = self.parts.by_nrpages.saturating_add(file.counted);
                    self.parts.shmem += if file.shmem { pages.pages } else { 0 };
                    files.push(file);
                }
                _ if !certain => {
                    self.named(RowKind::NoOwner, "pages whose pointer is not to a file", pages.pages)
                }
                Ok(None) => {
                    self.parts.cached += pages.pages;
                    self.named(
                        RowKind::File,
                        format!("address space {mapping:#x} without an inode"),
                        pages.pages,
                    );
                }
                Err(why) => {
                    self.parts.cached += pages.pages;
                    self.named(RowKind::File, format!("address space {mapping:#x}: {why}"), pages.pages);
                }
            }
        }
        self.named(RowKind::File, "(further files)", unnamed);
        let (machine, tasks) = (self.machine, self.tasks);
        let mut broken = None;
        note_holders(machine, processes, &mut files, |inodes| {
            let (held, why) = holders(machine, tasks, inodes);
            broken = why;
            held
        });
        self.missing.extend(broken);
        for file in files {
            self.own(if file.shmem { RowKind::Shmem } else { RowKind::File }, file.owner);
        }
    }

    fn anonymous(&mut self, tally: &Tally, processes: &mut Processes<'_>) {
        let mut by_process: HashMap<Option<u64>, (u64, u64)> = HashMap::new();
        let mut shared_pages = 0;
        for ((anon_vma, ksm), pages) in &tally.anon {
            if *ksm {
                shared_pages += pages;
                continue;
            }
            let mapped = processes.mapped(*anon_vma).ok().flatten();
            let (all, shared) = by_process.entry(mapped.map(|mapped| mapped.mm)).or_default();
            *all += pages;
            *shared += mapped.map_or(0, |mapped| if mapped.others > 0 { *pages } else { 0 });
        }
        self.named(RowKind::Anonymous, "merged by KSM", shared_pages);
        for (mm, (pages, shared)) in by_process {
            let name = mm.map_or_else(|| "exited processes".into(), |mm| processes.name(mm));
            let notes =
                (shared > 0).then(|| format!("{shared} of them perhaps shared with forked processes"));
            self.own(
                RowKind::Anonymous,
                Owner { name, pages: PageCount::new(pages), notes: notes.into_iter().collect(), file: None },
            );
        }
    }

    fn huge(&mut self, tally: &Tally, processes: &mut Processes<'_>) {
        let mut mounts = Mounts::default();
        let mut by_name: HashMap<String, u64> = HashMap::new();
        for (mapping, pages) in &tally.hugetlb {
            let name = match mapping & 3 {
                _ if *mapping == 0 => "free".to_owned(),
                0 => match cached_file(self.machine, &mut mounts, *mapping, FilePages::default()) {
                    Ok(Some(file)) => file.owner.name,
                    _ => format!("address space {mapping:#x}"),
                },
                _ => match processes.mapped(mapping & !3).ok().flatten() {
                    Some(mapped) => processes.name(mapped.mm),
                    None => "exited processes".into(),
                },
            };
            *by_name.entry(name).or_default() += pages;
        }
        for (name, pages) in by_name {
            self.named(RowKind::HugeTlb, name, pages);
        }
    }

    fn slab(&mut self, tally: &Tally, caches: &[Cache]) {
        let names: HashMap<u64, &str> =
            caches.iter().map(|cache| (cache.address.0, cache.name.as_str())).collect();
        let mut by_name: HashMap<String, u64> = HashMap::new();
        for (cache, pages) in &tally.slab {
            let name =
                names.get(cache).map_or_else(|| format!("unknown cache {cache:#x}"), |name| (*name).into());
            *by_name.entry(name).or_default() += pages;
        }
        for (name, pages) in by_name {
            self.named(RowKind::Slab, name, pages);
        }
    }

    /// Pages of the kernel that nothing claims.
    fn kernel_pages(&mut self, tally: &Tally, caches: &[Cache]) {
        self.add(RowKind::PerCpu, tally.chunks);
        for (number, pages) in &tally.typed {
            self.named(RowKind::Typed, self.rules.fields.type_name(*number), *pages);
        }
        for (mapping, pages) in &tally.movable {
            let name = match self.machine.symbols().name(mapping & !3) {
                Some(name) => format!("movable by {}", name.readable()),
                None => "movable by a driver".into(),
            };
            self.named(RowKind::Typed, name, *pages);
        }
        // Until 6.18 nothing marks large kmalloc, but the counters of slabs have it.
        let mut compound = tally.compound;
        if !self.rules.fields.marks_large_kmalloc() && !caches.is_empty() {
            let counters = Counters::new(self.machine).ok();
            let of = |name: &str| counters.as_ref()?.get(name);
            let counted = of("NR_SLAB_RECLAIMABLE_B").zip(of("NR_SLAB_UNRECLAIMABLE_B"));
            let slab: u64 = tally.slab.values().sum();
            let large = counted.map_or(0, |(one, other)| one.saturating_add(other).max(0) as u64);
            let large = large.saturating_sub(slab).min(compound);
            self.add(RowKind::LargeKmalloc, large);
            compound -= large;
        }
        self.named(RowKind::NoOwner, "compound pages", compound);
        self.named(RowKind::NoOwner, "single pages and blocks", tally.nothing);
    }

    fn notes(&mut self, tally: &Tally) {
        if tally.cut > 0 {
            self.add(RowKind::NoOwner, tally.cut);
            self.missing.push(format!("owners: {} pages of more owners than are counted", tally.cut));
        }
        let claims = &self.rules.claims;
        if claims.cut > PageCount::ZERO {
            self.missing
                .push(format!("walks: {} pages in more runs than are kept have no owner", claims.cut.get()));
        }
        if claims.twice > PageCount::ZERO {
            self.missing.push(format!(
                "walks: {} pages have two owners: the first walk's counts",
                claims.twice.get()
            ));
        }
        if let Some((pfn, what)) = &tally.inconsistency {
            self.missing.push(format!("struct pages are damaged: PFN {pfn:#x}: {what}"));
        }
    }

    fn finish(&mut self, tally: &Tally, caches: &[Cache]) -> Balance {
        let mut outside = Vec::new();
        if tally.reserved > 0 {
            outside.push(Outside { name: "reserved", pages: PageCount::new(tally.reserved) });
        }
        // Balloons take their pages out of the managed memory, unless they deflate when memory is short.
        let offline = self.rows.get(&RowKind::Offline).map_or(0, |(pages, _)| *pages);
        let sum: u64 = self.rows.values().map(|(pages, _)| pages).sum();
        let unmanaged = sum.saturating_sub(self.parts.managed).min(offline);
        if unmanaged > 0 {
            outside.push(Outside { name: RowKind::Offline.name(), pages: PageCount::new(unmanaged) });
            if let Some((pages, _)) = self.rows.get_mut(&RowKind::Offline) {
                *pages -= unmanaged;
            }
        }
        let mut rows = Vec::new();
        for kind in RowKind::ALL {
            let Some((pages, mut owners)) = self.rows.remove(&kind) else { continue };
            if pages == 0 {
                continue;
            }
            owners.sort_by(|a, b| b.pages.cmp(&a.pages).then_with(|| a.name.cmp(&b.name)));
            let owner_count = owners.len();
            owners.truncate(MOST_OWNERS);
            rows.push(Row { kind, pages: PageCount::new(pages), owners, owner_count });
        }
        let mut balance = Balance {
            page_size: self.rules.kernel.page_size(),
            managed: PageCount::new(self.parts.managed),
            rows,
            outside,
            identities: Vec::new(),
            missing: std::mem::take(&mut self.missing),
        };
        balance.identities = identities(
            self.machine,
            |kind| balance.pages(kind).get(),
            balance.sum().get(),
            &self.parts,
            caches,
        );
        balance
    }
}

/// Returns the kernel's own page tables.
fn kernel_tables(kernel: &Kernel, memory: &dyn PhysMemory) -> Vec<Range<Pfn>> {
    let runs = kernel.kernel_mapped_pages(memory).tables.into_iter();
    runs.map(|run| Pfn::new(run.start)..Pfn::new(run.end)).collect()
}

fn managed(machine: &Machine<'_>) -> u64 {
    let zones =
        nodes(machine).unwrap_or_default().into_iter().flat_map(|node| zones_of(&node).unwrap_or_default());
    zones.map(|zone| zone.number("managed_pages").unwrap_or(0)).fold(0, u64::saturating_add)
}
