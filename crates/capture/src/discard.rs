//! An output that keeps nothing.

use std::time::Instant;

use pagehaul_output::{DumpWriter, FinishBound, PageBatch, Recorded, WriteCosts, WriteError};

/// Counts pages and bytes, and drops them.
#[derive(Default)]
pub(crate) struct Discard {
    pages: u64,
    bytes: u64,
}

impl DumpWriter for Discard {
    fn begin(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    fn write_batch(&mut self, batch: PageBatch<'_>) -> Result<(), WriteError> {
        self.pages += batch.len() as u64;
        self.bytes += batch.data.len() as u64;
        Ok(())
    }

    fn finish(&mut self, _complete: bool) -> Result<(), WriteError> {
        Ok(())
    }

    fn abandon(&mut self, _until: Option<Instant>) -> Recorded {
        Recorded::pages(self.pages)
    }

    fn size_with(&self, batch: PageBatch<'_>) -> u64 {
        self.bytes + batch.data.len() as u64
    }

    fn finish_bound(&self) -> FinishBound {
        FinishBound::default()
    }

    fn costs(&self) -> WriteCosts {
        WriteCosts::default()
    }

    fn size(&self) -> u64 {
        self.bytes
    }
}
