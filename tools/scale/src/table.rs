//! Predictions for machines of a table.

use pagehaul_bench::predict::{Prediction, Rates, predict};
use pagehaul_machine::PageSize;

/// The machines of the table: 1, 4, 12 and 64 TiB.
pub(crate) const MEMORY: [u64; 4] = [1 << 40, 4 << 40, 12 << 40, 64 << 40];
/// The CPUs of the table.
pub(crate) const CPUS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Assumptions of the predictions.
pub(crate) const ASSUMPTIONS: [&str; 7] = [
    "memory has the page classes and the contents of the simulated machine's",
    "every CPU scans and packs as fast as one of those measured, and memory bandwidth is enough for all of them",
    "/proc/vmcore is mapped at memory speed: no per-page check of what is RAM, no software emulation",
    "the disk sustains its bandwidth from the first byte to the last, and has no other writer",
    "scanning overlaps with nothing; packing overlaps with writing, and the slower of the two counts",
    "one thread writes all batches, at the rate measured for uncompressed pages",
    "descriptors (24 bytes a page) and both bitmaps (a bit a page each) go to the same disk",
];

/// Predicts every machine, CPU count and disk of the table.
pub(crate) fn table(rates: &[Rates], disks: &[u64]) -> Vec<Prediction> {
    let mut table = Vec::new();
    for rates in rates {
        for memory in MEMORY {
            for &disk in disks {
                table.extend(CPUS.map(|cpus| predict(rates, PageSize::KIB_4, memory, cpus, disk)));
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: Rates = Rates { level: 31, scan: 2e8, pack: 1e9, place: 2e9, ratio: 4.0, kept: 0.1 };

    #[test]
    fn more_of_anything_is_never_slower() {
        let table = table(&[RATES], &[1 << 28, 1 << 30]);
        assert_eq!(table.len(), MEMORY.len() * 2 * CPUS.len());
        for row in table.chunks(CPUS.len()) {
            assert!(row.is_sorted_by(|a, b| a.seconds >= b.seconds), "{row:?}");
        }
    }
}
