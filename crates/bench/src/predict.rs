//! Predicts the time of a capture on other machines from rates measured here. A simple model (scan, then pack while
//! writing) that shows which part limits a capture; its times are estimates.

use serde::{Deserialize, Serialize};

/// Rates of one CPU, and the share of memory that is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// The dump level.
    pub level: u8,
    /// Struct pages a CPU classifies per second.
    pub scan: f64,
    /// Bytes of memory a CPU packs per second.
    pub pack: f64,
    /// Bytes of packed pages that the writing thread places per second at most.
    pub place: f64,
    /// Bytes packed over bytes stored.
    pub ratio: f64,
    /// Share of memory that is kept.
    pub kept: f64,
}

/// Bytes per second that the one writing thread places at most (docs/benchmarks/2026-11-21-scale.md).
pub const PLACE: f64 = 3.1e9;

/// What limits a prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Limit {
    /// The CPUs.
    Cpus,
    /// The disk.
    Disk,
    /// The writing thread.
    Writer,
}

/// The predicted time of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prediction {
    /// The dump level.
    pub level: u8,
    /// Bytes of memory.
    pub memory: u64,
    /// CPUs of the capture kernel.
    pub cpus: u32,
    /// Bytes per second the disk takes.
    pub disk: u64,
    /// Seconds.
    pub seconds: f64,
    /// What limits the larger part of that time.
    pub limit: Limit,
}

/// The machines of the table: 1, 4, 12 and 64 TiB.
pub const MEMORY: [u64; 4] = [1 << 40, 4 << 40, 12 << 40, 64 << 40];
/// The CPUs of the table.
pub const CPUS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Assumptions of the predictions.
pub const ASSUMPTIONS: [&str; 7] = [
    "memory has the page classes and the contents of the simulated machine's",
    "every CPU scans and packs as fast as one of those measured, and memory bandwidth is enough for all of them",
    "/proc/vmcore is mapped at memory speed: no per-page check of what is RAM, no software emulation",
    "the disk sustains its bandwidth from the first byte to the last, and has no other writer",
    "scanning overlaps with nothing; packing overlaps with writing, and the slower of the two counts",
    "one thread writes all batches, at the rate measured for uncompressed pages",
    "descriptors (24 bytes a page) and both bitmaps (a bit a page each) go to the same disk",
];

/// Predicts the time of one machine.
pub fn predict(rates: &Rates, memory: u64, cpus: u32, disk: u64) -> Prediction {
    let (pages, cpus_f, disk_f) = (memory as f64 / 4096.0, f64::from(cpus), disk as f64);
    let bitmaps = pages / 4.0;
    let scan_cpus = pages / (rates.scan * cpus_f);
    let scan = scan_cpus.max(bitmaps / disk_f);
    let kept = memory as f64 * rates.kept;
    let stored = kept / rates.ratio;
    let parts = [
        (kept / (rates.pack * cpus_f), Limit::Cpus),
        ((stored + kept / 4096.0 * 24.0) / disk_f, Limit::Disk),
        (stored / rates.place, Limit::Writer),
    ];
    let (pack, limit) =
        parts.into_iter().fold((0.0, Limit::Cpus), |most, part| if part.0 > most.0 { part } else { most });
    let limit = match limit {
        // The scan may take longer than the rest.
        _ if scan > pack && scan_cpus < scan => Limit::Disk,
        _ if scan > pack => Limit::Cpus,
        limit => limit,
    };
    Prediction { level: rates.level, memory, cpus, disk, seconds: scan + pack, limit }
}

/// Predicts every machine, CPU count and disk of the table.
pub fn table(rates: &[Rates], disks: &[u64]) -> Vec<Prediction> {
    let mut table = Vec::new();
    for rates in rates {
        for memory in MEMORY {
            for &disk in disks {
                table.extend(CPUS.map(|cpus| predict(rates, memory, cpus, disk)));
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
    fn the_scarcest_thing_decides() {
        let tib = 1 << 40;
        let one = predict(&RATES, tib, 1, 10 << 30);
        let pages = tib as f64 / 4096.0;
        assert!((one.seconds - (pages / 2e8 + tib as f64 * 0.1 / 1e9)).abs() < 1e-6);
        assert_eq!(one.limit, Limit::Cpus);
        assert_eq!(predict(&RATES, tib, 64, 100 << 20).limit, Limit::Disk);
        assert_eq!(predict(&RATES, tib, 64, 100 << 30).limit, Limit::Writer);
    }

    #[test]
    fn more_of_anything_is_never_slower() {
        let table = table(&[RATES], &[1 << 28, 1 << 30]);
        assert_eq!(table.len(), MEMORY.len() * 2 * CPUS.len());
        for row in table.chunks(CPUS.len()) {
            assert!(row.is_sorted_by(|a, b| a.seconds >= b.seconds), "{row:?}");
        }
    }
}
