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
