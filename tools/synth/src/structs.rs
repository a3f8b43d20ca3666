//! Struct pages, filled as a kernel of the era fills them.

use crate::block::Block;
use crate::class::Kind;
use crate::era::{Fields, Flags, Hvo, OrderAt, PG_HUGETLB, PageType, bit};
use crate::setup::Setup;

/// `compound_dtor` ids: a plain compound page and a HugeTLB page (`enum compound_dtor_id`).
const COMPOUND_DTOR: u32 = 1;
const HUGETLB_DTOR: u32 = 2;
/// What tails hold in `mapping`: LIST_POISON4 style, bit 0 clear.
const TAIL_MAPPING: u64 = 0xdead_0000_0000_0400;

/// What struct pages are written to.
pub(crate) trait StructPages {
    /// Writes `bytes` at byte `at` of the struct page of `pfn`.
    fn write(&mut self, pfn: u64, at: u64, bytes: &[u8]);

    /// Reads the first word of the struct page of `pfn`: its flags.
    fn flags(&self, pfn: u64) -> u64;

    /// Returns the virtual address of the struct page of `pfn`.
    fn vaddr(&self, pfn: u64) -> u64;
}

/// Writes struct pages as the kernel of `setup` leaves them.
pub(crate) struct Writer<'a, T> {
    pub setup: &'a Setup,
    pub pages: T,
}

/// A head or single page.
struct Head {
    flags: u64,
    mapping: u64,
    mapcount: u32,
    refcount: u32,
    private: u64,
    lru: [u64; 2],
}

impl<T: StructPages> Writer<'_, T> {
    pub fn block(&mut self, block: Block) {
        let Block { pfn, order, kind } = block;
        let fields = self.setup.era.fields();
        let head = self.head(block);
        self.put(pfn, fields, &head);
        if kind == Kind::HugetlbOptimized {
            return self.optimized_tails(block);
        }
        if order == 0 || !kind.is_compound() {
            let rest = Head { refcount: if kind == Kind::Buddy { 0 } else { 1 }, ..Head::blank() };
            for page in pfn + 1..pfn + (1 << order) {
                self.put(page, fields, &rest);
            }
            return;
        }
        for page in pfn + 1..pfn + (1 << order) {
            self.tail(page, block, self.compound_info(block));
        }
        self.first_tail(pfn + 1, block);
    }

    /// Sets PG_hwpoison.
    pub fn poison(&mut self, pfn: u64) {
        let flags = self.pages.flags(pfn) | bit(self.setup.era.flags().hwpoison);
        self.pages.write(pfn, 0, &flags.to_le_bytes());
    }

    /// Sets bits in the flags.
    pub fn flag(&mut self, pfn: u64, bits: u64) {
        let flags = self.pages.flags(pfn) | bits;
        self.pages.write(pfn, 0, &flags.to_le_bytes());
    }

    /// A free page on a list.
    pub fn listed(&mut self, pfn: u64, lru: [u64; 2]) {
        self.put(pfn, self.setup.era.fields(), &Head { refcount: 0, lru, ..Head::blank() });
    }

    /// Sets `private`.
    pub fn private(&mut self, pfn: u64, value: u64) {
        self.pages.write(pfn, self.setup.era.fields().private, &value.to_le_bytes());
    }

    /// Returns the head of `block`, or its only page.
    fn head(&self, block: Block) -> Head {
        let era = self.setup.era;
        let Flags { lru, private, swapbacked, swapcache, slab, reserved, owner_priv_1, hwpoison, .. } =
            era.flags();
        let (uptodate, dirty) = (bit(era.flags().uptodate), bit(era.flags().dirty));
        let (referenced, active) = (bit(era.flags().referenced), bit(era.flags().active));
        // PG_waiters is bit 7, which was PG_slab before 4.10: a reader without PG_slab in VMCOREINFO may
        // confuse them.
        let waiters = if era >= crate::Era::V4_10 { bit(7) } else { 0 };
        let page_type = |kind| era.page_type(kind).unwrap_or(u32::MAX);
        // Kernel objects, such as an anon_vma or an address_space, lie in the direct map.
        let object = self.setup.page_offset().wrapping_add(0x20_0000 + block.pfn % 4096 * 64);
        let entry = 0x1_0000 + block.pfn; // of swap
        let on_list = [object + 0x1_0000, object + 0x2_0000];
        let mapped = Head { lru: on_list, mapcount: 0, ..Head::blank() };
        let mut head = match block.kind {
            Kind::Anon => {
                Head { flags: uptodate | bit(lru) | bit(swapbacked) | dirty, mapping: object | 1, ..mapped }
            }
            Kind::Ksm => Head { flags: uptodate | bit(lru) | bit(swapbacked), mapping: object | 3, ..mapped },
            Kind::AnonSwapcache => Head {
                flags: uptodate | bit(lru) | bit(swapbacked) | bit(swapcache),
                mapping: object | 1,
                private: entry,
                refcount: 2,
                ..mapped
            },
            Kind::Cache => Head {
                flags: uptodate | bit(lru) | referenced,
                mapping: object,
                refcount: 2,
                lru: on_list,
                ..Head::blank()
            },
            Kind::CachePrivate => Head {
                flags: uptodate | bit(lru) | active | bit(private) | waiters,
                mapping: object,
                private: object + 0x3_0000,
                refcount: 3,
                lru: on_list,
                ..Head::blank()
            },
            Kind::Shmem => Head {
                flags: uptodate | bit(lru) | bit(swapbacked) | dirty,
                mapping: object,
                refcount: 2,
                ..mapped
            },
            Kind::Swapcache => {
                Head { flags: uptodate | bit(swapbacked) | bit(swapcache), private: entry, ..Head::blank() }
            }
            Kind::Checked => Head { flags: uptodate | bit(owner_priv_1), ..Head::blank() },
            Kind::Hugetlb | Kind::HugetlbOptimized => Head {
                flags: uptodate,
                // Every second one is free in the pool: no mapping.
                mapping: if block.pfn >> block.order & 1 == 0 { object } else { 0 },
                mapcount: page_type(PageType::Hugetlb),
                ..Head::blank()
            },
            Kind::Buddy => Head {
                mapcount: page_type(PageType::Buddy),
                private: u64::from(block.order),
                refcount: 0,
                lru: on_list,
                ..Head::blank()
            },
            Kind::Unaccepted => Head {
                // The page type came with 6.12; before, such a page had no mark.
                mapcount: if era >= crate::Era::V6_12 { page_type(PageType::Unaccepted) } else { u32::MAX },
                refcount: 0,
                lru: on_list,
                ..Head::blank()
            },
            Kind::Slab => self.slab(object, bit(slab), page_type(PageType::Slab)),
            Kind::PageTable => Head { mapcount: page_type(PageType::Table), ..Head::blank() },
            Kind::HwPoison => Head { flags: uptodate | bit(hwpoison), ..Head::blank() },
            Kind::Offline => {
                Head { mapcount: page_type(PageType::Offline), flags: bit(reserved), ..Head::blank() }
            }
            Kind::Kernel | Kind::Compound => Head::blank(),
            Kind::Reserved => Head { flags: bit(reserved), ..Head::blank() },
            Kind::Movable => Head { mapping: object | 2, ..Head::blank() },
            Kind::Zsmalloc => Head {
                mapping: object | 2,
                // 24 bits of offset below the type.
                mapcount: match era.page_type(PageType::Zsmalloc) {
                    Some(value) if era >= crate::Era::V6_12 => value | 0x7c0,
                    other => other.unwrap_or(u32::MAX),
                },
                ..Head::blank()
            },
            Kind::LargeKmalloc => Head { mapcount: page_type(PageType::LargeKmalloc), ..Head::blank() },
        };
        if block.order > 0 && block.kind.is_compound() {
            head.flags |= bit(era.flags().head);
        }
        head
    }

    fn slab(&self, object: u64, flag: u64, page_type: u32) -> Head {
        let era = self.setup.era;
        if era < crate::Era::V5_10 {
            // SLUB's counters (inuse, objects, frozen) lie over `_mapcount`.
            return Head { flags: flag, mapcount: 0x8020_0011, lru: [object; 2], ..Head::blank() };
        }
        // From 6.2 (130d4df57390) the length of a partial list lies over `mapping`, odd as often as not;
        // before, a pointer to the cache.
        let mapping = if era >= crate::Era::V6_2 { 0x5 } else { object };
        Head { flags: flag, mapping, mapcount: page_type, lru: [object; 2], ..Head::blank() }
    }

    fn compound_info(&self, block: Block) -> u64 {
        if self.setup.era.has_mask(self.setup.struct_page) {
            (u64::MAX << (block.order + self.setup.struct_page.ilog2())) | 1
        } else {
            self.pages.vaddr(block.pfn) | 1
        }
    }

    fn tail(&mut self, pfn: u64, block: Block, info: u64) {
        let fields = self.setup.era.fields();
        let mapped = matches!(block.kind, Kind::Anon | Kind::Shmem);
        let tail = Head {
            mapping: TAIL_MAPPING,
            mapcount: if mapped { 0 } else { u32::MAX },
            refcount: 0,
            lru: [info, 0],
            ..Head::blank()
        };
        self.put(pfn, fields, &tail);
    }

    /// Writes the order and the other fields of the first tail.
    fn first_tail(&mut self, pfn: u64, block: Block) {
        let huge = matches!(block.kind, Kind::Hugetlb | Kind::HugetlbOptimized);
        match self.setup.era.order_at() {
            OrderAt::Fields { dtor, order, width } => {
                let id = if huge { HUGETLB_DTOR } else { COMPOUND_DTOR };
                let width = width as usize;
                self.pages.write(pfn, dtor, &id.to_le_bytes()[..width]);
                self.pages.write(pfn, order, &block.order.to_le_bytes()[..width]);
            }
            OrderAt::FlagsByte => {
                // PG_hugetlb from 6.6 to 6.8, and PG_large_rmappable (an alias of PG_workingset) for folios.
                let hugetlb = huge && self.setup.era < crate::Era::V6_9;
                let folio = matches!(block.kind, Kind::Anon | Kind::Cache | Kind::CachePrivate | Kind::Shmem);
                let mut flags = self.setup.flag_fields(pfn) | u64::from(block.order);
                flags |= if hugetlb { bit(PG_HUGETLB) } else { 0 };
                flags |= if folio { bit(9) } else { 0 };
                self.pages.write(pfn, 0, &flags.to_le_bytes());
            }
        }
    }

    /// Writes the tails of an optimized HugeTLB page: those of the first frame, and of the shared frame if
    /// there is one.
    fn optimized_tails(&mut self, block: Block) {
        let per_frame = 4096 / self.setup.struct_page;
        let written = match self.setup.era.hvo() {
            Hvo::No => panic!("kernels of {} do not optimize the vmemmap", self.setup.era.release()),
            Hvo::FakeHeads => per_frame,
            Hvo::SharedTails => 2 * per_frame,
        };
        for page in block.pfn + 1..block.pfn + written {
            self.tail(page, block, self.compound_info(block));
        }
        self.first_tail(block.pfn + 1, block);
    }

    fn put(&mut self, pfn: u64, fields: Fields, head: &Head) {
        let mut page = self.setup.pristine();
        let mut set =
            |at: u64, bytes: &[u8]| page[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        set(0, &(head.flags | self.setup.flag_fields(pfn)).to_le_bytes());
        set(fields.mapping, &head.mapping.to_le_bytes());
        set(fields.index, &(pfn % 512).to_le_bytes());
        set(fields.private, &head.private.to_le_bytes());
        set(fields.mapcount, &head.mapcount.to_le_bytes());
        set(fields.refcount, &head.refcount.to_le_bytes());
        set(fields.lru, &head.lru[0].to_le_bytes());
        // From 4.18 the second word of the list lies before `mapping`; it never overlaps the fields above.
        set(fields.lru + 8, &head.lru[1].to_le_bytes());
        self.pages.write(pfn, 0, &page);
    }
}

impl Head {
    fn blank() -> Self {
        Self { flags: 0, mapping: 0, mapcount: u32::MAX, refcount: 1, private: 0, lru: [0; 2] }
    }
}
