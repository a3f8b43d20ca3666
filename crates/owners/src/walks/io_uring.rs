//! Rings of io_uring. Registered buffers are memory of processes, and are not among them.

use pagehaul_btf::Fault;

use super::Walks;
use crate::claims::Claimant;

impl Walks<'_> {
    /// Claims the rings of the `struct io_ring_ctx` at `context`, which `process` has open.
    pub(super) fn io_uring(&mut self, context: u64, process: &str) -> Result<(), Fault> {
        let context = self.machine.space().object(context, "io_ring_ctx")?;
        let claimant = self.claims.claimant(Claimant::IoUring { process: process.to_owned() });
        if context.has("ring_region") {
            // 81a4058e0cd0, 8078486e1d53 (6.14).
            for region in ["ring_region", "sq_region", "param_region"] {
                if let Ok(region) = context.get(region) {
                    self.claim_array(&region, "pages", "nr_pages", claimant)?;
                }
            }
            return Ok(());
        }
        for (memory, pages, count) in
            [("rings", "ring_pages", "n_ring_pages"), ("sq_sqes", "sqe_pages", "n_sqe_pages")]
        {
            // 09fc75e0c035 (6.10): rings are pages one by one where no block is free. With IORING_SETUP_NO_MMAP (6.5) they are the
            // process's, whose struct pages say so.
            if context.number(count).is_ok_and(|count| count > 0) {
                self.claim_array(&context, pages, count, claimant)?;
            } else {
                self.claim_at(context.get(memory)?.pointer()?, claimant)?;
            }
        }
        Ok(())
    }
}
