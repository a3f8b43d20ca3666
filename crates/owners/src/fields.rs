//! Members of `struct page` that VMCOREINFO does not have, and the types that pages can have.

use pagehaul_inspect::Machine;
use pagehaul_kernel::{Kernel, StructPage};

/// Types of pages that have a row, or a row of others by their name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PageType {
    Table,
    LargeKmalloc,
    Zsmalloc,
    Guard,
    PagePool,
    /// Any other type of `enum pagetype`.
    Other(String),
}

/// How types are stored in `_mapcount`.
#[derive(Debug, Clone)]
enum Encoding {
    /// In the top byte (4ffca5a96678, 6.12), by the enumerators of `enum pagetype`.
    TopByte(Vec<(u32, PageType)>),
    /// As cleared bits of a word whose top four bits are set (6e292b9be7f4, 4.18).
    ClearedBits { table: u32, guard: u32 },
    /// The kernel's BTF, which tells, cannot be read.
    NotKnown,
}

/// Where members are, in bytes from the start of a struct page.
#[derive(Debug, Clone)]
pub(crate) struct Fields {
    pub(crate) refcount: Option<usize>,
    /// `index` and `private`: a page of a per-CPU chunk has the chunk in the first until 6.12, later in the second.
    pub(crate) index: Option<usize>,
    pub(crate) private: Option<usize>,
    pub(crate) slab_cache: Option<usize>,
    pub(crate) pp_magic: Option<usize>,
    pub(crate) reserved: u64,
    pub(crate) dirty: u64,
    pub(crate) writeback: u64,
    /// Both flags mark the swap cache.
    pub(crate) swapcache: u64,
    encoding: Encoding,
}

impl Fields {
    /// Reads the layout from BTF.
    pub(crate) fn new(machine: &Machine<'_>) -> Self {
        let space = machine.space();
        let offset = |record: &str, path: &str| Some(space.offset_of(record, path).ok()? as usize);
        let flag = |name: &str| {
            let bit = space.btf().enumerator(name).and_then(|bit| u32::try_from(bit).ok());
            bit.and_then(|bit| 1_u64.checked_shl(bit)).unwrap_or(0)
        };
        let old_memcg = offset("page", "mem_cgroup");
        let types = space.btf().enum_with("PGTY_buddy");
        let encoding = if space.btf().is_empty() {
            Encoding::NotKnown
        } else if types.is_empty() {
            // 5.11 removed the type of charged pages (18b2db3b0385), and the others moved down. 5.10 has the old member; the
            // release decides for kernels without memory cgroups.
            let old = old_memcg.is_some() || machine.release().is_some_and(|release| release < (5, 11));
            let table = if old { 0x400 } else { 0x200 };
            Encoding::ClearedBits { table, guard: 2 * table }
        } else {
            Encoding::TopByte(
                types.into_iter().map(|(name, value)| (value as u32, page_type(&name))).collect(),
            )
        };
        Self {
            refcount: offset("page", "_refcount"),
            // A union's member since 6.18 (`__folio_index`).
            index: offset("page", "index").or_else(|| offset("page", "__folio_index")),
            private: offset("page", "private"),
            // 9cc960a1647b (5.17) moved the members of slabs from `struct page` to `struct slab`, at the same address.
            slab_cache: offset("slab", "slab_cache").or_else(|| offset("page", "slab_cache")),
            pp_magic: offset("page", "pp_magic").or_else(|| offset("net_iov", "pp_magic")),
            reserved: flag("PG_reserved"),
            dirty: flag("PG_dirty"),
            writeback: flag("PG_writeback"),
            swapcache: flag("PG_swapcache") | flag("PG_swapbacked"),
            encoding,
        }
    }

    /// Returns the type of a page, by its `_mapcount`.
    pub(crate) fn page_type(&self, mapcount: u32) -> Option<&PageType> {
        const TABLE: &PageType = &PageType::Table;
        const GUARD: &PageType = &PageType::Guard;
        match &self.encoding {
            Encoding::TopByte(types) if mapcount >> 31 == 1 => {
                types.iter().find(|(value, _)| *value == mapcount >> 24).map(|(_, found)| found)
            }
            Encoding::TopByte(_) | Encoding::NotKnown => None,
            Encoding::ClearedBits { table, guard } if mapcount >> 28 == 0xf => {
                let cleared = |bit: u32| mapcount & bit == 0;
                cleared(*table).then_some(TABLE).or_else(|| cleared(*guard).then_some(GUARD))
            }
            Encoding::ClearedBits { .. } => None,
        }
    }

    /// Returns the name of a type by its number, the top byte of `_mapcount`.
    pub(crate) fn type_name(&self, number: u8) -> String {
        match self.page_type(u32::from(number) << 24) {
            Some(PageType::Other(name)) => name.clone(),
            Some(PageType::Guard) => "guard pages".into(),
            _ => format!("type {number:#x}"),
        }
    }

    /// Returns whether pages of large `kmalloc` are marked (`PGTY_large_kmalloc`, 6.18).
    pub(crate) fn marks_large_kmalloc(&self) -> bool {
        let is_large = |(_, found): &(u32, PageType)| *found == PageType::LargeKmalloc;
        matches!(&self.encoding, Encoding::TopByte(types) if types.iter().any(is_large))
    }

    /// Returns whether a page belongs to a page pool (`PP_SIGNATURE`, c07aea3ef4d4, 5.14): poison, with low bits for an index.
    pub(crate) fn in_page_pool(&self, page: &StructPage<'_>) -> bool {
        // The poison is 0xdead000000000000 where the architecture has one (CONFIG_ILLEGAL_POINTER_VALUE).
        const SIGNATURE: u64 = 0xdead_0000_0000_0040;
        const INDEX: u64 = 0x0000_ffff_ffff_ff83;
        self.pp_magic.is_some_and(|at| page.word(at) & !INDEX == SIGNATURE && page.word(at + 8) >> 63 == 1)
    }

    /// Returns whether a page is in the swap cache.
    pub(crate) fn in_swap_cache(&self, flags: u64) -> bool {
        self.swapcache.count_ones() == 2 && flags & self.swapcache == self.swapcache
    }

    /// Returns the slab cache of the head of a slab.
    pub(crate) fn cache_of(&self, page: &StructPage<'_>) -> u64 {
        self.slab_cache.map_or(0, |at| page.word(at))
    }

    /// Returns whether a page is the head of a compound page.
    pub(crate) fn is_head(kernel: &Kernel, page: &StructPage<'_>) -> bool {
        page.head().is_none() && page.is_head(kernel)
    }
}

fn page_type(enumerator: &str) -> PageType {
    match enumerator.strip_prefix("PGTY_").unwrap_or(enumerator) {
        "table" => PageType::Table,
        "large_kmalloc" => PageType::LargeKmalloc,
        "zsmalloc" => PageType::Zsmalloc,
        "guard" => PageType::Guard,
        "netpp" => PageType::PagePool,
        other => PageType::Other(other.to_owned()),
    }
}
