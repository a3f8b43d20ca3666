//! The report.

use pagehaul_machine::{PageCount, PageSize};
use serde::{Deserialize, Serialize};

/// What pages are counted as. Each managed page is in one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowKind {
    /// Free, in the buddy allocator.
    Free,
    /// Free, on the lists of a CPU.
    PerCpuLists,
    /// Memory that a confidential guest never accepted.
    Unaccepted,
    /// Anonymous memory of processes.
    Anonymous,
    /// Page cache of files, block devices' too.
    File,
    /// tmpfs, System V shared memory, memfd, shared anonymous memory.
    Shmem,
    /// Pages of HugeTLB, free ones too.
    HugeTlb,
    /// Slab caches.
    Slab,
    /// `kmalloc` of more than a slab cache has.
    LargeKmalloc,
    /// vmalloc areas but stacks.
    Vmalloc,
    /// Stacks of tasks.
    KernelStacks,
    /// Page tables of processes and the kernel.
    PageTables,
    /// Page tables that KVM makes for its guests.
    KvmTables,
    /// Chunks of per-CPU memory.
    PerCpu,
    /// Buffers of pipes.
    Pipes,
    /// Packets in the queues of sockets, but those of slab caches.
    Sockets,
    /// Ring buffers of tracing and of perf events.
    RingBuffers,
    /// Rings of io_uring.
    IoUring,
    /// Pages that drivers have of areas for contiguous memory.
    Cma,
    /// Receive buffers of network devices.
    PagePool,
    /// Compressed memory of zram and zswap.
    Zsmalloc,
    /// Pages that a driver can move, or of another type.
    Typed,
    /// Given back to the hypervisor.
    Offline,
    /// Poisoned by memory errors.
    HwPoison,
    /// Their struct pages cannot be read or contradict each other.
    Undecided,
    /// Allocated by drivers and the kernel, which leave no mark.
    NoOwner,
}

impl RowKind {
    /// All rows in the order in which they are shown.
    pub const ALL: [Self; 26] = [
        Self::Anonymous,
        Self::File,
        Self::Shmem,
        Self::HugeTlb,
        Self::Slab,
        Self::LargeKmalloc,
        Self::Vmalloc,
        Self::KernelStacks,
        Self::PageTables,
        Self::KvmTables,
        Self::PerCpu,
        Self::Pipes,
        Self::Sockets,
        Self::RingBuffers,
        Self::IoUring,
        Self::Cma,
        Self::PagePool,
        Self::Zsmalloc,
        Self::Typed,
        Self::HwPoison,
        Self::Offline,
        Self::Unaccepted,
        Self::Undecided,
        Self::NoOwner,
        Self::PerCpuLists,
        Self::Free,
    ];

    /// Returns the name in tables and sentences.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::PerCpuLists => "free, per-CPU lists",
            Self::Unaccepted => "unaccepted",
            Self::Anonymous => "anonymous",
            Self::File => "files",
            Self::Shmem => "tmpfs and shared memory",
            Self::HugeTlb => "huge pages",
            Self::Slab => "slab",
            Self::LargeKmalloc => "large kmalloc",
            Self::Vmalloc => "vmalloc",
            Self::KernelStacks => "kernel stacks",
            Self::PageTables => "page tables",
            Self::KvmTables => "KVM page tables",
            Self::PerCpu => "per-CPU memory",
            Self::Pipes => "pipes",
            Self::Sockets => "sockets",
            Self::RingBuffers => "ring buffers",
            Self::IoUring => "io_uring",
            Self::Cma => "CMA",
            Self::PagePool => "page pools",
            Self::Zsmalloc => "zsmalloc",
            Self::Typed => "other types",
            Self::Offline => "offline (balloon)",
            Self::HwPoison => "hardware poison",
            Self::Undecided => "undecided",
            Self::NoOwner => "no owner known",
        }
    }

    /// Returns whether its owners are processes, of ring buffers only some.
    pub const fn is_of_processes(self) -> bool {
        matches!(
            self,
            Self::Anonymous
                | Self::HugeTlb
                | Self::PageTables
                | Self::KvmTables
                | Self::Sockets
                | Self::RingBuffers
                | Self::IoUring
        )
    }

    /// Returns whether its pages are free.
    pub const fn is_free(self) -> bool {
        matches!(self, Self::Free | Self::PerCpuLists | Self::Unaccepted)
    }
}

/// Where the memory of a machine is. All numbers are pages.
#[derive(Debug, Clone, Serialize)]
pub struct Balance {
    /// Bytes of a page.
    pub page_size: PageSize,
    /// Pages that the allocator manages (`managed_pages` of all zones); `None` if no zone can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed: Option<PageCount>,
    /// Rows that have pages. Their sum is `managed` if the first identity holds.
    pub rows: Vec<Row>,
    /// Pages that the allocator does not manage.
    pub outside: Vec<Outside>,
    /// Who can have taken the memory, the largest first.
    pub suspects: Vec<Suspect>,
    /// Memory cgroups.
    pub cgroups: Cgroups,
    /// Generations of the LRU; `None`: the kernel has no multi-gen LRU, or it is off, or `missing` says that they were not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generations: Option<Generations>,
    /// How fragmented memory is; `None` if the types of page blocks cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragmentation: Option<Fragmentation>,
    /// Stacks that allocated pages; `None`: the kernel kept none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stacks: Option<Stacks>,
    /// Places in the source that allocated memory; `None`: the kernel did not count them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sites: Option<Sites>,
    /// Who allocated slab objects; `None`: the kernel kept no records of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slab_users: Option<SlabUsers>,
    /// What kmemleak tracked; `None`: the kernel has none, or it is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kmemleak: Option<Kmemleak>,
    /// Rows compared with the kernel's counters.
    pub identities: Vec<Identity>,
    /// Comparisons that could not be made, of counters that the kernel has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_made: Vec<NotMade>,
    /// What is missing or was cut, one sentence each.
    pub missing: Vec<String>,
    /// Whether the dump lacks no page, and all structures by which rows and owners are found were read to their ends. Struct pages that
    /// cannot be read are in the row [`RowKind::Undecided`] instead.
    pub is_whole: bool,
    /// Whether the dump lacks pages.
    pub incomplete: bool,
}

impl Balance {
    /// Returns the pages of a row.
    pub fn pages(&self, kind: RowKind) -> PageCount {
        self.row(kind).map_or(PageCount::ZERO, |row| row.pages)
    }

    /// Returns a row that has pages.
    pub fn row(&self, kind: RowKind) -> Option<&Row> {
        self.rows.iter().find(|row| row.kind == kind)
    }

    /// Returns the sum of all rows.
    pub fn sum(&self) -> PageCount {
        self.rows.iter().map(|row| row.pages).sum()
    }

    /// Returns the rows of memory in use, the largest first.
    pub fn largest(&self) -> impl Iterator<Item = &Row> {
        let mut rows: Vec<&Row> = self.rows.iter().filter(|row| !row.kind.is_free()).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.pages));
        rows.into_iter()
    }

    /// Returns the identities that do not hold.
    pub fn broken(&self) -> impl Iterator<Item = &Identity> {
        self.identities.iter().filter(|identity| !identity.holds())
    }
}

/// A row: pages with one kind of owner.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub kind: RowKind,
    pub pages: PageCount,
    /// The largest owners.
    pub owners: Vec<Owner>,
    /// Number of all owners.
    pub owner_count: usize,
}

/// An owner of pages.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Owner {
    /// Name: a path, a process, a slab cache, a function.
    pub name: String,
    pub pages: PageCount,
    /// What else is known, one phrase each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Of files only.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileDetail>,
    /// Of pages whose allocation is on record.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<Allocation>,
}

/// Who allocated an owner's pages, by `page_owner`; all is empty if an allocation tag says it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Allocation {
    /// Functions on the stack of the most of them, the innermost first.
    pub stack: Vec<String>,
    /// Tasks that allocated them, those with the most pages first. Other tasks can use them by now.
    pub allocated_by: Vec<String>,
    /// Number of these tasks.
    pub tasks: usize,
}

/// Stacks that allocated pages, by `page_owner`: all pages, those of other rows among them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Stacks {
    /// Pages that are allocated.
    pub allocated: PageCount,
    /// Those of them that were allocated before `page_owner` started.
    pub early: PageCount,
    /// Those that it allocated itself, or had no memory to save the stack of.
    pub unsaved: PageCount,
    /// Those whose stacks cannot be read.
    pub unread: PageCount,
    /// Pages of which no record can be read. They may be allocated.
    pub not_known: PageCount,
    /// The stacks with the most pages.
    pub largest: Vec<AllocationStack>,
    /// Number of all stacks.
    pub count: usize,
}

/// A stack that allocated pages.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AllocationStack {
    /// Pages that it allocated.
    pub pages: PageCount,
    /// Its functions, the innermost first.
    pub stack: Vec<String>,
}

/// Who allocated slab objects, by the records of `slub_debug`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SlabUsers {
    /// Caches that keep records.
    pub caches: usize,
    /// Their objects in use.
    pub objects: u64,
    /// Those without a record, or whose stack cannot be read.
    pub unrecorded: u64,
    /// Whether all their slabs were read.
    pub is_whole: bool,
    /// The caches' stacks with the most bytes.
    pub largest: Vec<SlabUser>,
    /// Number of all stacks of all caches.
    pub count: usize,
}

/// Objects of one cache that one stack allocated.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SlabUser {
    /// Name of the cache.
    pub cache: String,
    /// Objects in use.
    pub objects: u64,
    /// Bytes of them, with what surrounds them.
    pub bytes: u64,
    /// Functions of the stack, the innermost first.
    pub stack: Vec<String>,
    /// IDs of the tasks that allocated the most. They can be gone, and others can have their IDs.
    pub pids: Vec<u32>,
    /// Number of these tasks, up to 256.
    pub tasks: usize,
}

/// Objects that kmemleak tracked: slab objects, vmalloc areas, per-CPU memory, early allocations.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Kmemleak {
    /// Objects that are allocated.
    pub objects: u64,
    /// Bytes of them, by kmemleak's sizes. Per-CPU memory counts for one CPU.
    pub bytes: u64,
    /// Those of them that the last scan left without enough references: what `/sys/kernel/debug/kmemleak` had.
    pub unreferenced: u64,
    pub unreferenced_bytes: u64,
    /// Seconds from the start of the last scan to the end; `None`: it never scanned, or that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scanned: Option<u64>,
    /// Whether it tracked to the end. It stops when it has no memory, and objects that were freed since can remain.
    pub is_enabled: bool,
    /// Objects without a stack, or whose stack cannot be read.
    pub unrecorded: u64,
    /// Whether all objects were read.
    pub is_whole: bool,
    /// The stacks with the most bytes of unreferenced objects.
    pub leaks: Vec<KmemleakUser>,
    /// Number of all stacks of unreferenced objects.
    pub leak_count: usize,
    /// The stacks with the most bytes.
    pub largest: Vec<KmemleakUser>,
    /// Number of all stacks.
    pub count: usize,
}

/// Objects of kmemleak that one stack allocated.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KmemleakUser {
    pub objects: u64,
    pub bytes: u64,
    /// Functions of the stack, the innermost first.
    pub stack: Vec<String>,
    /// Tasks that allocated the most; interrupts are `hardirq/0` and `softirq/0`.
    pub allocated_by: Vec<String>,
    /// Number of these tasks, up to 256.
    pub tasks: usize,
}

/// Places in the source that allocated memory, by allocation tags: what /proc/allocinfo had.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sites {
    /// Bytes of all places. Slabs count twice: as pages, and as objects.
    pub bytes: i64,
    /// Allocations of all places.
    pub calls: i64,
    /// The places with the most bytes.
    pub largest: Vec<Site>,
    /// Number of all places that count something.
    pub count: usize,
}

/// A place in the source.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// File.
    pub file: String,
    /// Line.
    pub line: u32,
    /// Function.
    pub function: String,
    /// Module; `None`: the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Bytes that it has allocated.
    pub bytes: i64,
    /// Allocations that it has.
    pub calls: i64,
}

/// What is known of a file.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FileDetail {
    /// Type of the file system.
    pub filesystem: String,
    /// Directory at which the file system is mounted; `None` if it is the kernel's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// Device of the file system (`s_id`).
    pub device: String,
    /// Inode number.
    pub inode: u64,
    /// Size in bytes.
    pub size: u64,
    /// Dirty pages, of file systems that write back.
    pub dirty: PageCount,
    /// Pages under writeback.
    pub writeback: PageCount,
    /// Pages in swap, of shared memory.
    pub swapped: PageCount,
    /// Whether it was deleted: it had a name, and has none left.
    pub deleted: bool,
    /// Processes that have it open or mapped, of files without a name.
    pub held_by: Vec<String>,
    /// Number of these processes.
    pub holders: usize,
}

/// Owners that belong together: files of one mount, processes of one name, a slab cache, callers of vmalloc, or a whole row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Suspect {
    /// The row of its pages.
    pub kind: RowKind,
    /// Directory of the mount or device, `comm/pid`, the name of several processes, slab cache, function; `None`: the whole row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub pages: PageCount,
    /// Number of owners.
    pub members: usize,
    /// The largest of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest: Option<(String, PageCount)>,
    /// Number of files that were deleted, and are held.
    pub deleted: usize,
    pub deleted_pages: PageCount,
    /// Some of the processes that hold them.
    pub held_by: Vec<String>,
    /// Number of processes that hold one of them, at least.
    pub holders: usize,
    /// Whether `name` is a directory at which a file system is mounted.
    pub mounted: bool,
}

/// How fragmented memory is, and by whom.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Fragmentation {
    pub block_pages: PageCount,
    /// By migrate type of page blocks.
    pub types: Vec<BlockType>,
    /// Blocks for movable pages that have a page which cannot move: no huge page can be made of them.
    pub spoilt: u64,
    /// Owners of these pages, by the number of blocks. A block counts for each of its owners.
    pub spoilt_by: Vec<Spoiler>,
    /// Zones that have given up compaction for a while.
    pub deferred: Vec<Deferred>,
}

/// Page blocks of one migrate type.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BlockType {
    /// `unmovable`, `movable`, `reclaimable` …
    pub name: String,
    /// Page blocks that are not all reserved.
    pub blocks: u64,
    /// Free blocks of the buddy allocator by order.
    pub free: Vec<u64>,
}

/// Who spoils page blocks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spoiler {
    /// The row of its pages.
    pub kind: RowKind,
    /// Slab cache, function or type of page; `None`: the whole row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Page blocks.
    pub blocks: u64,
    /// Pages in them.
    pub pages: PageCount,
}

/// A zone in which compaction is deferred (`compact_defer_shift`).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Deferred {
    /// NUMA node.
    pub node: usize,
    /// Name of the zone.
    pub zone: String,
    /// The order from which it is deferred.
    pub order: u64,
    /// Attempts that are skipped altogether.
    pub skips: u64,
    /// Attempts skipped so far.
    pub skipped: u64,
}

/// Memory cgroups.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Cgroups {
    /// The largest by usage, and all that reached a limit; parents come before their children.
    pub largest: Vec<Cgroup>,
    /// Number of all.
    pub count: usize,
    /// Removed ones that still have pages.
    pub removed: usize,
    /// Pages of these, without those of their children.
    pub removed_pages: PageCount,
}

/// A memory cgroup.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cgroup {
    /// Path from the root of the hierarchy.
    pub path: String,
    /// Pages charged to it and its children, those in the stocks of CPUs among them; `None`: the counter is damaged, as it has more
    /// pages than the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<PageCount>,
    /// The most that it may use; `None`: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<PageCount>,
    /// What it is throttled from; `None`: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<PageCount>,
    /// The most that it used; `None`: not known, or damaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<PageCount>,
    /// Pages in swap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<PageCount>,
    /// Events (`memory.events`, without those of its children), by the kernel's names, those that happened.
    pub events: Vec<(String, u64)>,
    /// Whether it was removed, and stays because pages are charged to it.
    pub removed: bool,
    /// Number of processes in it.
    pub processes: usize,
    /// One of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
}

impl Cgroup {
    /// Returns how often an event happened.
    pub fn events(&self, name: &str) -> u64 {
        self.events.iter().find(|(known, _)| known == name).map_or(0, |(_, times)| *times)
    }

    /// Returns whether it has used up its limit, but for less than two percent: CPUs charge 64 pages at a time.
    pub fn is_full(&self) -> bool {
        self.max.zip(self.usage).is_some_and(|(max, usage)| {
            let (usage, max) = (usage.get(), max.get());
            usage.saturating_add((max / 50).max(64)) >= max
        })
    }
}

/// Generations of the multi-gen LRU: pages that can be reclaimed, by the age of their generation, as debugfs lru_gen has them.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Generations {
    /// Pages of all cgroups by age, the youngest first; ages without pages are left out.
    pub ages: Vec<Age>,
    /// Pages of generations whose age cannot be read.
    pub age_not_known: PageCount,
    /// The cgroups with the most pages, each on each node; those without pages are left out.
    pub largest: Vec<CgroupGenerations>,
    /// Number of all of them.
    pub count: usize,
}

/// Pages of generations that are about as old.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Age {
    /// The age of the oldest, in milliseconds; `None`: older than any that has a limit. The one before is the age of the youngest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up_to_ms: Option<u64>,
    /// Anonymous pages, shared memory among them.
    pub anonymous: PageCount,
    /// Pages of files.
    pub file: PageCount,
}

/// The generations of a memory cgroup on a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CgroupGenerations {
    /// Path from the root of the hierarchy. The root has all pages where there are no memory cgroups.
    pub path: String,
    /// NUMA node.
    pub node: u64,
    /// The oldest first.
    pub generations: Vec<Generation>,
}

/// A generation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Generation {
    /// Its number. The largest is the youngest.
    pub seq: u64,
    /// Milliseconds from when it became the youngest until the end; `None` if that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// Anonymous pages, shared memory among them.
    pub anonymous: PageCount,
    /// Pages of files.
    pub file: PageCount,
}

impl Generation {
    /// Returns all its pages.
    pub fn pages(&self) -> PageCount {
        self.anonymous + self.file
    }
}

/// Pages that the allocator does not manage.
#[derive(Debug, Clone, Serialize)]
pub struct Outside {
    /// What they are.
    pub name: &'static str,
    pub pages: PageCount,
}

/// A row, or a part of one, compared with what the kernel counts.
#[derive(Debug, Clone, Serialize)]
pub struct Identity {
    /// What is compared.
    pub what: &'static str,
    /// Pages of the rows.
    pub pages: i64,
    /// Where the other number is from.
    pub counter: &'static str,
    /// Pages by the kernel's own count.
    pub counted: i64,
}

impl Identity {
    /// Returns whether both numbers are the same.
    pub fn holds(&self) -> bool {
        self.pages == self.counted
    }

    /// Returns how many pages more the rows have.
    pub fn difference(&self) -> i64 {
        self.pages.saturating_sub(self.counted)
    }
}

/// A comparison that could not be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotMade {
    /// What would be compared.
    pub what: &'static str,
    /// Where the other number would be from.
    pub counter: &'static str,
    /// Why it could not be.
    pub why: String,
}
