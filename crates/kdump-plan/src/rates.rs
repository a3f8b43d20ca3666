//! Rates of a capture: of a sample of memory, or as `bench capture` measured them.

use std::path::Path;

use pagehaul_bench::predict::{PLACE, Rates};
use pagehaul_bench::stages::Measured;
use pagehaul_codec::Method;
use pagehaul_kernel::DumpLevel;
use serde::Deserialize;

use crate::error::PlanError;
use crate::memory::{Dump, Memory};

/// The codec's part of a CPU's time when pages need not be read (docs/benchmarks/2026-11-21-pack.md: 0.84 to 0.94 with two
/// threads).
const PACK_SHARE: f64 = 0.84;

/// Seconds in which the writing thread encrypts a byte, with all its copies (docs/benchmarks/2026-11-27-encryption-writer.md).
const ENCRYPT: f64 = 0.4e-9;

/// The rates of a dump that is encrypted by the writing thread, which shares the CPUs with those that pack.
pub(crate) fn encrypted(rates: Rates) -> Rates {
    let pack = 1.0 / (1.0 / rates.pack + ENCRYPT / rates.ratio);
    let place = 1.0 / (1.0 / rates.place + ENCRYPT);
    Rates { pack, place, ..rates }
}

/// The rates of this machine, from its sample.
pub(crate) fn sampled(found: &Memory, dump: &Dump) -> Rates {
    let kept = found.page_size.bytes_of(dump.pages) as f64;
    Rates {
        level: dump.level,
        scan: found.scan,
        pack: kept / (dump.cpu_seconds / PACK_SHARE + found.read * dump.pages as f64).max(1e-9),
        place: PLACE,
        ratio: kept / dump.stored.max(1.0),
        kept: kept / found.bytes().max(1) as f64,
    }
}

/// Reads what `bench capture --json` printed, and refuses rates of other pages or of another codec.
pub fn measured_rates(path: &Path, level: DumpLevel, method: Method) -> Result<Measured, PlanError> {
    #[derive(Deserialize)]
    struct Printed {
        codec: String,
        #[serde(flatten)]
        measured: Measured,
    }
    let text = std::fs::read(path).map_err(|source| PlanError::Io { path: path.to_owned(), source })?;
    let Printed { codec, measured } = serde_json::from_slice(&text)
        .map_err(|source| PlanError::NotRates { path: path.to_owned(), source })?;
    let Measured { rates, start } = &measured;
    let wrong = |what| Err(PlanError::Rates { path: path.to_owned(), what });
    if rates.level != level.bits() || codec != method.to_string() {
        return wrong(format!(
            "rates of level {} with {codec}, and the plan is for level {} with {method}: measure with the same",
            rates.level,
            level.bits(),
        ));
    }
    let positive = |rate: f64| rate.is_finite() && rate > 0.0;
    if !(positive(rates.scan) && positive(rates.pack) && start.is_finite() && *start >= 0.0) {
        return wrong("rates that no machine has: measure again".into());
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encryption_costs_cpus_and_the_writing_thread_by_what_is_stored() {
        let plain = Rates { level: 0, scan: 2e8, pack: 1e9, place: 2e9, ratio: 4.0, kept: 1.0 };
        let rates = encrypted(plain.clone());
        // Of each GB a CPU takes a second to pack, and 0.1 s to encrypt 0.25 GB.
        assert!((rates.pack - 1e9 / 1.1).abs() < 1.0, "{}", rates.pack);
        assert!((rates.place - 1e9 / 0.9).abs() < 1.0, "{}", rates.place);
        assert_eq!(Rates { pack: plain.pack, place: plain.place, ..rates }, plain);
    }
}
