//! Files other than dumps and cores: reports, charts and recordings.

use std::io::Write;
#[cfg(any(feature = "bench", feature = "census", feature = "html", feature = "stalls"))]
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Context;
use pagehaul_output::{CreateOptions, NewFile};
#[cfg(any(feature = "bench", feature = "census", feature = "html", feature = "stalls"))]
use pagehaul_output::{Naming, Special};

/// A report replaces a file that exists with --force only, once it is complete. It shows contents of memory: names of processes,
/// their arguments, keys of modules.
#[cfg(any(feature = "bench", feature = "census", feature = "html", feature = "stalls"))]
const REPORT: CreateOptions<'static> = CreateOptions {
    naming: Naming::WhenComplete,
    overwrite: false,
    special: Special::Any,
    private: true,
    sources: &[],
};

/// Refuses a report that would overwrite one of its sources, under any name, which may be the only copy of a crash, or without
/// `overwrite` any other file.
#[cfg(any(feature = "bench", feature = "census", feature = "html", feature = "stalls"))]
pub(crate) fn check<'a>(
    output: &Path,
    sources: impl IntoIterator<Item = &'a Path>,
    overwrite: bool,
) -> anyhow::Result<()> {
    // These commands print other text to standard output.
    anyhow::ensure!(
        output != Path::new("-"),
        "cannot write this to -: name a file (./- if that is its name), or /dev/stdout"
    );
    Ok(NewFile::check(output, CreateOptions { sources: &identities(sources), overwrite, ..REPORT })?)
}

/// Writes a report made from `sources`, where [`check`] allows it.
#[cfg(any(feature = "bench", feature = "census", feature = "html", feature = "stalls"))]
pub(crate) fn write<'a>(
    output: &Path,
    contents: impl AsRef<[u8]>,
    sources: impl IntoIterator<Item = &'a Path>,
    overwrite: bool,
) -> anyhow::Result<()> {
    write_new(output, contents.as_ref(), CreateOptions { sources: &identities(sources), overwrite, ..REPORT })
}

/// Writes a file, and returns once it is on the disk.
pub(crate) fn write_new(path: &Path, contents: &[u8], options: CreateOptions<'_>) -> anyhow::Result<()> {
    let mut file = NewFile::create(path, options)?;
    let written = (&**file.file()).write_all(contents).and_then(|()| match file.file().sync_data() {
        // A pipe.
        Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => Ok(()),
        synced => synced,
    });
    written.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(file.commit()?)
}

/// Device and inode of each file that exists.
#[cfg(any(feature = "bench", feature = "census", feature = "html", feature = "stalls"))]
fn identities<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Vec<(u64, u64)> {
    let metadata = paths.into_iter().filter_map(|path| std::fs::metadata(path).ok());
    metadata.map(|metadata| (metadata.dev(), metadata.ino())).collect()
}

/// A recording of trace events, useful even if it is incomplete.
#[cfg(feature = "stalls")]
pub(crate) struct Recording(NewFile);

#[cfg(feature = "stalls")]
impl Recording {
    /// Creates the file, readable by its owner only. One that exists is replaced only with `overwrite`.
    pub(crate) fn create(path: &Path, overwrite: bool) -> anyhow::Result<Self> {
        let options = CreateOptions { naming: Naming::AtOnceIfNew, overwrite, ..REPORT };
        Ok(Self(NewFile::create(path, options)?))
    }

    /// Starts to record with `start`, which gets the file and its path. Removes the file if that fails.
    pub(crate) fn start<T, E: Into<anyhow::Error>>(
        &self,
        start: impl FnOnce((std::fs::File, &Path)) -> Result<T, E>,
    ) -> anyhow::Result<T> {
        let file = self.0.file().try_clone().context("cannot duplicate a file descriptor")?;
        start((file, self.0.path())).map_err(Into::into).inspect_err(|_| self.0.discard())
    }

    /// Ends the recording with what the recorder returned.
    pub(crate) fn finish<T, E: Into<anyhow::Error>>(mut self, recorded: Result<T, E>) -> anyhow::Result<T> {
        match recorded {
            Ok(summary) => self.0.commit().map(|()| summary).map_err(Into::into),
            Err(error) => {
                self.0.keep()?;
                Err(error.into())
            }
        }
    }
}

#[cfg(all(test, feature = "stalls"))]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_recording_replaces_a_file_only_on_request_and_once_complete() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("recording.pht");
        let record = |overwrite, recorded: anyhow::Result<()>| {
            let recording = Recording::create(&path, overwrite)?;
            recording.start(|(mut file, _)| file.write_all(b"events"))?;
            recording.finish(recorded)
        };
        record(false, Ok(())).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(record(false, Ok(())).unwrap_err().to_string().contains("exists; remove it"));
        fs::write(&path, "old").unwrap();
        assert!(record(true, Err(anyhow::anyhow!("disk full"))).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read(directory.path().join("recording.pht.incomplete")).unwrap(), b"events");
        record(true, Ok(())).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"events");
        // What could not be started leaves nothing.
        fs::remove_file(&path).unwrap();
        let recording = Recording::create(&path, false).unwrap();
        let refused: anyhow::Result<()> = recording.start(|_| Err(anyhow::anyhow!("no tracefs")));
        assert!(refused.is_err() && !path.exists());
    }
}
