//! Describes a machine, page by page.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Era;
use crate::arm64::{self, Arm64};
use crate::block::Block;
use crate::class::Kind;
use crate::content::{Content, Noise};
use crate::memmap::Array;
use crate::riscv64::{self, Riscv64};
use crate::setup::{Memmap, Setup, Sparse};
use crate::structs::Writer;

/// A description of a machine. Methods return `&mut Self`, so they chain.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(crate) setup: Setup,
    pub(crate) blocks: Vec<Block>,
    pub(crate) poisoned: Vec<u64>,
    /// Free pages on lists other than the buddy allocator's, and their links.
    pub(crate) listed: Vec<(u64, [u64; 2])>,
    /// Pages whose `private` points to something.
    pub(crate) privates: Vec<(u64, u64)>,
    pub(crate) contents: BTreeMap<u64, Content>,
    /// Contents of frames of 4 KiB.
    pub(crate) frames: BTreeMap<u64, Content>,
    pub(crate) mappings: Vec<(u64, u64, u64)>,
}

macro_rules! one_page {
    ($($(#[$doc:meta])* $name:ident => $kind:ident;)*) => {
        $($(#[$doc])* pub fn $name(&mut self, pfn: u64) -> &mut Self { self.page(Kind::$kind, pfn, 0) })*
    };
}

macro_rules! many_pages {
    ($($(#[$doc:meta])* $name:ident => $kind:ident;)*) => {
        $($(#[$doc])* pub fn $name(&mut self, pfn: u64, order: u32) -> &mut Self {
            self.page(Kind::$kind, pfn, order)
        })*
    };
}

/// Hardware, kernel placement and memory model.
impl Machine {
    /// Describes an x86_64 machine of 108 MiB with 2 CPUs that runs a kernel of `era`: 4-level page tables,
    /// no KASLR, SPARSEMEM_EXTREME with a vmemmap of 2 MiB pages.
    pub fn new(era: Era) -> Self {
        Self {
            setup: Setup::new(era),
            blocks: Vec::new(),
            poisoned: Vec::new(),
            listed: Vec::new(),
            privates: Vec::new(),
            contents: BTreeMap::new(),
            frames: BTreeMap::new(),
            mappings: Vec::new(),
        }
    }

    /// Describes an arm64 machine of 108 MiB that starts at 1 GiB, with 2 CPUs.
    pub fn arm64(era: Era, layout: Arm64) -> Self {
        assert!(era >= Era::V5_10, "arm64 machines run 5.10 or later");
        let is_new = layout.va_bits > 48 && layout.page_shift < 16;
        assert!(!is_new || era >= Era::V6_9, "pages of 4 and 16 KiB have 52 bits since 6.9");
        let mut machine = Self::new(era);
        machine.setup.arm64 = Some(layout);
        machine.setup.load = arm64::RAM_START + 0x20_0000;
        // f0b13ee23241 (5.12).
        machine.setup.section_bits = match layout.page_shift {
            _ if era < Era::V6_1 => 30,
            16 => 29,
            _ => 27,
        };
        if layout.page_shift > 12 {
            machine.setup.memmap = Memmap::VmemmapSmall;
        }
        machine
    }

    /// Describes a riscv64 machine of 108 MiB that starts at 2 GiB, with 2 CPUs.
    pub fn riscv64(era: Era, layout: Riscv64) -> Self {
        assert!(era >= Era::V6_6, "riscv64 kernels export what is needed since 6.5");
        let mut machine = Self::new(era);
        machine.setup.riscv64 = Some(layout);
        machine.setup.load = riscv64::RAM_START + 0x20_0000;
        // CONFIG_PAGE_EXTENSION, as Debian has it.
        machine.setup.section_entry = 32;
        machine
    }

    /// Adds RAM at physical addresses `start..end`, in bytes, not necessarily whole pages. The first call
    /// replaces the default RAM.
    pub fn ram(&mut self, start: u64, end: u64) -> &mut Self {
        assert!(start < end, "RAM from {start:#x} to {end:#x}");
        self.setup.ram.push((start, end));
        self
    }

    /// Uses 5-level page tables.
    pub fn five_level(&mut self) -> &mut Self {
        self.setup.five_level = true;
        self
    }

    /// Moves the kernel by `offset` bytes of virtual address space, and the direct map and vmemmap with it.
    pub fn kaslr(&mut self, offset: u64) -> &mut Self {
        assert!(offset.is_multiple_of(0x20_0000), "KASLR moves the kernel by whole 2 MiB");
        self.setup.kaslr = Some(offset);
        self
    }

    /// Loads the kernel at physical address `load`; `phys_base` follows.
    pub fn load_at(&mut self, load: u64) -> &mut Self {
        assert!(load.is_multiple_of(0x20_0000), "the kernel is loaded on a 2 MiB boundary");
        self.setup.load = load;
        self
    }

    /// Sets the memory encryption bit of AMD SME in every page table entry.
    pub fn sme(&mut self, mask: u64) -> &mut Self {
        self.setup.sme_mask = mask;
        self
    }

    /// Sets the layout of `mem_section`.
    pub fn sparse(&mut self, sparse: Sparse) -> &mut Self {
        self.setup.sparse = sparse;
        self
    }

    /// Sets where struct pages are.
    pub fn memmap(&mut self, memmap: Memmap) -> &mut Self {
        self.setup.memmap = memmap;
        self
    }

    /// Sets SECTION_SIZE_BITS: 27 on x86_64; less keeps a machine with many sections small.
    pub fn section_bits(&mut self, bits: u32) -> &mut Self {
        self.setup.section_bits = bits;
        self
    }

    /// Sets MAX_PHYSMEM_BITS; by default the kernel's value (46 or 52).
    pub fn max_physmem_bits(&mut self, bits: u32) -> &mut Self {
        self.setup.max_physmem_bits = Some(bits);
        self
    }

    /// Sets `sizeof(struct mem_section)`: 16, or 32 with CONFIG_PAGE_EXTENSION.
    pub fn section_entry(&mut self, bytes: u64) -> &mut Self {
        self.setup.section_entry = bytes;
        self
    }

    /// Sets `sizeof(struct page)`: 64; 56 without memory cgroups, 80 with debugging.
    pub fn struct_page(&mut self, bytes: u64) -> &mut Self {
        self.setup.struct_page = bytes;
        self
    }

    /// Sets the number of CPUs, each of which has an NT_PRSTATUS.
    pub fn cpus(&mut self, count: usize) -> &mut Self {
        self.setup.cpus = count;
        self
    }

    /// Makes section `index`, which must hold no RAM, look like a hot-removed one of 5.3 to 5.5: the entry is
    /// not zero and lacks only the PRESENT flag.
    pub fn stale_section(&mut self, index: u64) -> &mut Self {
        self.setup.stale_sections.push(index);
        self
    }

    /// Maps `size` bytes (a page, or with pages of 4 KiB 2 MiB or 1 GiB) at `vaddr` to `paddr`, which need not be RAM.
    pub fn map(&mut self, vaddr: u64, paddr: u64, size: u64) -> &mut Self {
        self.mappings.push((vaddr, paddr, size));
        self
    }

    /// Sets a line of VMCOREINFO, as in `.info("NUMBER(PG_lru)", "77")`.
    pub fn info(&mut self, key: &str, value: impl ToString) -> &mut Self {
        self.setup.info_edits.push((key.into(), Some(value.to_string())));
        self
    }

    /// Removes a line of VMCOREINFO.
    pub fn without_info(&mut self, key: &str) -> &mut Self {
        self.setup.info_edits.push((key.into(), None));
        self
    }
}

/// Use and contents of pages.
impl Machine {
    /// Uses `1 << order` pages, the first of which is `pfn`, for `kind`.
    pub fn page(&mut self, kind: Kind, pfn: u64, order: u32) -> &mut Self {
        assert!(pfn.is_multiple_of(1 << order), "PFN {pfn:#x} is not aligned to order {order}");
        assert!(kind != Kind::Unaccepted || order == 10, "unaccepted memory comes in blocks of order 10");
        let huge = matches!(kind, Kind::Hugetlb | Kind::HugetlbOptimized);
        assert!(!huge || order > 0, "a HugeTLB page is at least two pages; no kernel has some orders");
        self.blocks.push(Block { pfn, order, kind });
        self
    }

    one_page! {
        /// An anonymous page.
        anon => Anon;
        /// An anonymous page merged by KSM.
        ksm => Ksm;
        /// A file page.
        cache => Cache;
        /// A file page with buffers.
        cache_private => CachePrivate;
        /// A tmpfs page.
        shmem => Shmem;
        /// A page read ahead from swap, without an owner.
        swapcache => Swapcache;
        /// A page table.
        page_table => PageTable;
        /// A poisoned page.
        hwpoison => HwPoison;
        /// A page returned to the hypervisor.
        offline => Offline;
        /// A page allocated by the kernel.
        kernel => Kernel;
        /// A page reserved at boot.
        reserved => Reserved;
        /// A movable page off the LRU lists.
        movable => Movable;
        /// A page whose PG_owner_priv_1 does not mean swap cache.
        checked => Checked;
    }

    many_pages! {
        /// A HugeTLB page: of order 9 or 18, or on other architectures one that they have.
        hugetlb => Hugetlb;
        /// A HugeTLB page with an optimized vmemmap; needs a vmemmap and struct pages of 64 bytes.
        hugetlb_vmemmap_optimized => HugetlbOptimized;
        /// A free block.
        buddy => Buddy;
        /// A block of unaccepted memory.
        unaccepted => Unaccepted;
        /// A slab.
        slab => Slab;
        /// A large anonymous folio.
        anon_folio => Anon;
        /// A large file folio.
        cache_folio => Cache;
        /// A large kmalloc.
        large_kmalloc => LargeKmalloc;
        /// A driver's compound page.
        compound => Compound;
    }

    /// A transparent huge page of 2 MiB.
    pub fn anon_thp(&mut self, pfn: u64) -> &mut Self {
        self.page(Kind::Anon, pfn, 9)
    }

    /// Poisons page `pfn`, which may lie in any block.
    pub fn poison(&mut self, pfn: u64) -> &mut Self {
        self.poisoned.push(pfn);
        self
    }

    /// Sets the contents of page `pfn`. By default, pages with a kind hold a stamp; of blocks above order 10,
    /// only the first page.
    pub fn fill(&mut self, pfn: u64, content: Content) -> &mut Self {
        self.contents.insert(pfn, content);
        self
    }

    /// Adds one block of every kind that the era has, of orders 0 and 3 where both are possible; a HugeTLB page with an optimized
    /// vmemmap, or without where that is impossible (none with pages above 4 KiB). It uses
    /// [`SAMPLER_PAGES`] pages from `pfn`, a multiple of 1,024; most of them keep their defaults. With pages above 4 KiB it uses
    /// 512, and `pfn` is a multiple of 8.
    pub fn sampler(&mut self, pfn: u64) -> &mut Self {
        let optimizable = self.setup.era.hvo() != crate::era::Hvo::No
            && self.setup.memmap != Memmap::PerSection
            && self.setup.struct_page == 64
            && self.setup.arm64.is_none()
            && self.setup.riscv64.is_none();
        let large_pages = self.setup.arm64.is_some_and(|layout| layout.page_shift > 12);
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            let base = pfn + index as u64 * 16;
            match kind {
                Kind::HugetlbOptimized if optimizable => {
                    self.page(kind, pfn + 512, 9);
                }
                Kind::HugetlbOptimized => {}
                // arm64 has none.
                Kind::Unaccepted if large_pages => {}
                Kind::Unaccepted => {
                    self.page(kind, pfn + 1024, 10);
                }
                // Of another order than the others, where there is room for it.
                Kind::Hugetlb if optimizable || large_pages => {
                    self.page(Kind::Anon, base + 8, 3);
                }
                Kind::Hugetlb => {
                    self.page(Kind::Anon, base + 8, 3).page(kind, pfn + 512, 9);
                }
                Kind::Anon | Kind::Cache | Kind::CachePrivate | Kind::Shmem | Kind::Slab | Kind::Buddy => {
                    self.page(kind, base, 0).page(kind, base + 8, 3);
                }
                Kind::LargeKmalloc | Kind::Compound => {
                    self.page(kind, base + 8, 3);
                }
                _ => {
                    self.page(kind, base, 0);
                }
            }
        }
        self
    }

    /// Fills `count` pages from `pfn` with blocks of random kinds, orders up to 4 and random contents; equal
    /// seeds give equal pages.
    pub fn populate(&mut self, pfn: u64, count: u64, seed: u64) -> &mut Self {
        let mut noise = Noise::new(seed);
        let mut at = pfn;
        while at < pfn + count {
            let kind = match Kind::ALL[(noise.next() % Kind::ALL.len() as u64) as usize] {
                Kind::HugetlbOptimized | Kind::Unaccepted => Kind::Kernel,
                kind => kind,
            };
            let wanted = (noise.next() % 5) as u32;
            let room = (pfn + count - at).ilog2();
            let order = wanted.min(at.trailing_zeros()).min(room);
            let order = match kind {
                kind if kind.is_compound() || kind == Kind::Buddy => order,
                _ => 0,
            };
            // HugeTLB pages are larger.
            let kind = if kind == Kind::Hugetlb { Kind::Anon } else { kind };
            self.page(kind, at, order);
            for page in at..at + (1 << order) {
                match noise.next() % 4 {
                    0 => self.fill(page, Content::Zero),
                    1 => self.fill(page, Content::Text),
                    2 => self.fill(page, Content::Random),
                    _ => self,
                };
            }
            at += 1 << order;
        }
        self
    }

    /// Returns the struct pages of `pfns` as one array, without building the machine.
    ///
    /// Blocks must lie within `pfns`. Compound pages name their heads as in a vmemmap. Pages of the kernel
    /// itself are not marked.
    pub fn struct_pages(&self, pfns: Range<u64>) -> Vec<u8> {
        let mut writer = Writer { setup: &self.setup, pages: Array::new(&self.setup, pfns) };
        self.blocks.iter().for_each(|&block| writer.block(block));
        self.poisoned.iter().for_each(|&pfn| writer.poison(pfn));
        writer.pages.bytes
    }

    /// Returns the ELF notes of the machine, NT_PRSTATUS for each CPU and VMCOREINFO, without building it.
    pub fn notes(&self) -> Vec<u8> {
        crate::notes::notes(&self.setup, &crate::info::vmcoreinfo(&self.setup))
    }
}

/// Pages that [`Machine::sampler`] takes.
pub const SAMPLER_PAGES: u64 = 2048;
