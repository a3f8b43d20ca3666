//! The balance: walks, the scan, names, and the comparison.

use std::collections::HashMap;
use std::ops::Range;

use pagehaul_btf::Fault;
use pagehaul_inspect::ahead::together;
use pagehaul_inspect::{
    Cache, Counters, Machine, PerCpuChunks, Tasks, caches, caller_name, nodes, per_cpu_chunks, tasks,
    zones_of,
};
use pagehaul_kernel::{Kernel, KernelError, Memmap, PageScanner};
use pagehaul_machine::{PageCount, Pfn, PhysAddr};
use pagehaul_physmem::{PhysMemory, Wrapped};
use pagehaul_present::number::counted;

use crate::allocations::kmemleak::kmemleak;
use crate::allocations::owners::{Allocations, allocations, limit};
use crate::allocations::sites::sites;
use crate::allocations::slab_users::slab_users;
use crate::cgroups::cgroups;
use crate::claims::Claimant;
use crate::fields::Fields;
use crate::identities::{Parts, identities};
use crate::loss::{PhysicalLoss, watched};
use crate::page_blocks::PageBlocks;
use crate::references::{Guesses, references};
use crate::report::{
    Balance, BlockType, Cgroups, Deferred, Fragmentation, Outside, Owner, Row, RowKind, Spoiler,
};
use crate::resolve::files::{CachedFile, cached_file, note_holders};
use crate::resolve::mounts::Mounts;
use crate::resolve::pools::pools;
use crate::resolve::processes::{Mapped, Processes};
use crate::resolve::tables::tables_by_process;
use crate::scan::scan;
use crate::slot::Slot;
use crate::suspects::suspects;
use crate::tally::{FilePages, Rules, Tally};
use crate::walks::holders::holders;
use crate::walks::{KVM_TABLES, PER_CPU_LISTS, VMALLOC, Walks};

/// Owners of one row that are reported.
const MAX_OWNERS: usize = 100;
/// Blocks whose struct pages are announced with all the rest: 32 MiB in pages of 4 KiB. Those of more are announced as they are read.
const ANNOUNCED_BLOCKS: u64 = 16;
/// Files whose names are looked up, the largest first.
const MAX_FILES: usize = 1 << 20;

/// The name of owners that cannot be told, as what names them was not read.
pub(crate) const NOT_KNOWN: &str = "owner not known";
/// How the names of slab caches begin that the list of caches lacks.
pub(crate) const UNKNOWN_CACHE: &str = "unknown cache ";

/// How much is done to find owners.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Threads that read struct pages.
    pub threads: usize,
    /// When it is guessed who has pages that nothing marks.
    pub references: References,
}

/// When references to pages without an owner are looked for, which reads all of the kernel's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum References {
    Never,
    /// If more than so many percent of the managed memory have no owner, and the memory is on no server.
    Above(u64),
    Always,
}

/// Finds the owners of all pages.
///
/// # Errors
/// Fails if no machine can have such struct pages. Structures that cannot be read make the report incomplete instead.
pub fn balance(
    machine: &Machine<'_>,
    kernel: &Kernel,
    memory: &dyn PhysMemory,
    effort: Effort,
) -> Result<Balance, KernelError> {
    let mut missing = Vec::new();
    let end = PhysAddr::new(memory.ranges().end()).next_pfn(kernel.page_size());
    let memmap = Memmap::read(kernel, memory.view().as_mut(), end);
    let tasks = tasks(machine).unwrap_or_else(|why| {
        missing.push(format!("tasks: {why}"));
        Tasks::default()
    });
    missing.extend(tasks.broken.iter().map(|why| format!("tasks: {why}")));
    read_ahead(machine, kernel, memory, &memmap, &tasks, end);
    // Page tables are read by their physical addresses.
    let watched_memory = Wrapped::through(PhysicalLoss::default(), memory);
    let kernel_tables = kernel_tables(kernel, &watched_memory);
    let lost = watched_memory.wrap().take();
    missing.extend(lost.map(|why| format!("page tables of the kernel: {why}")));
    let mut walks = Walks {
        kernel_tables,
        missing,
        loss: Some(watched_memory.wrap()),
        ..Walks::new(machine, kernel, &watched_memory, &memmap, &tasks)
    };
    walks.run();
    let Walks {
        claims,
        mut missing,
        listed,
        in_change,
        changing,
        kept_stacks,
        kvm_roots,
        broken: walks_broken,
        ..
    } = walks;
    let broken_walk =
        |part: &str| walks_broken.iter().find(|(what, _)| *what == part).map(|(_, why)| why.clone());
    let (chunks, _) = watched(machine, &mut missing, "per-CPU memory", |missing| {
        let chunks = per_cpu_chunks(machine).unwrap_or_else(|why| PerCpuChunks {
            broken: Some(format!("not checked: {why}")),
            ..PerCpuChunks::default()
        });
        missing.extend(chunks.broken.iter().map(|why| format!("per-CPU memory: {why}")));
        chunks
    });
    let populated = chunks.broken.map_or(Ok(Some(chunks.pages.get() as i64)), Err);
    // What follows is of names and details, unless it says so.
    let is_whole = missing.is_empty();
    missing.extend(
        changing.iter().map(|why| format!("{why}: how many pages they have is known, but not which")),
    );
    let (blocks, _) = watched(machine, &mut missing, "types of page blocks", |missing| {
        PageBlocks::read(machine, kernel, end).unwrap_or_else(|why| {
            missing.push(format!("types of page blocks: not checked: {why}"));
            PageBlocks::default()
        })
    });
    let rules = Rules { kernel, fields: Fields::new(machine), claims, chunks: chunks.addresses, blocks, end };
    let mut tally = scan(memory, &rules, effort.threads)?;
    tally.unowned.sort_unstable_by_key(|pages| pages.start);
    tally.searched = tally.nothing;
    let even_remote = effort.references == References::Always;
    let allocated = allocations(machine, memory, &rules, &mut tally, even_remote, effort.threads)?;
    let (slab_users, _) = watched(machine, &mut missing, "slub_debug", |missing| {
        slab_users(machine, memory, kernel, even_remote, missing)
    });
    let (kmemleak, _) =
        watched(machine, &mut missing, "kmemleak", |missing| kmemleak(machine, even_remote, missing));
    let mut parts = Parts {
        listed: broken_walk(PER_CPU_LISTS).map_or(Ok(listed.map(|pages| pages.get() as i64)), Err),
        in_change: in_change.get(),
        kept_stacks: kept_stacks.get(),
        kvm_roots: kvm_roots.get(),
        kvm_broken: broken_walk(KVM_TABLES),
        vmalloc_broken: broken_walk(VMALLOC),
        populated,
        ..Parts::default()
    };
    let said = missing.len();
    let (found, are_broken) = watched(machine, &mut missing, "slab", |missing| {
        let (found, broken) = caches(machine).unwrap_or_else(|why| (Vec::new(), Some(why.to_string())));
        missing.extend(broken.map(|why| format!("slab: {why}")));
        found
    });
    parts.caches_broken = missing.get(said).cloned();
    let is_whole = is_whole && !are_broken;
    let rows = HashMap::new();
    let mut builder = Builder { machine, rules: &rules, tasks: &tasks, rows, parts, missing, is_whole };
    let asked = match effort.references {
        References::Never => false,
        References::Always => true,
        References::Above(percent) => {
            let limit = u128::from(managed(machine).unwrap_or(0)) * u128::from(percent);
            u128::from(tally.searched) * 100 > limit && !memory.view().is_remote()
        }
    };
    let mut guesses = Guesses::default();
    if asked && tally.searched > 0 {
        guesses = references(machine, memory, &memmap, &rules, &tally.unowned, &found, effort.threads)?;
    }
    Ok(Balance { slab_users, kmemleak, ..builder.build(tally, &found, allocated, guesses) })
}

/// Reads what the balance reads of a dump on a server, all of it at the same time.
fn read_ahead(
    machine: &Machine<'_>,
    kernel: &Kernel,
    memory: &dyn PhysMemory,
    memmap: &Memmap,
    tasks: &Tasks,
    end: Pfn,
) {
    let walk = |part: usize| {
        move |machine: &Machine<'_>| {
            if let Some((_, part)) = Walks::parts().get(part) {
                part(&mut Walks::new(machine, kernel, memory, memmap, tasks));
            }
        }
    };
    let blocks = kernel.blocks(end).min(ANNOUNCED_BLOCKS);
    together(
        machine,
        &[
            &|_| PageScanner::new(kernel, memory.view()).announce(0..blocks),
            &|_| drop(kernel_tables(kernel, memory)),
            &walk(0),
            &walk(1),
            &walk(2),
            &walk(3),
            &walk(4),
            &walk(5),
            &walk(6),
            &|machine| drop((per_cpu_chunks(machine), PageBlocks::read(machine, kernel, end))),
            &|machine| drop((caches(machine), cgroups(machine, tasks, end.since(Pfn::default())))),
        ],
    );
}

/// Turns counts into rows.
struct Builder<'a> {
    machine: &'a Machine<'a>,
    rules: &'a Rules<'a>,
    tasks: &'a Tasks,
    rows: HashMap<RowKind, (u64, Vec<Owner>)>,
    parts: Parts,
    missing: Vec<String>,
    is_whole: bool,
}

impl Builder<'_> {
    fn build(
        &mut self,
        tally: Tally,
        caches: &[Cache],
        mut allocated: Allocations,
        guesses: Guesses,
    ) -> Balance {
        let machine = self.machine;
        self.parts.managed = match managed(machine) {
            Ok(0) => {
                self.missing.push(
                    "managed memory: no zone can be read, so the rows are all pages that have a struct page"
                        .into(),
                );
                Ok(None)
            }
            Ok(pages) => Ok(Some(pages as i64)),
            Err(why) => {
                self.missing.push(format!(
                    "managed memory: not all zones can be read, so the rows are all pages that have a struct page: {why}"
                ));
                Err(why.to_string())
            }
        };
        self.parts.marked_tables = tally.rows.get(&RowKind::PageTables).copied().unwrap_or(0);
        self.parts.anon_in_swap_cache = tally.anon_in_swap_cache;
        self.parts.shmem_in_swap_cache = tally.shmem_in_swap_cache;
        self.parts.unmapped = tally.unmapped;
        self.parts.slabs = tally.slabs;
        for (kind, pages) in &tally.rows {
            self.add(*kind, *pages);
        }
        let mut processes = Processes::new(machine, self.tasks);
        self.claimed(&tally, &mut processes);
        let said = self.missing.len();
        let ((), lost) = machine.losing(|| self.files(&tally, &mut processes));
        if self.missing.len() == said {
            self.missing.extend(lost.map(|why| format!("files: {why}")));
        }
        self.anonymous(&tally, &mut processes);
        self.huge(&tally, &mut processes);
        self.page_tables(&mut processes);
        self.slab(&tally, caches);
        self.parts.allocated = allocated.allocated.map(|pages| pages as i64);
        let stacks = allocated.stacks.take();
        self.missing.append(&mut allocated.missing);
        self.kernel_pages(&tally, caches, allocated, guesses);
        let (sites, _) =
            watched(machine, &mut self.missing, "allocation tags", |missing| sites(machine, missing));
        self.notes(&tally);
        if processes.exhausted() {
            self.is_whole = false;
            self.missing
                .push("processes: too many mappings of anonymous memory, the rest has no process".into());
        }
        let most = self.rules.end.since(Pfn::default());
        let mut said = None;
        let ((cgroups, generations, is_broken), lacks) =
            watched(machine, &mut self.missing, "memory cgroups", |missing| {
                let (cgroups, generations, broken) = cgroups(machine, self.tasks, most);
                let is_broken = broken.is_some();
                said.clone_from(&generations.broken);
                missing.extend(broken);
                missing.extend(generations.broken.clone().or(generations.without_ages.clone()));
                (cgroups, generations, is_broken)
            });
        // Generations are details.
        self.is_whole &= !is_broken && (!lacks || said.is_some());
        self.parts.generations = match said {
            Some(why) => Err(why),
            None => Ok(generations.generations.is_some().then_some(generations.pages)),
        };
        Balance {
            stacks,
            sites,
            generations: generations.generations,
            ..self.finish(&tally, caches, cgroups)
        }
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

    fn claimed(&mut self, tally: &Tally, processes: &mut Processes<'_>) {
        let mut callers: HashMap<String, u64> = HashMap::new();
        for (number, pages) in &tally.claims {
            match self.rules.claims.claimants.get(*number as usize) {
                Some(Claimant::PerCpuList) => self.add(RowKind::PerCpuLists, *pages),
                Some(Claimant::Vmalloc { caller }) => {
                    *callers.entry(caller_name(self.machine, *caller)).or_default() += pages;
                }
                Some(Claimant::BpfMap { map }) => self.named(RowKind::Vmalloc, map, *pages),
                Some(Claimant::KernelStack) => self.add(RowKind::KernelStacks, *pages),
                Some(Claimant::PageTable) => self.add(RowKind::PageTables, *pages),
                Some(Claimant::Pipe) => self.add(RowKind::Pipes, *pages),
                Some(Claimant::RingBuffer { owner }) => self.named(RowKind::RingBuffers, owner, *pages),
                Some(Claimant::KvmTables { mm }) => {
                    let name = self.process(processes, *mm);
                    self.named(RowKind::KvmTables, name, *pages);
                }
                Some(Claimant::IoUring { process }) => self.named(RowKind::IoUring, process, *pages),
                Some(Claimant::Sockets { process }) => self.named(RowKind::Sockets, process, *pages),
                Some(Claimant::Cma { area }) => self.named(RowKind::Cma, area, *pages),
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
        let (mut unnamed, mut unread) = (0, 0);
        for (at, (mapping, pages, certain)) in merged.into_iter().enumerate() {
            if mapping == 0 {
                let truncated = pages.pages.saturating_sub(tally.shmem_in_swap_cache);
                self.named(RowKind::File, "(truncated, but still referenced)", truncated);
                self.named(RowKind::Shmem, "(swap cache)", pages.pages - truncated);
                continue;
            }
            if at >= MAX_FILES {
                unnamed += pages.pages;
                continue;
            }
            match cached_file(self.machine, &mut mounts, mapping, pages) {
                Ok(Some(file)) => {
                    self.parts.cached += pages.pages;
                    self.parts.read_files += 1;
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
                    unread += pages.pages;
                    self.parts
                        .files_broken
                        .get_or_insert_with(|| format!("address space {mapping:#x}: {why}"));
                    self.named(RowKind::File, format!("address space {mapping:#x}: {why}"), pages.pages);
                }
            }
        }
        self.named(RowKind::File, "(further files)", unnamed);
        if let Some(why) = &self.parts.files_broken {
            self.missing.push(format!(
                "files: {} whose address spaces cannot be read count as pages of files, and can be shared memory: {why}",
                counted(unread, "page")
            ));
        }
        let (machine, tasks) = (self.machine, self.tasks);
        let mut broken = None;
        note_holders(machine, processes, &mut files, |inodes| {
            let (held, why) = holders(machine, tasks, inodes);
            broken = why;
            held
        });
        self.missing.extend(broken.map(|why| format!("open files: {why}")));
        for file in files {
            self.own(if file.shmem { RowKind::Shmem } else { RowKind::File }, file.owner);
        }
    }

    fn anonymous(&mut self, tally: &Tally, processes: &mut Processes<'_>) {
        // Keyed by the address of a process's mm_struct, or by the label of processes that are not known.
        let mut by_process: HashMap<Result<u64, &str>, (u64, u64)> = HashMap::new();
        let mut shared_pages = 0;
        for ((anon_vma, ksm), pages) in &tally.anon {
            if *ksm {
                shared_pages += pages;
                continue;
            }
            let found = processes.mapped(*anon_vma);
            let mapped = found.as_ref().ok().copied().flatten();
            let owner = mapped.map(|mapped| mapped.mm).ok_or(unmapped(&found));
            let (all, shared) = by_process.entry(owner).or_default();
            *all += pages;
            *shared += mapped.map_or(0, |mapped| if mapped.others > 0 { *pages } else { 0 });
        }
        self.named(RowKind::Anonymous, "merged by KSM", shared_pages);
        for (mm, (pages, shared)) in by_process {
            let name = mm.map_or_else(str::to_owned, |mm| self.process(processes, mm));
            let notes =
                (shared > 0).then(|| format!("{shared} of them perhaps shared with forked processes"));
            self.own(
                RowKind::Anonymous,
                Owner {
                    name,
                    pages: PageCount::new(pages),
                    notes: notes.into_iter().collect(),
                    ..Owner::default()
                },
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
                _ => match processes.mapped(mapping & !3) {
                    Ok(Some(mapped)) => self.process(processes, mapped.mm),
                    other => unmapped(&other).into(),
                },
            };
            *by_name.entry(name).or_default() += pages;
        }
        for (name, pages) in by_name {
            self.named(RowKind::HugeTlb, name, pages);
        }
    }

    /// The name of the process with this memory.
    fn process(&self, processes: &mut Processes<'_>, mm: u64) -> String {
        if self.tasks.all.is_empty() { NOT_KNOWN.into() } else { processes.name(mm) }
    }

    /// Opens the row of page tables, whose pages are counted already. The rest are the kernel's tables and page directories.
    fn page_tables(&mut self, processes: &mut Processes<'_>) {
        let Some((pages, owners)) = self.rows.get_mut(&RowKind::PageTables) else { return };
        let (by_process, unread) = tables_by_process(self.machine, self.tasks, processes);
        if unread > 0 {
            let of = if unread == 1 { "a process" } else { "some processes" };
            self.missing
                .push(format!("page tables: {of} could not be read, whose page tables are not known"));
        }
        let sum = by_process.values().copied().fold(0, u64::saturating_add);
        if sum > *pages {
            self.missing
                .push(format!("page tables: processes count {sum} pages, more than the {pages} there are"));
            // Counters can be ahead of the tables, or damaged.
            if sum - *pages > *pages / 8 {
                self.is_whole = false;
                return;
            }
        }
        let are_known = !self.tasks.all.is_empty() && self.tasks.broken.is_empty() && unread == 0;
        let rest = if are_known { "the kernel, and page directories" } else { NOT_KNOWN };
        let rest = (sum < *pages).then(|| (rest.to_owned(), *pages - sum));
        owners.extend(by_process.into_iter().chain(rest).map(|(name, pages)| Owner {
            name,
            pages: PageCount::new(pages),
            ..Owner::default()
        }));
    }

    fn slab(&mut self, tally: &Tally, caches: &[Cache]) {
        let names: HashMap<u64, &str> =
            caches.iter().map(|cache| (cache.address.0, cache.name.as_str())).collect();
        let mut by_name: HashMap<String, u64> = HashMap::new();
        for (cache, pages) in &tally.slab {
            let name = match names.get(cache) {
                Some(name) => (*name).to_owned(),
                None if *cache == 0 || caches.is_empty() => NOT_KNOWN.into(),
                None => format!("{UNKNOWN_CACHE}{cache:#x}"),
            };
            *by_name.entry(name).or_default() += pages;
        }
        for (name, pages) in by_name {
            self.named(RowKind::Slab, name, pages);
        }
    }

    /// Pages of the kernel that nothing claims.
    fn kernel_pages(
        &mut self,
        tally: &Tally,
        caches: &[Cache],
        mut allocated: Allocations,
        guesses: Guesses,
    ) {
        self.add(RowKind::PerCpu, tally.chunks);
        for (number, pages) in &tally.typed {
            self.named(RowKind::Typed, self.rules.fields.type_name(*number), *pages);
        }
        for (mapping, pages) in &tally.movable {
            match self.moves(*mapping) {
                // Marked as such since 6.12.
                Some(name) if name.starts_with("zsmalloc_") => self.add(RowKind::Zsmalloc, *pages),
                Some(name) => self.named(RowKind::Typed, format!("movable by {name}"), *pages),
                None => self.named(RowKind::Typed, "movable by a driver", *pages),
            }
        }
        self.pools();
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
        // Pages of the row already.
        let row = self.rows.entry(RowKind::LargeKmalloc).or_default();
        let known = limit(&mut allocated.large, row.0);
        row.1.append(&mut allocated.large);
        if known > 0 && row.0 > known {
            let pages = PageCount::new(row.0 - known);
            row.1.push(Owner { name: "not recorded".to_owned(), pages, ..Owner::default() });
        }
        compound -= limit(&mut allocated.compound, compound);
        let mut nothing = tally.nothing - limit(&mut allocated.nothing, tally.nothing);
        for owner in allocated.compound.into_iter().chain(allocated.nothing) {
            self.own(RowKind::NoOwner, owner);
        }
        self.named(RowKind::NoOwner, "compound pages", compound);
        nothing -= guesses.by_name.values().copied().fold(0, u64::saturating_add).min(nothing);
        self.parts.in_change = self.parts.in_change.min(nothing);
        nothing -= self.parts.in_change;
        self.add(RowKind::PerCpuLists, self.parts.in_change);
        self.named(RowKind::NoOwner, "single pages and blocks", nothing);
        self.missing.extend(guesses.missing);
        for (name, pages) in guesses.by_name {
            let name = format!("perhaps of {name}");
            self.named(RowKind::NoOwner, name, pages);
        }
    }

    /// Returns the name of the operations of pages that a driver can move: what `mapping` points to, and of an address space's until
    /// 68f2736a8583 (6.0).
    fn moves(&self, mapping: u64) -> Option<String> {
        let at = mapping & !3;
        let name = |address: u64| Some(self.machine.symbols().name(address)?.readable());
        name(at).or_else(|| {
            let space = self.machine.space().object(at, "address_space").ok()?;
            name(space.get("a_ops").ok()?.pointer().ok()?)
        })
    }

    /// Opens the row of compressed memory, whose pages are counted already, by the pools' own counts.
    fn pools(&mut self) {
        let Some((pages, owners)) = self.rows.get_mut(&RowKind::Zsmalloc) else { return };
        let (pools, _) = watched(self.machine, &mut self.missing, "zsmalloc", |missing| {
            let (pools, broken) = pools(self.machine);
            missing.extend(broken.map(|why| format!("zsmalloc: {why}")));
            pools
        });
        let sum = pools.iter().map(|(_, pages)| *pages).fold(0, u64::saturating_add);
        if sum > *pages {
            self.missing
                .push(format!("zsmalloc: its pools count {sum} pages, more than the {pages} there are"));
            return;
        }
        let rest = (sum < *pages).then(|| (NOT_KNOWN.to_owned(), *pages - sum));
        owners.extend(pools.into_iter().chain(rest).map(|(name, pages)| Owner {
            name,
            pages: PageCount::new(pages),
            ..Owner::default()
        }));
    }

    fn fragmentation(&self, tally: &Tally, caches: &[Cache]) -> Option<Fragmentation> {
        let (blocks, counted) = (&self.rules.blocks, &tally.fragments);
        if !blocks.are_known() {
            return None;
        }
        let mut kinds: Vec<u8> = counted.blocks.keys().copied().collect();
        kinds.extend(counted.free.keys().map(|(kind, _)| *kind));
        kinds.sort_unstable();
        kinds.dedup();
        let types = kinds.into_iter().map(|kind| {
            let orders = counted.free.keys().filter(|(of, _)| *of == kind).map(|(_, order)| order + 1).max();
            let free = |order| counted.free.get(&(kind, order)).copied().unwrap_or(0);
            BlockType {
                name: blocks.name(kind),
                blocks: counted.blocks.get(&kind).copied().unwrap_or(0),
                free: (0..orders.unwrap_or(0)).map(free).collect(),
            }
        });
        let names: HashMap<u64, &str> =
            caches.iter().map(|cache| (cache.address.0, cache.name.as_str())).collect();
        let mut by: HashMap<(RowKind, Option<String>), (u64, u64)> = HashMap::new();
        for (slot, spoilt) in &counted.by {
            let sum = by.entry(self.spoiler(*slot, &names)).or_default();
            *sum = (sum.0.saturating_add(spoilt.blocks), sum.1.saturating_add(spoilt.pages));
        }
        let mut spoilt_by: Vec<Spoiler> = by
            .into_iter()
            .map(|((kind, name), (blocks, pages))| Spoiler {
                kind,
                name,
                blocks,
                pages: PageCount::new(pages),
            })
            .collect();
        spoilt_by
            .sort_by(|a, b| (b.blocks, b.pages, a.kind, &a.name).cmp(&(a.blocks, a.pages, b.kind, &b.name)));
        spoilt_by.truncate(MAX_OWNERS);
        Some(Fragmentation {
            block_pages: PageCount::new(1 << blocks.order),
            types: types.collect(),
            spoilt: counted.spoilt,
            spoilt_by,
            deferred: deferred(self.machine),
        })
    }

    /// The row of a page that cannot move, and its owner. Until 6.18 large kmalloc is among the compound pages.
    fn spoiler(&self, slot: Slot, caches: &HashMap<u64, &str>) -> (RowKind, Option<String>) {
        match slot {
            Slot::Row(row) => (row, None),
            Slot::Claim(number) => match self.rules.claims.claimants.get(number as usize) {
                Some(Claimant::Vmalloc { caller }) => {
                    (RowKind::Vmalloc, Some(caller_name(self.machine, *caller)))
                }
                Some(Claimant::BpfMap { map }) => (RowKind::Vmalloc, Some(map.clone())),
                Some(Claimant::KernelStack) => (RowKind::KernelStacks, None),
                Some(Claimant::PageTable) => (RowKind::PageTables, None),
                Some(Claimant::Pipe) => (RowKind::Pipes, None),
                Some(Claimant::RingBuffer { owner }) => (RowKind::RingBuffers, Some(owner.clone())),
                Some(Claimant::KvmTables { .. }) => (RowKind::KvmTables, None),
                Some(Claimant::IoUring { process }) => (RowKind::IoUring, Some(process.clone())),
                Some(Claimant::Sockets { process }) => (RowKind::Sockets, Some(process.clone())),
                Some(Claimant::Cma { area }) => (RowKind::Cma, Some(area.clone())),
                Some(Claimant::PerCpuList) | None => (RowKind::NoOwner, None),
            },
            Slot::Slab(cache) => (RowKind::Slab, caches.get(&cache).map(|name| (*name).to_owned())),
            Slot::Chunk => (RowKind::PerCpu, None),
            Slot::Typed(number) => (RowKind::Typed, Some(self.rules.fields.type_name(number))),
            Slot::Compound => (RowKind::NoOwner, Some("compound pages".into())),
            _ => (RowKind::NoOwner, Some("single pages and blocks".into())),
        }
    }

    fn notes(&mut self, tally: &Tally) {
        if tally.cut > 0 {
            self.is_whole = false;
            self.add(RowKind::NoOwner, tally.cut);
            self.missing.push(format!("owners: {} pages of more owners than are counted", tally.cut));
        }
        let claims = &self.rules.claims;
        if claims.cut > PageCount::ZERO {
            self.is_whole = false;
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
            self.missing.push(format!("struct pages cannot be read: PFN {pfn:#x}: {what}"));
        }
    }

    fn finish(&mut self, tally: &Tally, caches: &[Cache], cgroups: Cgroups) -> Balance {
        let mut outside = Vec::new();
        if tally.reserved > 0 {
            outside.push(Outside { name: "reserved", pages: PageCount::new(tally.reserved) });
        }
        // Balloons take their pages out of the managed memory, unless they deflate when memory is short.
        let offline = self.rows.get(&RowKind::Offline).map_or(0, |(pages, _)| *pages);
        let sum: u64 = self.rows.values().map(|(pages, _)| pages).sum();
        let managed = self.parts.managed.clone().ok().flatten().map(|pages| pages as u64);
        let unmanaged = sum.saturating_sub(managed.unwrap_or(0)).min(offline);
        if unmanaged > 0 {
            outside.push(Outside { name: RowKind::Offline.name(), pages: PageCount::new(unmanaged) });
            if let Some((pages, _)) = self.rows.get_mut(&RowKind::Offline) {
                *pages -= unmanaged;
            }
        }
        let (fragmentation, lost) = self.machine.losing(|| self.fragmentation(tally, caches));
        self.missing.extend(lost.map(|why| format!("fragmentation: {why}")));
        for (_, owners) in self.rows.values_mut() {
            owners.sort_by(|a, b| b.pages.cmp(&a.pages).then_with(|| a.name.cmp(&b.name)));
        }
        let suspects =
            suspects(self.rows.iter().map(|(kind, (pages, owners))| (*kind, *pages, owners.as_slice())));
        let mut rows = Vec::new();
        for kind in RowKind::ALL {
            let Some((pages, mut owners)) = self.rows.remove(&kind) else { continue };
            if pages == 0 {
                continue;
            }
            let owner_count = owners.len();
            owners.truncate(MAX_OWNERS);
            rows.push(Row { kind, pages: PageCount::new(pages), owners, owner_count });
        }
        let mut balance = Balance {
            page_size: self.rules.kernel.page_size(),
            managed: managed.map(PageCount::new),
            rows,
            outside,
            suspects,
            cgroups,
            generations: None,
            fragmentation,
            stacks: None,
            sites: None,
            slab_users: None,
            kmemleak: None,
            identities: Vec::new(),
            not_made: Vec::new(),
            missing: std::mem::take(&mut self.missing),
            is_whole: self.is_whole,
            incomplete: false,
        };
        (balance.identities, balance.not_made) = identities(
            self.machine,
            |kind| balance.pages(kind).get(),
            balance.sum().get(),
            &self.parts,
            caches,
        );
        balance
    }
}

/// Returns the zones in which compaction is deferred: it failed, and is not tried for some allocations of the order and above.
fn deferred(machine: &Machine<'_>) -> Vec<Deferred> {
    let mut found = Vec::new();
    for (number, node) in nodes(machine).unwrap_or_default().iter().enumerate() {
        for zone in zones_of(node).unwrap_or_default() {
            // At most 6 (COMPACT_MAX_DEFER_SHIFT).
            let shift = zone.number("compact_defer_shift").unwrap_or(0).min(6);
            let skips = 1 << shift;
            let skipped = zone.number("compact_considered").unwrap_or(0);
            if shift == 0 || skipped >= skips {
                continue;
            }
            let order = zone.number("compact_order_failed").unwrap_or(0);
            let name = zone.get("name").and_then(|name| name.text()).unwrap_or_default();
            found.push(Deferred { node: number, zone: name, order, skips, skipped });
        }
    }
    found
}

/// Returns the kernel's own page tables.
fn kernel_tables(kernel: &Kernel, memory: &dyn PhysMemory) -> Vec<Range<Pfn>> {
    let runs = kernel.kernel_mapped_pages(memory).tables.into_iter();
    runs.map(|run| Pfn::new(run.start)..Pfn::new(run.end)).collect()
}

/// Returns the label of anonymous pages that no known process maps.
fn unmapped(mapped: &Result<Option<Mapped>, Fault>) -> &'static str {
    if mapped.is_ok() { "exited processes" } else { NOT_KNOWN }
}

/// Returns the managed pages of all zones. A kernel without data symbols has no zones that can be found: 0.
fn managed(machine: &Machine<'_>) -> Result<u64, Fault> {
    let nodes = match nodes(machine) {
        Err(Fault::NoSymbol(_)) => return Ok(0),
        found => found?,
    };
    let mut pages = 0_u64;
    for node in nodes {
        for zone in zones_of(&node)? {
            pages = pages.saturating_add(zone.number("managed_pages")?);
        }
    }
    Ok(pages)
}
