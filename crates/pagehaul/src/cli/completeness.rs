//! Dumps that lack pages, or have damaged ones: what a command says of them, and its exit status.

use std::fmt;
use std::process::ExitCode;

use pagehaul_vmcore::Source;

use crate::exit;

/// Why a command failed that may have succeeded with the whole dump: its faults, with the name of the dump.
#[derive(Debug)]
pub(crate) struct Lacking(Vec<String>);

impl fmt::Display for Lacking {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0.join("; "))
    }
}

/// The warning about a dump that claims to be complete.
const DAMAGED: &str = "pages that are needed are damaged or missing, though it says that it is complete: `pagehaul verify` names them";

/// Returns whether a dump lacks pages, or had damaged ones where it was read: its headers can say that it is complete.
pub(crate) fn has_lost(source: &Source) -> bool {
    source.lacks_pages() || source.met_damage()
}

/// Returns the exit status of a command that has shown what is in a dump.
pub(crate) fn status(source: &Source) -> ExitCode {
    // A failure of the server is reported in the end, with its own status.
    if has_failed() || !has_lost(source) { ExitCode::SUCCESS } else { ExitCode::from(exit::INCOMPLETE) }
}

/// Says on standard error what is wrong with a dump, where the output does not.
pub(crate) fn tell_warnings(source: &Source) {
    warnings(source).iter().for_each(|warning| tell!("pagehaul: {warning}"));
}

/// What is wrong with a dump, as far as it was read.
pub(crate) fn warnings(source: &Source) -> Vec<String> {
    let mut warnings = source.warnings();
    if warnings.is_empty() && source.lacks_pages() {
        warnings.push(format!("{}: it is truncated", source.path().display()));
    }
    if !source.lacks_pages() && source.met_damage() {
        warnings.push(format!("{}: {DAMAGED}", source.path().display()));
    }
    warnings
}

/// Adds to an error that the dump is incomplete, if it is.
pub(crate) fn explain<T>(source: &Source, result: anyhow::Result<T>) -> anyhow::Result<T> {
    if has_failed() || !has_lost(source) {
        return result;
    }
    let warnings = warnings(source);
    // What the reader of standard output said is not about the dump.
    result.map_err(|error| match error.is::<crate::printed::Closed>() {
        true => error,
        false => error.context(Lacking(warnings)),
    })
}

/// Whether a server failed: what it did not deliver is not lost.
pub(crate) fn has_failed() -> bool {
    #[cfg(feature = "remote")]
    return pagehaul_remote::failure().is_some();
    #[cfg(not(feature = "remote"))]
    false
}
