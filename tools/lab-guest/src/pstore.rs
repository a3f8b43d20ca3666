//! Records of pstore, as the capture kernel finds them.

use crate::Result;
use crate::system::mount;
use std::fs;
use std::path::Path;

/// Copies the records to a directory of `out`, if this kernel has a backend.
pub fn keep(out: &str) -> Result<()> {
    let backend = fs::read_to_string("/sys/module/pstore/parameters/backend").unwrap_or_default();
    if matches!(backend.trim(), "" | "(null)") {
        return Ok(());
    }
    const SHOWN: &str = "/sys/fs/pstore";
    mount("pstore", SHOWN, "pstore", "")?;
    let directory = format!("{out}/pstore");
    fs::create_dir(&directory).map_err(|e| format!("{directory}: {e}"))?;
    for entry in fs::read_dir(SHOWN).map_err(|e| format!("{SHOWN}: {e}"))?.flatten() {
        let from = entry.path();
        fs::copy(&from, Path::new(&directory).join(entry.file_name()))
            .map_err(|e| format!("{}: {e}", from.display()))?;
    }
    Ok(())
}
