//! Encrypted dumps and cores in files and on standard output.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pagehaul_encryption::Recipients;
use pagehaul_output::{CreateOptions, Naming, NewFile, OutputError, Special, checksums};

use crate::{UploadError, Uploading};

/// A file that could not be completed is kept if it has more: less holds no page.
const LEAST_KEPT: u64 = 128 << 10;

/// What became of a file.
#[derive(Debug)]
pub enum Written<T, E> {
    /// It is complete, or marked incomplete, and has its name.
    Named(T),
    /// It could not be completed. The file, under the name of an incomplete one, has what was written before.
    Part {
        /// The file.
        file: PathBuf,
        /// Why it ends there; an [`UploadError`] if its disk is full, or fails.
        why: E,
    },
}

/// Standard output, and its name in messages.
pub fn stdout() -> std::io::Result<(Arc<File>, &'static Path)> {
    let file = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    Ok((Arc::new(file), Path::new("standard output")))
}

/// Creates the file `output`, which is none of `sources` (device and inode), and has `write` fill the pipe that is encrypted into it.
pub fn create<T, E: From<UploadError> + From<OutputError>>(
    output: &Path,
    overwrite: bool,
    sources: &[(u64, u64)],
    recipients: &Recipients,
    write: impl FnOnce(Uploading) -> Result<T, E>,
) -> Result<Written<T, E>, E> {
    let mut file = new_file(output, overwrite, sources)?;
    let encrypting = Uploading::encrypt(file.file().clone(), output, recipients);
    let why = match encrypting.map_err(E::from).and_then(write) {
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
    Ok(Written::Part { file: file.path().to_owned(), why })
}

/// Creates a file that is to be encrypted, none of `sources`.
pub fn new_file(output: &Path, overwrite: bool, sources: &[(u64, u64)]) -> Result<NewFile, OutputError> {
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
