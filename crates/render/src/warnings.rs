//! What the reader of a report of a trace should know.

use pagehaul_present::printable;

/// One line per warning, marked as in the report of reclaim.
pub(crate) fn lines(warnings: &[String]) -> String {
    warnings.iter().map(|warning| format!("! {}\n", printable(warning))).collect()
}
