//! `--encrypt-to`: who can read what is written.

use std::path::Path;

use pagehaul_encryption::Recipients;

use crate::cli::dump_output::is_same_file;
use crate::usage;

/// Who can read an output; none are named if it is not encrypted.
pub(crate) fn recipients(keys: &[String]) -> anyhow::Result<Option<Recipients>> {
    Recipients::parse(keys).map_err(|error| usage::wrong(format!("--encrypt-to: {error}")))
}

/// Refuses an output that is one of the files of keys.
pub(crate) fn spare_keys(keys: &[String], identity: Option<&Path>, output: &Path) -> anyhow::Result<()> {
    let mut keys = keys.iter().map(Path::new).chain(identity);
    match keys.any(|key| is_same_file(key, output)) {
        true => Err(usage::wrong(format!("{} has the keys; name another output", output.display()))),
        false => Ok(()),
    }
}
