//! Page tables that carry no mark: directories of processes (until 6.18), their tables of PUDs (seen on 6.1, not on 6.12), and the
//! kernel's own tables.

use std::collections::HashSet;

use pagehaul_machine::{PageCount, PhysAddr};

use super::Walks;
use crate::claims::Claimant;

impl Walks<'_> {
    pub(super) fn page_tables(&mut self) {
        let claimant = self.claims.claimant(Claimant::PageTable);
        for pages in std::mem::take(&mut self.kernel_tables) {
            self.claims.add(pages, claimant);
        }
        let machine = self.machine;
        let page_size = machine.kernel().page_size();
        let start = match machine.kernel().direct_map().map_or_else(|| machine.u64("page_offset_base"), Ok) {
            Ok(start) => start,
            Err(why) => return self.missing("page directories", format_args!("not checked: {why}")),
        };
        // What the direct map begins with: PHYS_OFFSET of arm64; 0 on x86_64.
        let first = machine.u64("memstart_addr").unwrap_or(0);
        let (kernel, mut view) = (self.kernel, self.memory.view());
        let mut seen = HashSet::new();
        for task in self.tasks.all.iter().filter(|task| task.mm.0 != 0 && seen.insert(task.mm.0)) {
            let mm = machine.space().object(task.mm.0, "mm_struct");
            if let Ok(directory) = mm.and_then(|mm| mm.get("pgd")?.pointer()) {
                let directory = directory.wrapping_sub(start).wrapping_add(first);
                let tables = kernel.upper_tables(view.as_mut(), directory).into_iter();
                for table in tables.chain([directory]) {
                    let pfn = PhysAddr::new(table).pfn(page_size);
                    self.claims.add(pfn..pfn + PageCount::new(1), claimant);
                }
            }
        }
    }
}
