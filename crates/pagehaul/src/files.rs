//! Files that are written besides dumps: pages and charts.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, bail};

/// Refuses an output that is one of the files it is made from, by whatever name: writing it would destroy what may be the
/// only copy of a crash.
pub(crate) fn not_a_source<'a>(
    output: &Path,
    sources: impl IntoIterator<Item = &'a Path>,
) -> anyhow::Result<()> {
    let identity =
        |path: &Path| std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
    // What does not exist yet is nobody's source.
    let Some(written) = identity(output) else { return Ok(()) };
    if sources.into_iter().any(|source| identity(source) == Some(written)) {
        bail!("{} is the source itself; name another output", output.display());
    }
    Ok(())
}

/// Writes a file made from `sources`.
pub(crate) fn write<'a>(
    output: &Path,
    contents: &str,
    sources: impl IntoIterator<Item = &'a Path>,
) -> anyhow::Result<()> {
    not_a_source(output, sources)?;
    std::fs::write(output, contents).with_context(|| format!("cannot write {}", output.display()))
}
