//! Pages of user space that are kept or left out by their owner, on top of the dump level.

mod file;
mod judge;
mod page_set;

use pagehaul_kernel::{Kernel, KernelError, PageClass, ProcessPagesError, Undecidable};
use pagehaul_machine::Pfn;
use pagehaul_physmem::PhysMemory;
use serde::{Deserialize, Serialize};

pub(crate) use self::judge::{Judge, Verdicts};
use self::page_set::PageSet;

/// What a scan needs to judge the owner of a page: found from the kernel's types by the caller, since a capture does not read them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRules {
    /// Which pages of user space are kept. Without this rule all are.
    pub keep: Option<KeepRules>,
    /// File systems whose cached pages are left out: addresses of their `struct super_block`, ascending; empty if none of a type is
    /// mounted.
    pub drop: Option<Vec<u64>>,
    /// Where an address space names its file.
    pub files: FileLayout,
    /// What the rules say, as lines of text for the dump's record.
    pub record: Vec<String>,
}

/// Whose pages are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepRules {
    /// Processes.
    pub processes: Vec<ProcessTables>,
    /// Memory cgroups.
    pub cgroups: Option<CgroupRules>,
}

/// The page tables of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessTables {
    /// The process in messages: `comm/pid`.
    pub name: String,
    /// Physical address of its top page table.
    pub root: u64,
}

/// How the memory cgroup of a page is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CgroupRules {
    /// Offset in `struct page` of what the page is charged to.
    pub charged_to: usize,
    /// Where a `struct obj_cgroup` points to its cgroup, of kernels that charge pages of user space to those (7.2).
    pub through: Option<u64>,
    /// Addresses of `struct mem_cgroup`, ascending: the named ones with all below them.
    pub groups: Vec<u64>,
}

/// Offsets by which an address space names its file, and a file its file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLayout {
    /// `address_space.host`.
    pub host: u64,
    /// `inode.i_mapping`.
    pub mapping: u64,
    /// `inode.i_data`.
    pub data: u64,
    /// `inode.i_sb`.
    pub super_block: u64,
}

/// Why rules cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// The kernel is not understood.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// A class of pages of user space cannot be told from kernel memory.
    #[error("pages of user space cannot be told from others: {0}")]
    Undecidable(Undecidable),
    /// A page table cannot be read.
    #[error("the pages of the process {name} cannot be found: {source}")]
    Process {
        /// The process.
        name: String,
        /// The cause.
        source: ProcessPagesError,
    },
    /// A process maps nothing.
    #[error("the process {name} maps no page")]
    Nothing {
        /// The process.
        name: String,
    },
    /// The set of pages would take too much memory.
    #[error(
        "to know the pages of the processes takes more memory than there is ({most} bytes): keep the pages of their cgroup instead"
    )]
    TooLarge {
        /// What it may take.
        most: u64,
    },
}

/// Decides which pages of user space are kept, by their owner. Shared by all threads.
#[derive(Debug)]
pub struct OwnerFilter {
    rules: OwnerRules,
    /// The pages that the kept processes map.
    mapped: PageSet,
}

impl OwnerFilter {
    /// Finds the pages of the processes in `rules`, in a set of at most `most` bytes: 32 MiB per TiB of memory at most.
    pub fn new(memory: &dyn PhysMemory, rules: OwnerRules, most: u64) -> Result<Self, OwnerError> {
        let kernel = Kernel::discover(memory)?;
        if let Some(gap) = kernel.undecidable().iter().find(|gap| hides_user_pages(gap, &rules)) {
            return Err(OwnerError::Undecidable(*gap));
        }
        let mut mapped = PageSet::default();
        let end = memory.ranges().end_pfn(kernel.page_size());
        let translator = kernel.space().translator();
        for process in rules.keep.iter().flat_map(|keep| &keep.processes) {
            let (mut pages, mut is_full) = (false, false);
            let mut each = |run: std::ops::Range<Pfn>| {
                // What lies beyond is a device's.
                mapped.insert(run.start.number()..run.end.min(end).number());
                pages |= run.start < end;
                is_full = mapped.bytes() > most;
                !is_full
            };
            let walked =
                translator.pages_of_process(memory.view().as_mut(), process.root, end.number(), &mut each);
            let name = || process.name.clone();
            walked.map_err(|source| OwnerError::Process { name: name(), source })?;
            if is_full {
                return Err(OwnerError::TooLarge { most });
            }
            if !pages {
                return Err(OwnerError::Nothing { name: name() });
            }
        }
        Ok(Self { rules, mapped })
    }

    /// Returns how many pages the kept processes map, those of files and shared ones too.
    pub fn mapped_pages(&self) -> u64 {
        self.mapped.len()
    }

    /// Returns the rules.
    pub fn rules(&self) -> &OwnerRules {
        &self.rules
    }
}

/// Whether pages of user space that must not be in the dump could be taken for kernel memory.
fn hides_user_pages(gap: &Undecidable, rules: &OwnerRules) -> bool {
    match gap.class {
        PageClass::Anon | PageClass::Free => rules.keep.is_some(),
        PageClass::Cache | PageClass::HugeTlb => true,
        _ => false,
    }
}
