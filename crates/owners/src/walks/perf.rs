//! Ring buffers of perf events.

use pagehaul_btf::Fault;

use super::Walks;
use crate::claims::Claimant;

impl Walks<'_> {
    /// Claims the ring buffer of the `struct perf_event` at `event`, which `process` has open. Events share buffers.
    pub(super) fn perf(&mut self, event: u64, process: &str) -> Result<(), Fault> {
        let machine = self.machine;
        // Null: the file was not mapped.
        let buffer = machine.space().object(event, "perf_event")?.get("rb")?.target()?;
        let claimant = self.claims.claimant(Claimant::RingBuffer { owner: process.to_owned() });
        self.claim_at(buffer.get("user_page")?.pointer()?, claimant)?;
        // With CONFIG_PERF_USE_VMALLOC, which neither x86_64 nor arm64 has, one pointer to an area of vmalloc.
        self.claim_all_at(buffer.get("data_pages")?.address(), buffer.number("nr_pages")?, claimant)?;
        match buffer.get("aux_pages")?.pointer()? {
            0 => Ok(()),
            pages => self.claim_all_at(pages, buffer.number("aux_nr_pages")?, claimant),
        }
    }

    /// Claims the pages that an array of addresses names.
    fn claim_all_at(&mut self, array: u64, count: u64, claimant: u32) -> Result<(), Fault> {
        let bytes = self.machine.memory().bytes(array, 8 * count.min(self.pages_of_machine()) as usize)?;
        for word in bytes.as_chunks::<8>().0 {
            self.claim_at(u64::from_le_bytes(*word), claimant)?;
        }
        Ok(())
    }
}
