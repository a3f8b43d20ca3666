//! The identities of this process, which every file that it opens is tried with.

use std::path::Path;
use std::sync::OnceLock;

use pagehaul_physmem::OpenError;

use crate::Identity;

/// Names a file of identities.
const VARIABLE: &str = "PAGEHAUL_IDENTITY";

static HELD: OnceLock<Vec<Identity>> = OnceLock::new();

/// Keeps the identities in a file until this process ends; without one, those in the file that the environment variable
/// `PAGEHAUL_IDENTITY` names, if it is set. Only the first call that finds some has an effect.
pub fn hold(file: Option<&Path>) -> Result<(), OpenError> {
    let variable = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
    let Some(file) = file.or(variable.as_deref().map(Path::new)) else { return Ok(()) };
    if HELD.get().is_none() {
        let identities = Identity::read(file)?;
        HELD.get_or_init(|| identities);
    }
    Ok(())
}

/// The identities that were given to [`hold`].
pub fn held() -> &'static [Identity] {
    HELD.get().map_or(&[], Vec::as_slice)
}
