//! Rows compared with the kernel's own counters: the report tests itself.

use pagehaul_btf::Fault;
use pagehaul_inspect::{Cache, Counters, Machine, hugetlb_pages};

use pagehaul_machine::PageCount;

use crate::report::{Identity, NotMade, RowKind};

/// A number of the kernel's: none where the kernel has no such counter, or why it cannot be read.
pub(crate) type Counted = Result<Option<i64>, String>;

/// Pages that only identities need.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) managed: Counted,
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
    pub(crate) listed: Counted,
    /// Free pages on lists that a CPU was changing, by the lists' counts.
    pub(crate) in_change: u64,
    /// Pages of per-CPU chunks by the chunks' counts.
    pub(crate) populated: Counted,
    /// Pages of stacks that CPUs keep for new tasks.
    pub(crate) kept_stacks: u64,
    /// Roots among KVM's page tables, which no counter has.
    pub(crate) kvm_roots: u64,
    /// Pages in generations of the LRU, where there are some.
    pub(crate) generations: Counted,
    /// Why some of KVM's page tables may be missing.
    pub(crate) kvm_broken: Option<String>,
    /// Why some files may not be read.
    pub(crate) files_broken: Option<String>,
    /// Why some areas of vmalloc may be missing.
    pub(crate) vmalloc_broken: Option<String>,
    /// Why some slab caches are missing.
    pub(crate) caches_broken: Option<String>,
    /// Pages that `page_owner` has as allocated.
    pub(crate) allocated: Option<i64>,
}

impl Default for Parts {
    fn default() -> Self {
        let none = || Ok(None);
        Self {
            managed: none(),
            cached: 0,
            shmem: 0,
            by_nrpages: 0,
            read_files: 0,
            anon_in_swap_cache: 0,
            shmem_in_swap_cache: 0,
            unmapped: 0,
            marked_tables: 0,
            slabs: 0,
            listed: none(),
            in_change: 0,
            populated: none(),
            kept_stacks: 0,
            kvm_roots: 0,
            kvm_broken: None,
            files_broken: None,
            vmalloc_broken: None,
            caches_broken: None,
            generations: none(),
            allocated: None,
        }
    }
}

/// Compares.
pub(crate) fn identities(
    machine: &Machine<'_>,
    pages: impl Fn(RowKind) -> u64,
    sum: u64,
    parts: &Parts,
    caches: &[Cache],
) -> (Vec<Identity>, Vec<NotMade>) {
    let (mut found, mut not_made) = (Vec::new(), Vec::new());
    let mut compare = |what, pages: u64, counter, counted: Counted| match counted {
        Ok(Some(counted)) => found.push(Identity { what, pages: pages as i64, counter, counted }),
        // The kernel has no such counter.
        Ok(None) => {}
        Err(why) => not_made.push(NotMade { what, counter, why }),
    };
    let counters = Counters::new(machine).map_err(|why| why.to_string());
    let of = |name: &str| -> Counted {
        counters.as_ref().map_err(String::clone)?.read(name).map_err(|why| why.to_string())
    };
    let is_read = |broken: &Option<String>| broken.clone().map_or(Ok(()), Err);
    compare("all rows", sum, "managed pages of all zones", parts.managed.clone());
    compare("free", pages(RowKind::Free) + pages(RowKind::Unaccepted), "NR_FREE_PAGES", of("NR_FREE_PAGES"));
    let in_use = RowKind::ALL.into_iter().filter(|kind| !kind.is_free()).map(&pages).sum();
    compare("all that is not free", in_use, "page_owner", Ok(parts.allocated));
    let listed = pages(RowKind::PerCpuLists).saturating_sub(parts.in_change);
    compare("free, per-CPU lists", listed, "per_cpu_pages.count", parts.listed.clone());
    let cached = parts.cached + parts.anon_in_swap_cache + parts.shmem_in_swap_cache;
    compare("files, tmpfs and swap cache", cached, "NR_FILE_PAGES", of("NR_FILE_PAGES"));
    compare("tmpfs and shared memory", parts.shmem, "NR_SHMEM", of("NR_SHMEM"));
    let by_nrpages = (parts.read_files > 0).then_some(parts.by_nrpages as i64);
    let by_nrpages = is_read(&parts.files_broken).map(|()| by_nrpages);
    compare("pages of files", parts.cached, "address_space.nrpages", by_nrpages);
    let mapped = pages(RowKind::Anonymous).saturating_sub(parts.unmapped);
    compare("anonymous, mapped", mapped, "NR_ANON_MAPPED", of("NR_ANON_MAPPED"));
    // With generations the lists of active and inactive pages are empty, but their counters go on (`lru_gen_update_size`).
    let lists = ["NR_INACTIVE_ANON", "NR_ACTIVE_ANON", "NR_INACTIVE_FILE", "NR_ACTIVE_FILE"];
    let sum_of = |names: &[&str]| -> Counted {
        let counts = names.iter().map(|name| of(name)).collect::<Result<Vec<_>, String>>()?;
        Ok(counts.into_iter().try_fold(0_i64, |sum, count| Some(sum.saturating_add(count?))))
    };
    let in_generations = parts.generations.clone();
    let on_lists = match &in_generations {
        Ok(None) => Ok(None),
        Ok(Some(_)) => sum_of(&lists),
        Err(why) => Err(why.clone()),
    };
    let in_generations = in_generations.ok().flatten().unwrap_or(0).max(0) as u64;
    compare("generations of the LRU", in_generations, "NR_ACTIVE_*, NR_INACTIVE_*", on_lists);
    let kmalloc = pages(RowKind::Slab) + pages(RowKind::LargeKmalloc);
    compare(
        "slab and large kmalloc",
        kmalloc,
        "NR_SLAB_*",
        is_read(&parts.caches_broken)
            .and_then(|()| sum_of(&["NR_SLAB_RECLAIMABLE_B", "NR_SLAB_UNRECLAIMABLE_B"])),
    );
    // Slabs and not their pages: the allocator takes smaller ones when memory is short (`kmem_cache.min`).
    let by_cache = caches.iter().map(|cache| cache.slabs).fold(0, u64::saturating_add);
    let by_cache = is_read(&parts.caches_broken).map(|()| (!caches.is_empty()).then_some(by_cache as i64));
    compare("number of slabs", parts.slabs, "kmem_cache_node.nr_slabs", by_cache);
    let vmalloc = match of("NR_VMALLOC") {
        // A variable in older kernels. In 6.18 it is a counter of each node.
        Ok(None) => variable(machine.u64("nr_vmalloc_pages")),
        found => found,
    };
    compare(
        "vmalloc and stacks",
        pages(RowKind::Vmalloc) + pages(RowKind::KernelStacks),
        "NR_VMALLOC",
        is_read(&parts.vmalloc_broken).and(vmalloc),
    );
    let page_size = machine.kernel().page_size();
    let stacks = is_read(&parts.vmalloc_broken).and_then(|()| of("NR_KERNEL_STACK_KB")).map(|kib| {
        let bytes = u64::try_from(kib?).unwrap_or(0).saturating_mul(1024);
        Some(PageCount::of_bytes(bytes, page_size).get() as i64 + parts.kept_stacks as i64)
    });
    compare("kernel stacks", pages(RowKind::KernelStacks), "NR_KERNEL_STACK_KB and cached stacks", stacks);
    compare("page tables, marked", parts.marked_tables, "NR_PAGETABLE", of("NR_PAGETABLE"));
    // 43a063cab325 (6.1). The counter has tables of IOMMUs, too, where these are counted.
    let secondary = of("NR_SECONDARY_PAGETABLE").and_then(|pages| {
        let of_iommus = of("NR_IOMMU_PAGES")?.unwrap_or(0);
        Ok(pages.map(|pages| pages.saturating_sub(of_iommus)))
    });
    let tables = pages(RowKind::KvmTables);
    if tables > 0 || parts.kvm_broken.is_some() {
        let tables = tables.saturating_sub(parts.kvm_roots);
        let secondary = is_read(&parts.kvm_broken).and(secondary);
        compare("KVM page tables, but roots", tables, "NR_SECONDARY_PAGETABLE", secondary);
    }
    let huge = variable(hugetlb_pages(machine).map(PageCount::get));
    compare("huge pages", pages(RowKind::HugeTlb), "hstate.nr_huge_pages", huge);
    compare("zsmalloc", pages(RowKind::Zsmalloc), "NR_ZSPAGES", of("NR_ZSPAGES"));
    compare("per-CPU memory", pages(RowKind::PerCpu), "pcpu_chunk.nr_populated", parts.populated.clone());
    (found, not_made)
}

/// A number that is not among the counters.
pub(crate) fn variable(read: Result<u64, Fault>) -> Counted {
    match read {
        Ok(pages) => Ok(Some(pages as i64)),
        Err(Fault::NoSymbol(_) | Fault::NoType(_)) => Ok(None),
        Err(why) => Err(why.to_string()),
    }
}
