//! Who can read what kdump writes: dumps and logs are encrypted if a file of the machine says so, since the kdump scripts know no
//! option for it.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use pagehaul_encryption::Recipients;
#[cfg(feature = "kdump-setup")]
use pagehaul_kdump_setup::Root;

use super::options::Options;

/// The file of recipients, one a line. It has to be in the initramfs of a capture kernel that mounts no other root.
const FILE: &str = "/etc/pagehaul/recipients";
/// Names another file, and has this program encrypt what it makes of any source.
const VARIABLE: &str = "PAGEHAUL_RECIPIENTS";
/// What kdump captures.
const VMCORE: &str = "/proc/vmcore";

/// Returns who can read what is made of `source`; none if all can. A file that cannot be read is an error: to write a dump in the clear
/// is not what its author wants.
pub(super) fn of(source: &Path) -> anyhow::Result<Option<Recipients>> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    if named.as_ref().is_some_and(|name| name.as_os_str().is_empty()) {
        bail!("{VARIABLE} is empty: nothing is written; name a file of recipients, or unset it");
    }
    let of_kdump = || is_vmcore(source) && is_wanted(Path::new(FILE));
    let Some(file) = named.or_else(|| of_kdump().then(|| FILE.into())) else { return Ok(None) };
    // A name of this form would be taken for a key.
    let file = std::path::absolute(&file).unwrap_or(file);
    let Some(file) = file.to_str() else { bail!("{VARIABLE} is not UTF-8; give the file another name") };
    Recipients::parse(&[file.to_owned()]).with_context(|| {
        format!("nothing is written, since it is to be encrypted to the recipients in {file}")
    })
}

/// Fails if recipients are named for what this program makes of any source: a copy of a dump is not encrypted.
pub(super) fn refuse_copies() -> anyhow::Result<()> {
    if std::env::var_os(VARIABLE).is_some() {
        bail!(
            "-R and --reassemble copy dumps as they are, and {VARIABLE} is set; use pagehaul convert --encrypt-to"
        );
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

/// Returns how many keys the file of a machine has, or why it cannot be used; `None` if there is no such file.
#[cfg(feature = "kdump-setup")]
pub(crate) fn of_machine(root: &Root) -> Option<Result<usize, String>> {
    let text = match root.read(FILE) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // A link that leads nowhere below the root.
            let is_there = root.names("/etc/pagehaul").iter().any(|name| name == "recipients");
            return is_there.then(|| Err("it is a link to a file that does not exist".into()));
        }
        Err(error) => return Some(Err(format!("it cannot be read: {error}"))),
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
    };
    let parsed = Recipients::of_text(&text, Path::new(FILE));
    Some(parsed.map(|recipients| recipients.count()).map_err(|error| error.to_string()))
}

/// Fails if a dump of this form cannot be encrypted.
pub(super) fn check(options: &Options, outputs: usize) -> anyhow::Result<()> {
    let form = if options.elf { "-E" } else { "--split" };
    if options.elf || outputs > 1 {
        bail!(
            "{form} cannot be encrypted, as the file of recipients asks for: leave it out, or remove the file"
        );
    }
    Ok(())
}
