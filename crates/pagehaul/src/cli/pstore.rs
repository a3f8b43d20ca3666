//! Records of a kernel log in pstore, in place of a dump.

use std::path::PathBuf;

use anyhow::{Context, bail};
use pagehaul_facts::{Facts, is_pstore};
use pagehaul_physmem::file::is_url;
use pagehaul_vmcore::open_file;

/// Bytes of a file that are read. Records have 1 KiB (EFI) to a few MiB.
const MAX_FILE: u64 = 16 << 20;

/// Reads the facts in records of pstore. `None` if the first file is none.
pub(crate) fn facts(paths: &[PathBuf]) -> anyhow::Result<Option<Facts>> {
    // A request to a server for each dump would be in vain.
    if paths.iter().any(|path| is_url(path)) {
        return Ok(None);
    }
    let mut files = Vec::new();
    for path in paths {
        let file = open_file(path)?;
        let context = || format!("cannot read {}", file.path().display());
        let mut start = [0; 64];
        let count = file.read_at(0, &mut start).with_context(context)?;
        // The kernel names those so that it could not decompress.
        let compressed = path.as_os_str().as_encoded_bytes().ends_with(b".enc.z");
        if !compressed && !is_pstore(start.get(..count).unwrap_or_default()) {
            if files.is_empty() {
                return Ok(None);
            }
            if file.size() > 0 {
                bail!(
                    "{} is no record of pstore, as those before it are: name those of one crash alone",
                    path.display()
                );
            }
        }
        let mut bytes = vec![0; file.size().min(MAX_FILE) as usize];
        file.read_exact_at(0, &mut bytes).with_context(context)?;
        files.push(bytes);
    }
    let first = paths.first().map(|path| path.display().to_string()).unwrap_or_default();
    let facts = Facts::from_pstore(&files, concat!("pagehaul ", env!("CARGO_PKG_VERSION")).to_owned());
    Ok(Some(facts.with_context(|| first)?))
}
