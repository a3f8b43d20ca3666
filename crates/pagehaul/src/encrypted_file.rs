//! Encrypted dumps and cores in files and on standard output.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pagehaul_capture::Target;
use pagehaul_encryption::Recipients;
use pagehaul_output::{CreateOptions, Naming, NewFile, OutputError, Special, checksums};
use pagehaul_upload::{UploadError, Uploading};

/// A file that could not be completed is kept if it has more: less holds no page.
const LEAST_KEPT: u64 = 128 << 10;

/// What became of a file.
pub(crate) enum Written<T> {
    /// It is complete, or marked incomplete, and has its name.
    Named(T),
    /// The disk is full, or fails. The file, under the name of an incomplete one, has what was written before.
    Part { file: PathBuf, why: anyhow::Error },
}

/// Standard output, and its name in messages.
pub(crate) fn stdout() -> anyhow::Result<(Arc<File>, &'static Path)> {
    let file = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    Ok((Arc::new(file), Path::new("standard output")))
}

/// Has `write` fill a pipe that is encrypted into `file`.
pub(crate) fn through<T>(
    file: Arc<File>,
    name: &Path,
    recipients: &Recipients,
    write: impl FnOnce(Target, Uploading) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let encrypting = Uploading::encrypt(file, name, recipients)?;
    let buffered = encrypting.memory();
    write(Target::Pipe { name: name.to_owned(), pipe: encrypting.pipe(), buffered }, encrypting)
}

/// Creates the file `output`, which is none of `sources` (device and inode), and has `write` fill it as [`through`] does.
pub(crate) fn create<T>(
    output: &Path,
    overwrite: bool,
    sources: &[(u64, u64)],
    recipients: &Recipients,
    write: impl FnOnce(Target, Uploading) -> anyhow::Result<T>,
) -> anyhow::Result<Written<T>> {
    let mut file = new_file(output, overwrite, sources)?;
    let why = match through(file.file().clone(), output, recipients, write) {
        Ok(done) => {
            file.commit()?;
            checksums::remove_replaced(output, sources);
            return Ok(Written::Named(done));
        }
        Err(error) => error,
    };
    if file.file().metadata().is_ok_and(|metadata| metadata.len() <= LEAST_KEPT) {
        file.discard();
        return Err(why);
    }
    file.keep()?;
    if why.is::<UploadError>() { Ok(Written::Part { file: file.path().to_owned(), why }) } else { Err(why) }
}

/// Creates a file that is to be encrypted, none of `sources`.
pub(crate) fn new_file(
    output: &Path,
    overwrite: bool,
    sources: &[(u64, u64)],
) -> Result<NewFile, OutputError> {
    let create = CreateOptions {
        // Whether there is something to write is known once the file exists.
        naming: Naming::AtOnceIfNew,
        overwrite,
        special: Special::No,
        private: true,
        sources,
    };
    NewFile::create(output, create)
}
