//! Further fields of struct pages: node, zone, and the size of the block they belong to.

use pagehaul_physmem::View;

use crate::class::PageClass;
use crate::kernel::Kernel;
use crate::rules::{Head, Words, half, word};

/// Names of x86_64's zones where all are there (`enum zone_type`, include/linux/mmzone.h).
const ZONES: [&str; 5] = ["DMA", "DMA32", "Normal", "Movable", "Device"];
/// Order of pages that do not start a block.
const NONE: u8 = u8::MAX;

/// Where `page.flags` has node and zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zones {
    node_shift: u32,
    zone_shift: u32,
    zones: u64,
}

/// Fields of the struct pages of one block. A buffer that is reused.
#[derive(Debug, Default)]
pub struct Details {
    flags: Vec<u64>,
    orders: Vec<u8>,
}

impl Details {
    /// `page.flags` of page `index` of the block; 0 where it cannot be read.
    pub fn flags(&self, index: usize) -> u64 {
        self.flags.get(index).copied().unwrap_or(0)
    }

    /// log2 of the pages in the free block or compound page that page `index` is the first of.
    pub fn order(&self, index: usize) -> Option<u32> {
        self.orders.get(index).filter(|order| **order != NONE).map(|order| u32::from(*order))
    }
}

impl Zones {
    /// How many zones there are follows from the size of `struct pglist_data`: its zones, then one list of them all per
    /// kind of fallback, then `nr_zones`. Node and zone are the highest bits of the flags, as wide as their numbers need,
    /// because x86_64 has a vmemmap and so no section there (include/linux/page-flags-layout.h).
    pub fn discover(kernel: &Kernel) -> Option<Self> {
        let info = kernel.space().info();
        let nr_zones = info.offset("pglist_data.nr_zones")?;
        let zone = info.size("zone")?;
        // With CONFIG_NUMA there are also lists without fallback. x86_64 then exports the number of nodes; arm64 does not, but
        // one number fits.
        let nodes = info.length("node_data");
        let candidates: Vec<(u64, u64)> = match nodes {
            Some(nodes) if nodes.is_power_of_two() && nodes <= 1 << 16 => vec![(nodes, 2)],
            Some(_) => return None,
            None => [(1, 1)].into_iter().chain((1..=10).map(|shift| (1 << shift, 2))).collect(),
        };
        let mut fitting = candidates.into_iter().flat_map(|(nodes, lists)| {
            let size =
                move |zones: u64| zones.checked_mul(zone)?.checked_add(lists * (nodes * zones + 1) * 16);
            (2..=ZONES.len() as u64)
                .filter(move |zones| size(*zones) == Some(nr_zones))
                .map(move |zones| (nodes, zones))
        });
        let (nodes, zones) = fitting.next()?;
        if fitting.next().is_some() {
            return None;
        }
        let node_shift = 64 - nodes.trailing_zeros();
        Some(Self { node_shift, zone_shift: node_shift - zones.next_power_of_two().trailing_zeros(), zones })
    }

    /// Returns the node of a page with these flags.
    pub fn node(&self, flags: u64) -> u64 {
        flags.checked_shr(self.node_shift).unwrap_or(0)
    }

    /// Returns the zone of a page with these flags.
    pub fn zone(&self, flags: u64) -> &'static str {
        let bits = self.node_shift - self.zone_shift;
        let zone = flags >> self.zone_shift & ((1 << bits) - 1);
        // Without ZONE_DMA the others move down; ZONE_DEVICE may be absent, too, but is the last.
        let skipped = if self.zones == 3 { 1 } else { 0 };
        ZONES.get(zone as usize + skipped).copied().unwrap_or("unknown")
    }
}

impl Kernel {
    /// Reads the struct pages of block `block` through `view`, whose pages have been classified as `classes`.
    pub fn details(&self, view: &mut dyn View, block: u64, classes: &[PageClass], out: &mut Details) {
        let size = self.rules().layout.size;
        out.flags.clear();
        out.flags.resize(classes.len(), 0);
        out.orders.clear();
        out.orders.resize(classes.len(), NONE);
        let map = self.sections().map(self.space().translator(), view, block, size as u64);
        let Ok(Some(map)) = map else { return };
        let first_pfn = self.block_pfns(block).start.number();
        // As many as fit a page, and the one after: the second struct page of a compound page has its order.
        let batch = (4096 / size).max(1);
        let mut bytes = vec![0; (batch + 1) * size];
        for start in (0..classes.len()).step_by(batch) {
            let count = batch.min(classes.len() - start);
            if classes[start..start + count].iter().all(|class| *class == PageClass::Absent) {
                continue;
            }
            let at = map.wrapping_add((start * size) as u64);
            let pairs = (count + 1) * size;
            if self.space().translator().read(view, at, &mut bytes[..pairs]).is_err() {
                // The last section has none after it.
                bytes[count * size..].fill(0);
                if self.space().translator().read(view, at, &mut bytes[..count * size]).is_err() {
                    continue;
                }
            }
            for page in 0..count {
                let index = start + page;
                let here = &bytes[page * size..(page + 1) * size];
                out.flags[index] = word(here, self.rules().layout.flags);
                let pair = &bytes[page * size..(page + 2) * size];
                let vaddr = at.wrapping_add((page * size) as u64);
                if let Some(order) = self.order_of(pair, vaddr, first_pfn + index as u64, classes[index]) {
                    out.orders[index] = order as u8;
                }
            }
        }
    }

    /// log2 of the pages in the block that starts with the page whose struct page is the first of `pair`, at `vaddr`.
    fn order_of(&self, pair: &[u8], vaddr: u64, pfn: u64, class: PageClass) -> Option<u32> {
        let rules = self.rules();
        let first = &pair[..rules.layout.size];
        match class {
            PageClass::Absent | PageClass::Undecided => None,
            PageClass::Free | PageClass::Unaccepted => {
                let order = rules.free.order(class, first)?;
                // Pages within a free block have no order, but may contain a value that looks like one.
                let layout = &rules.layout;
                let words = Words {
                    flags: word(first, layout.flags),
                    mapping: word(first, layout.mapping),
                    mapcount: half(first, layout.mapcount),
                };
                (pfn.is_multiple_of(1 << order) && rules.class(words) == class).then_some(order)
            }
            _ if word(first, rules.layout.compound) & 1 != 0
                || word(first, rules.layout.flags) & rules.head == 0 =>
            {
                None
            }
            _ => match rules.head(pair, vaddr, pfn) {
                Head::Real(compound) => {
                    let pages = compound.end_pfn.checked_sub(compound.first_pfn)?;
                    pages.is_power_of_two().then(|| pages.trailing_zeros())
                }
                Head::Fake(_) | Head::Wrong(_) => None,
            },
        }
    }
}
