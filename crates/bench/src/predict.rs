//! Predicts the time of a capture on other machines from rates measured here. A simple model (scan, then pack while
//! writing) that shows which part limits a capture; its times are estimates.

use pagehaul_machine::PageSize;
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
    Cpus,
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
    pub seconds: f64,
    /// What limits the larger part of that time.
    pub limit: Limit,
}

/// Predicts the time of one machine.
pub fn predict(rates: &Rates, page_size: PageSize, memory: u64, cpus: u32, disk: u64) -> Prediction {
    let page = page_size.bytes() as f64;
    let (pages, cpus_f, disk_f) = (memory as f64 / page, f64::from(cpus), disk as f64);
    let bitmaps = pages / 4.0;
    let scan_cpus = pages / (rates.scan * cpus_f);
    let scan = scan_cpus.max(bitmaps / disk_f);
    let kept = memory as f64 * rates.kept;
    let stored = kept / rates.ratio;
    let parts = [
        (kept / (rates.pack * cpus_f), Limit::Cpus),
        ((stored + kept / page * 24.0) / disk_f, Limit::Disk),
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

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: Rates = Rates { level: 31, scan: 2e8, pack: 1e9, place: 2e9, ratio: 4.0, kept: 0.1 };

    #[test]
    fn the_scarcest_thing_decides() {
        let tib = 1 << 40;
        let one = predict(&RATES, PageSize::KIB_4, tib, 1, 10 << 30);
        let pages = tib as f64 / 4096.0;
        assert!((one.seconds - (pages / 2e8 + tib as f64 * 0.1 / 1e9)).abs() < 1e-6);
        assert_eq!(one.limit, Limit::Cpus);
        assert_eq!(predict(&RATES, PageSize::KIB_4, tib, 64, 100 << 20).limit, Limit::Disk);
        assert_eq!(predict(&RATES, PageSize::KIB_4, tib, 64, 100 << 30).limit, Limit::Writer);
    }

    #[test]
    fn larger_pages_are_fewer_to_scan_and_to_describe() {
        let kib_64 = PageSize::new(64 << 10).unwrap();
        let [small, large] =
            [PageSize::KIB_4, kib_64].map(|size| predict(&RATES, size, 1 << 40, 1, 10 << 30).seconds);
        let struct_pages = (1u64 << 40) as f64 / 4096.0 / RATES.scan;
        assert!((small - large - struct_pages * 15.0 / 16.0).abs() < 1e-6);
    }
}
