//! Pages that drivers allocated from areas for contiguous memory (CMA). Processes and files can use the other pages of an area, which have
//! marks.

use pagehaul_btf::{Fault, Object};
use pagehaul_machine::{PageCount, Pfn};

use super::Walks;
use crate::claims::Claimant;

/// Areas that are read (`MAX_CMA_AREAS` is at most 129).
const MAX_AREAS: u64 = 1024;
/// Largest `order_per_bit` that is believed: 4 GiB in pages of 4 KiB.
const MAX_ORDER: u64 = 20;

impl Walks<'_> {
    pub(super) fn cma(&mut self) {
        match self.cma_areas() {
            // A kernel without CMA.
            Ok(()) | Err(Fault::NoSymbol(_) | Fault::NoType(_)) => {}
            Err(why) => self.failed("CMA", why),
        }
    }

    fn cma_areas(&mut self) -> Result<(), Fault> {
        let machine = self.machine;
        let areas = machine.variable("cma_areas", "cma")?;
        for number in 0..u64::from(machine.u32("cma_area_count")?).min(MAX_AREAS) {
            let area = areas.index(number)?;
            let claimant = self.claims.claimant(Claimant::Cma { area: area.get("name")?.text()? });
            let order = area.number("order_per_bit")?.min(MAX_ORDER);
            if !area.has("ranges") {
                self.cma_range(&area, order, claimant)?;
                continue;
            }
            // c009da4258f9 (6.15): several ranges.
            let ranges = area.get("ranges")?;
            for range in 0..area.number("nranges")?.min(ranges.len()) {
                self.cma_range(&ranges.index(range)?, order, claimant)?;
            }
        }
        Ok(())
    }

    /// Claims the pages of a range that its bitmap has as allocated.
    fn cma_range(&mut self, range: &Object<'_>, order: u64, claimant: u32) -> Result<(), Fault> {
        let first = Pfn::new(range.number("base_pfn")?);
        let bits = range.number("count")?.min(self.pages_of_machine()) >> order;
        let bitmap = range.get("bitmap")?.pointer()?;
        // An area that could not be set up has none.
        if bits == 0 || bitmap == 0 {
            return Ok(());
        }
        let bytes = self.machine.memory().bytes(bitmap, bits.div_ceil(64) as usize * 8)?;
        let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        for bit in pagehaul_physmem::bits::ones(&words).map(|bit| bit as u64).take_while(|bit| *bit < bits) {
            let start = first + PageCount::new(bit << order);
            self.claims.add(start..start + PageCount::new(1 << order), claimant);
        }
        Ok(())
    }
}
