//! Free pages on per-CPU lists (`struct per_cpu_pages`), which `struct page` does not distinguish from pages in use.
//!
//! A page on such a list has no owner at any moment, even while a CPU moves pages: `rmqueue_pcplist` unlinks a page before its
//! caller gets it, `free_unref_page` links it after its last reference is gone, and both ends of a move between these lists and
//! the buddy allocator are free. x86_64 CPUs make their stores visible in order, so memory shows each CPU at one instruction.
//! Where that instruction is within a change of a list, links, count and lock contradict each other, and all pages of that
//! CPU's lists count as in use. So do pages whose `struct page` is not that of a free page, and all pages if a CPU did not stop
//! at the crash.

use std::ops::Range;

use pagehaul_btf::{Fault, Object};
use pagehaul_machine::{PageCount, Pfn, VirtAddr};

use super::cpus::cpus;
use crate::machine::Machine;
use crate::structures::memory::{nodes, per_cpu_pages, zones_of};

/// Blocks of pages that are read. They and their runs fit into the memory of the process that reads them for a capture.
const MAX_BLOCKS: usize = 2 << 20;
/// `PAGE_ALLOC_COSTLY_ORDER`: lists of larger blocks are for transparent huge pages only.
const COSTLY_ORDER: u64 = 3;

/// What is known of pages on per-CPU lists.
#[derive(Debug, Default)]
pub struct PerCpuFree {
    /// PFNs of free pages, ascending and apart.
    pub pages: Vec<Range<u64>>,
    /// Why further pages are not among them, one sentence each.
    pub skipped: Vec<String>,
}

/// Finds the free pages on the per-CPU lists of all zones.
pub fn per_cpu_free(machine: &Machine<'_>) -> Result<PerCpuFree, Fault> {
    let mut found = PerCpuFree::default();
    // The argument above needs stores in order, which other processors do not guarantee.
    if !machine.arch().stores_in_order() {
        found.skipped.push("free pages on per-CPU lists are found on x86_64 only".into());
        return Ok(found);
    }
    let unwinder = machine.unwinder();
    for cpu in cpus(machine, &unwinder)? {
        if !cpu.saved_registers {
            found.skipped.push(format!(
                "CPU {} did not stop at the crash: it can have used free pages since",
                cpu.number
            ));
            return Ok(found);
        }
    }
    let lists = per_cpu_blocks(machine, &vmemmap(machine)?)?;
    found.skipped.extend(lists.changing.into_iter().chain(lists.skipped));
    let mut blocks: Vec<Range<u64>> =
        lists.blocks.iter().map(|block| block.start.number()..block.end.number()).collect();
    blocks.sort_unstable_by_key(|block| block.start);
    for block in blocks {
        match found.pages.last_mut() {
            // A page on two lists: one of them is damaged.
            Some(last) if block.start < last.end => {
                return Ok(PerCpuFree {
                    pages: Vec::new(),
                    skipped: vec!["a page is on two per-CPU lists".into()],
                });
            }
            Some(last) if block.start == last.end => last.end = block.end,
            _ => found.pages.push(block),
        }
    }
    Ok(found)
}

/// Blocks on per-CPU lists.
#[derive(Debug, Default)]
pub struct PerCpuBlocks {
    /// The blocks, in the order of the lists.
    pub blocks: Vec<Range<Pfn>>,
    /// Pages on the lists of these blocks, by the lists' own counts.
    pub counted: PageCount,
    /// Pages on lists that a CPU was changing, by the lists' own counts. Which pages these are is not known.
    pub in_change: PageCount,
    /// Lists that a CPU was changing, one sentence each.
    pub changing: Vec<String>,
    /// Lists that cannot be read, one sentence each.
    pub skipped: Vec<String>,
}

/// Reads the blocks on the per-CPU lists of all zones. `pfn` returns the page whose struct page is at an address. A CPU that ran on
/// can have changed them, as all of a running kernel do.
pub fn per_cpu_blocks(
    machine: &Machine<'_>,
    pfn: &dyn Fn(VirtAddr) -> Option<Pfn>,
) -> Result<PerCpuBlocks, Fault> {
    let reader = Reader::new(machine, pfn)?;
    let mut found = PerCpuBlocks::default();
    for (number, node) in nodes(machine)?.iter().enumerate() {
        for zone in zones_of(node)? {
            let name = zone.get("name")?.text()?;
            // `percpu_pagelist_high_fraction`, until 74f44822097c (5.14) `percpu_pagelist_fraction`, is at least 8.
            let limit = zone.number("spanned_pages")? / 8;
            for cpu in machine.cpu_mask("__cpu_possible_mask")? {
                let lists = per_cpu_pages(machine, &zone, cpu)?;
                let counted = lists.number("count")?;
                match reader.blocks(&zone, &lists, MAX_BLOCKS.saturating_sub(found.blocks.len())) {
                    Ok(more) => {
                        found.counted += PageCount::new(counted);
                        found
                            .blocks
                            .extend(more.into_iter().map(|block| Pfn::new(block.start)..Pfn::new(block.end)));
                    }
                    Err(NotWalked::Changing(why)) if counted <= limit => {
                        found.in_change += PageCount::new(counted);
                        found
                            .changing
                            .push(format!("per-CPU lists of CPU {cpu}, node {number} {name}: {why}"));
                    }
                    Err(NotWalked::Changing(why) | NotWalked::Damaged(why)) => {
                        found
                            .skipped
                            .push(format!("per-CPU lists of CPU {cpu}, node {number} {name}: {why}"));
                    }
                }
            }
        }
    }
    Ok(found)
}

/// Returns the page of a struct page in x86_64's vmemmap.
fn vmemmap(machine: &Machine<'_>) -> Result<impl Fn(VirtAddr) -> Option<Pfn>, Fault> {
    let (start, size) = (machine.u64("vmemmap_base")?, machine.space().size_of("page")?.max(1));
    Ok(move |page: VirtAddr| {
        let offset = page.get().wrapping_sub(start);
        offset.is_multiple_of(size).then(|| Pfn::new(offset / size))
    })
}

/// Why the pages on a CPU's lists are not known.
enum NotWalked {
    /// As it can be at some instruction of a CPU that changes them.
    Changing(String),
    /// As it never is.
    Damaged(String),
}

/// Where members of a `struct page` are.
struct Reader<'a> {
    machine: &'a Machine<'a>,
    pfn: &'a dyn Fn(VirtAddr) -> Option<Pfn>,
    page_bytes: u64,
    flags: u64,
    mapping: u64,
    mapcount: u64,
    refcount: u64,
    link: u64,
    /// All `PG_*` flags.
    flag_bits: u64,
    /// `MIGRATE_PCPTYPES`: lists of each order.
    types: u64,
    /// `HPAGE_PMD_ORDER`: a table of page table entries fills a page.
    huge_order: u32,
}

impl<'a> Reader<'a> {
    fn new(machine: &'a Machine<'_>, pfn: &'a dyn Fn(VirtAddr) -> Option<Pfn>) -> Result<Self, Fault> {
        let space = machine.space();
        let offset = |path: &str| space.offset_of("page", path);
        let enumerator = |name: &str| {
            let value = space.btf().enumerator(name).and_then(|value| u64::try_from(value).ok());
            value.filter(|value| (1..64).contains(value)).ok_or_else(|| space.no_type(name))
        };
        Ok(Self {
            machine,
            pfn,
            page_bytes: space.size_of("page")?.max(1),
            flags: offset("flags")?,
            mapping: offset("mapping")?,
            mapcount: offset("_mapcount")?,
            refcount: offset("_refcount")?,
            // bf75f200569d (5.19) gave the link a name.
            link: offset("pcp_list").or_else(|_| offset("lru"))?,
            flag_bits: (1 << enumerator("__NR_PAGEFLAGS")?) - 1,
            types: enumerator("MIGRATE_PCPTYPES")?,
            huge_order: machine.kernel().page_size().shift() - 3,
        })
    }

    /// Returns the blocks on the lists of one CPU, at most `most`, or why they count as in use.
    fn blocks(
        &self,
        zone: &Object<'_>,
        lists: &Object<'_>,
        most: usize,
    ) -> Result<Vec<Range<u64>>, NotWalked> {
        let text = |why: Fault| NotWalked::Damaged(why.to_string());
        // 4b23a68f9536 (6.0) added the lock. Before it, the CPU disables interrupts, which an NMI does not respect.
        if lists.number("lock.rlock.raw_lock.val").is_ok_and(|lock| lock != 0) {
            return Err(NotWalked::Changing("a CPU held their lock".into()));
        }
        let first = zone.number("zone_start_pfn").map_err(text)?;
        let zone = first..first.saturating_add(zone.number("spanned_pages").map_err(text)?);
        let mut found = Vec::new();
        let heads = lists.get("lists").map_err(text)?;
        for index in 0..heads.len() {
            // 44042b449872 (5.14) put blocks of higher orders there. Lists of one order are adjacent.
            let order = match index / self.types {
                order @ 0..=COSTLY_ORDER => order as u32,
                _ => self.huge_order,
            };
            let head = heads.index(index).map_err(text)?.address();
            self.list(head, order, &zone, most, &mut found)?;
        }
        let pages: u64 = found.iter().map(|block| block.end - block.start).sum();
        let count = lists.number("count").map_err(text)?;
        if pages != count {
            return Err(NotWalked::Changing(format!("they hold {pages} pages, their count says {count}")));
        }
        Ok(found)
    }

    /// Walks one list, whose links have to agree in both directions.
    fn list(
        &self,
        head: u64,
        order: u32,
        zone: &Range<u64>,
        most: usize,
        found: &mut Vec<Range<u64>>,
    ) -> Result<(), NotWalked> {
        let memory = self.machine.memory();
        let word = |at: u64| memory.u64(at).map_err(|why| NotWalked::Damaged(why.to_string()));
        let (mut at, mut next) = (head, word(head)?);
        while next != head {
            if found.len() >= most {
                return Err(NotWalked::Damaged("they are too long to be read".into()));
            }
            let page = next.wrapping_sub(self.link);
            let block = (self.pfn)(VirtAddr::new(page))
                .map(Pfn::number)
                .map(|pfn| pfn..pfn.saturating_add(1 << order));
            let is_block = |block: &Range<u64>| {
                block.start >= zone.start && block.end <= zone.end && block.start.is_multiple_of(1 << order)
            };
            let Some(block) = block.filter(is_block) else {
                return Err(NotWalked::Damaged(format!("{page:#x} is not a struct page of the zone")));
            };
            let pfn = block.start;
            let back = word(next.wrapping_add(8))?;
            if back != at {
                return Err(NotWalked::Changing(format!("the links of PFN {pfn:#x} contradict each other")));
            }
            for index in 0..1 << order {
                self.check_free(pfn + index, page.wrapping_add(index * self.page_bytes))?;
            }
            found.push(block);
            at = next;
            next = word(at)?;
        }
        let back = word(head.wrapping_add(8))?;
        let contradicts = || NotWalked::Changing(format!("the list at {head:#x} contradicts itself"));
        if back == at { Ok(()) } else { Err(contradicts()) }
    }

    /// As `page_expected_state` (mm/page_alloc.c), and without any flag: `PAGE_FLAGS_CHECK_AT_PREP`.
    fn check_free(&self, pfn: u64, start: u64) -> Result<(), NotWalked> {
        let page = self.machine.memory().bytes(start, self.page_bytes as usize);
        let page = page.map_err(|why| NotWalked::Damaged(why.to_string()))?;
        let word = |at: u64| {
            let bytes = page.get(at as usize..).and_then(|bytes| bytes.first_chunk());
            bytes.map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
        };
        let counts = [(self.refcount, 0), (self.mapcount, u32::MAX)];
        let is_free = word(self.flags) & self.flag_bits == 0
            && word(self.mapping) == 0
            && counts.iter().all(|(at, expected)| word(*at) as u32 == *expected);
        let in_use = || NotWalked::Changing(format!("PFN {pfn:#x} does not look free"));
        if is_free { Ok(()) } else { Err(in_use()) }
    }
}
