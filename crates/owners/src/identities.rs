//! Rows compared with the kernel's own counters: the report tests itself.

use pagehaul_inspect::{Cache, Counters, Machine, hugetlb_pages};

use pagehaul_machine::PageCount;

use crate::report::{Identity, RowKind};

/// Pages that only identities need.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// `None`: the zones cannot be read, as without data symbols.
    pub(crate) managed: Option<u64>,
    /// Pages of address spaces: those of shared memory among them, and their own counts (`nrpages`).
    pub(crate) cached: u64,
    pub(crate) shmem: u64,
    pub(crate) by_nrpages: u64,
    /// Files whose address spaces can be read.
    pub(crate) read_files: u64,
    /// Anonymous pages in the swap cache, which the counter of cached pages has.
    pub(crate) anon_in_swap_cache: u64,
    pub(crate) shmem_in_swap_cache: u64,
    /// Anonymous pages that no process maps.
    pub(crate) unmapped: u64,
    /// Page tables that are marked.
    pub(crate) marked_tables: u64,
    /// Slabs, of any number of pages.
    pub(crate) slabs: u64,
    /// Free pages on per-CPU lists by the lists' counts.
    pub(crate) listed: Option<i64>,
    /// Free pages on lists that a CPU was changing, by the lists' counts.
    pub(crate) in_change: u64,
    /// Pages of per-CPU chunks by the chunks' counts.
    pub(crate) populated: Option<i64>,
    /// Pages of stacks that CPUs keep for new tasks.
    pub(crate) kept_stacks: u64,
    /// Roots among KVM's page tables, which no counter has.
    pub(crate) kvm_roots: u64,
    /// Pages in generations of the LRU, where there are some.
    pub(crate) generations: Option<i64>,
    /// Pages that `page_owner` has as allocated.
    pub(crate) allocated: Option<i64>,
}

/// Compares.
pub(crate) fn identities(
    machine: &Machine<'_>,
    pages: impl Fn(RowKind) -> u64,
    sum: u64,
    parts: &Parts,
    caches: &[Cache],
) -> Vec<Identity> {
    let mut found = Vec::new();
    let mut compare = |what, pages: u64, counter, counted: Option<i64>| {
        if let Some(counted) = counted {
            found.push(Identity { what, pages: pages as i64, counter, counted });
        }
    };
    let counters = Counters::new(machine).ok();
    let of = |name: &str| counters.as_ref().and_then(|counters| counters.get(name));
    compare("all rows", sum, "managed pages of all zones", parts.managed.map(|pages| pages as i64));
    compare("free", pages(RowKind::Free) + pages(RowKind::Unaccepted), "NR_FREE_PAGES", of("NR_FREE_PAGES"));
    let in_use = RowKind::ALL.into_iter().filter(|kind| !kind.is_free()).map(&pages).sum();
    compare("all that is not free", in_use, "page_owner", parts.allocated);
    let listed = pages(RowKind::PerCpuLists).saturating_sub(parts.in_change);
    compare("free, per-CPU lists", listed, "per_cpu_pages.count", parts.listed);
    let cached = parts.cached + parts.anon_in_swap_cache + parts.shmem_in_swap_cache;
    compare("files, tmpfs and swap cache", cached, "NR_FILE_PAGES", of("NR_FILE_PAGES"));
    compare("tmpfs and shared memory", parts.shmem, "NR_SHMEM", of("NR_SHMEM"));
    let by_nrpages = (parts.read_files > 0).then_some(parts.by_nrpages as i64);
    compare("pages of files", parts.cached, "address_space.nrpages", by_nrpages);
    let mapped = pages(RowKind::Anonymous).saturating_sub(parts.unmapped);
    compare("anonymous, mapped", mapped, "NR_ANON_MAPPED", of("NR_ANON_MAPPED"));
    // With generations the lists of active and inactive pages are empty, but their counters go on (`lru_gen_update_size`).
    let lists = ["NR_INACTIVE_ANON", "NR_ACTIVE_ANON", "NR_INACTIVE_FILE", "NR_ACTIVE_FILE"];
    let on_lists = lists.iter().try_fold(0_i64, |sum, name| Some(sum.saturating_add(of(name)?)));
    if let Some((generations, counted)) = parts.generations.zip(on_lists) {
        compare(
            "generations of the LRU",
            generations.max(0) as u64,
            "NR_ACTIVE_*, NR_INACTIVE_*",
            Some(counted),
        );
    }
    let slab = of("NR_SLAB_RECLAIMABLE_B").zip(of("NR_SLAB_UNRECLAIMABLE_B"));
    let kmalloc = pages(RowKind::Slab) + pages(RowKind::LargeKmalloc);
    compare(
        "slab and large kmalloc",
        kmalloc,
        "NR_SLAB_*",
        slab.map(|(one, other)| one.saturating_add(other)),
    );
    // Slabs and not their pages: the allocator takes smaller ones when memory is short (`kmem_cache.min`).
    let by_cache = caches.iter().map(|cache| cache.slabs).fold(0, u64::saturating_add);
    let by_cache = (!caches.is_empty()).then_some(by_cache as i64);
    compare("number of slabs", parts.slabs, "kmem_cache_node.nr_slabs", by_cache);
    let vmalloc = of("NR_VMALLOC").or_else(|| machine.u64("nr_vmalloc_pages").ok().map(|pages| pages as i64));
    compare(
        "vmalloc and stacks",
        pages(RowKind::Vmalloc) + pages(RowKind::KernelStacks),
        "NR_VMALLOC",
        vmalloc,
    );
    let page_size = machine.kernel().page_size();
    let stacks = of("NR_KERNEL_STACK_KB").map(|kib| {
        let bytes = u64::try_from(kib).unwrap_or(0).saturating_mul(1024);
        PageCount::of_bytes(bytes, page_size).get() as i64 + parts.kept_stacks as i64
    });
    compare("kernel stacks", pages(RowKind::KernelStacks), "NR_KERNEL_STACK_KB and cached stacks", stacks);
    compare("page tables, marked", parts.marked_tables, "NR_PAGETABLE", of("NR_PAGETABLE"));
    // 43a063cab325 (6.1). The counter has tables of IOMMUs, too, where these are counted.
    let secondary = of("NR_SECONDARY_PAGETABLE");
    let secondary = secondary.map(|pages| pages.saturating_sub(of("NR_IOMMU_PAGES").unwrap_or(0)));
    if let tables @ 1.. = pages(RowKind::KvmTables) {
        let tables = tables.saturating_sub(parts.kvm_roots);
        compare("KVM page tables, but roots", tables, "NR_SECONDARY_PAGETABLE", secondary);
    }
    let huge = hugetlb_pages(machine).ok().map(|pages| pages.get() as i64);
    compare("huge pages", pages(RowKind::HugeTlb), "hstate.nr_huge_pages", huge);
    compare("zsmalloc", pages(RowKind::Zsmalloc), "NR_ZSPAGES", of("NR_ZSPAGES"));
    compare("per-CPU memory", pages(RowKind::PerCpu), "pcpu_chunk.nr_populated", parts.populated);
    found
}
