//! Free pages on the lists of CPUs.

use pagehaul_inspect::per_cpu_blocks;

use super::{PER_CPU_LISTS, Walks};
use crate::claims::Claimant;

impl Walks<'_> {
    pub(super) fn per_cpu_lists(&mut self) {
        let claimant = self.claims.claimant(Claimant::PerCpuList);
        match per_cpu_blocks(self.machine, &|page| self.memmap.pfn(page)) {
            Ok(found) => {
                self.listed = Some(found.counted);
                self.in_change = found.in_change;
                self.changing = found.changing;
                found.blocks.into_iter().for_each(|block| self.claims.add(block, claimant));
                found.skipped.into_iter().for_each(|why| self.missing.push(why));
            }
            Err(why) => self.failed(PER_CPU_LISTS, why),
        }
    }
}
