//! Who can read what kdump writes: dumps and logs are encrypted if a file of the machine says so, since the kdump scripts know no
//! option for it.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pagehaul_encryption::Recipients;

use crate::error::Error;
use crate::options::Options;

/// The file of recipients, one a line. It has to be in the initramfs of a capture kernel that mounts no other root.
pub const FILE: &str = "/etc/pagehaul/recipients";
/// Names another file, and has this program encrypt what it makes of any source.
const VARIABLE: &str = "PAGEHAUL_RECIPIENTS";
/// What kdump captures.
const VMCORE: &str = "/proc/vmcore";

/// Returns who can read what is made of `source`; none if all can. A file that cannot be read is an error: to write a dump in the clear
/// is not what its author wants.
pub(crate) fn of(source: &Path) -> Result<Option<Recipients>, Error> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    if named.as_ref().is_some_and(|name| name.as_os_str().is_empty()) {
        let why = "is empty: nothing is written; name a file of recipients, or unset it";
        return Err(Error::Refused(format!("{VARIABLE} {why}")));
    }
    let of_kdump = || is_vmcore(source) && is_wanted(Path::new(FILE));
    let Some(file) = named.or_else(|| of_kdump().then(|| FILE.into())) else { return Ok(None) };
    // A name of this form would be taken for a key.
    let file = std::path::absolute(&file).unwrap_or(file);
    let Some(file) = file.to_str() else {
        return Err(Error::Refused(format!("{VARIABLE} is not UTF-8; give the file another name")));
    };
    Recipients::parse(&[file.to_owned()])
        .map_err(|source| Error::Recipients { file: file.to_owned(), source })
}

/// Fails if recipients are named for what this program makes of any source: a copy of a dump is not encrypted.
pub(crate) fn refuse_copies() -> Result<(), Error> {
    if std::env::var_os(VARIABLE).is_some() {
        return Err(Error::Refused(format!(
            "-R and --reassemble copy dumps as they are, and {VARIABLE} is set; use pagehaul convert --encrypt-to"
        )));
    }
    Ok(())
}

/// Whether a file is the memory of the crashed kernel, under any name.
fn is_vmcore(path: &Path) -> bool {
    let identity = |path: &Path| path.metadata().map(|meta| (meta.dev(), meta.ino())).ok();
    path == Path::new(VMCORE) || identity(path).is_some_and(|of| identity(Path::new(VMCORE)) == Some(of))
}

/// Whether somebody put a file of recipients there, also one that cannot be reached: a link to a volume that is not mounted.
fn is_wanted(file: &Path) -> bool {
    match file.symlink_metadata() {
        Ok(_) => true,
        Err(error) if error.kind() != ErrorKind::NotFound => true,
        // Its directory is a link that leads nowhere.
        Err(_) => file.parent().is_some_and(|parent| parent.symlink_metadata().is_ok() && !parent.is_dir()),
    }
}

/// Fails if a dump of this form cannot be encrypted.
pub(crate) fn check(options: &Options) -> Result<(), Error> {
    if options.elf {
        return Err(Error::Refused(
            "-E cannot be encrypted, as the file of recipients asks for: leave it out, or remove the file"
                .into(),
        ));
    }
    Ok(())
}
