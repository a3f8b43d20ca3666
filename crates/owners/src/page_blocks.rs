//! Migrate types of page blocks (2 MiB of 4 KiB pages): what the kernel wants to have in a block, which keeps unmovable pages together.

use std::collections::HashMap;

use pagehaul_btf::Fault;
use pagehaul_inspect::Machine;
use pagehaul_kernel::Kernel;
use pagehaul_machine::Pfn;

/// Sections that are read.
const MAX_SECTIONS: u64 = 1 << 20;
/// The type of a block without a known one.
pub(crate) const UNKNOWN: u8 = 0xff;

/// Types of all blocks.
#[derive(Debug, Default)]
pub(crate) struct PageBlocks {
    /// A block has 2^order pages.
    pub(crate) order: u32,
    /// Names of types by their number.
    pub(crate) names: Vec<String>,
    /// `MIGRATE_MOVABLE`.
    movable: u8,
    /// Types of the blocks of each section, by the section's number.
    sections: HashMap<u64, Vec<u8>>,
    pages_per_section: u64,
}

impl PageBlocks {
    /// Reads `mem_section[].usage.pageblock_flags`.
    pub(crate) fn read(machine: &Machine<'_>, kernel: &Kernel, end: Pfn) -> Result<Self, Fault> {
        let space = machine.space();
        let btf = space.btf();
        let page_shift = machine.page_size().bytes().trailing_zeros();
        // A constant unless huge pages have several sizes: that of a huge page, which an entry of the level above pages maps.
        let order = machine.u32("pageblock_order").ok().filter(|order| (1..=20).contains(order));
        let order = order.unwrap_or(page_shift.saturating_sub(3));
        let mut names = Vec::new();
        for (name, value) in btf.enum_with("MIGRATE_MOVABLE") {
            let Some(name) = name.strip_prefix("MIGRATE_") else { continue };
            // Numbers of types, not types.
            if name == "PCPTYPES" || name == "TYPES" || !(0..8).contains(&value) {
                continue;
            }
            let at = value as usize;
            if names.len() <= at {
                names.resize(at + 1, String::new());
            }
            if let Some(known) = names.get_mut(at) {
                *known = name.to_lowercase();
            }
        }
        let movable = btf.enumerator("MIGRATE_MOVABLE").unwrap_or(1) as u8;
        // 4 bits a block. 42f46ed99ac6 (6.17) added one for isolation: 5, which take 8.
        let bits = btf.enumerator("__NR_PAGEBLOCK_BITS").or_else(|| btf.enumerator("NR_PAGEBLOCK_BITS"));
        let bits =
            bits.and_then(|bits| u64::try_from(bits).ok()).unwrap_or(4).next_power_of_two().clamp(4, 8);
        let pages_per_section = kernel.pages_per_block() as u64;
        let blocks = (pages_per_section >> order).max(1);
        let size = space.size_of("mem_section")?.max(1);
        let flags = space.offset_of("mem_section_usage", "pageblock_flags")?;
        // SPARSEMEM_EXTREME: a pointer to pointers to pages of sections.
        let roots = machine.u64("mem_section")?;
        let per_root = (machine.page_size().bytes() as u64 / size).max(1);
        let mut found = Self { order, names, movable, sections: HashMap::new(), pages_per_section };
        for section in 0..kernel.blocks(end).min(MAX_SECTIONS) {
            let Ok(root) = machine.memory().u64(roots.wrapping_add(section / per_root * 8)) else { continue };
            if root == 0 {
                continue;
            }
            let at = root.wrapping_add(section % per_root * size);
            let Ok(usage) = space.object(at, "mem_section").and_then(|at| at.get("usage")?.pointer()) else {
                continue;
            };
            if usage == 0 {
                continue;
            }
            let len = (blocks * bits).div_ceil(8);
            let bytes = machine.memory().bytes(usage.wrapping_add(flags), len as usize);
            let Ok(bytes) = bytes else { continue };
            let types = (0..blocks).map(|block| {
                let bit = block * bits;
                let byte = bytes.get((bit / 8) as usize).copied().unwrap_or(0);
                byte >> (bit % 8) & 7
            });
            found.sections.insert(section, types.collect());
        }
        Ok(found)
    }

    /// Returns the types of the blocks of the section of `pfn`.
    pub(crate) fn of_section(&self, pfn: Pfn) -> &[u8] {
        let section = pfn.number().checked_div(self.pages_per_section).unwrap_or(0);
        self.sections.get(&section).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether the kernel keeps blocks of this type free of pages that cannot move.
    pub(crate) fn is_movable(&self, of: u8) -> bool {
        of == self.movable
    }

    /// Returns the name of a type.
    pub(crate) fn name(&self, of: u8) -> String {
        match self.names.get(of as usize) {
            Some(name) if !name.is_empty() => name.clone(),
            _ if of == UNKNOWN => "unknown".into(),
            _ => format!("type {of}"),
        }
    }

    /// Whether types of any section are known.
    pub(crate) fn are_known(&self) -> bool {
        !self.sections.is_empty()
    }
}
