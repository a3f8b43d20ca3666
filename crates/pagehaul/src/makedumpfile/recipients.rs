//! Who can read what kdump writes: dumps and logs are encrypted if a file of the machine says so, since the kdump scripts know no
//! option for it.

#[cfg(feature = "kdump-setup")]
use std::io::ErrorKind;
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
    let named = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from);
    let of_kdump = || source == Path::new(VMCORE) && Path::new(FILE).symlink_metadata().is_ok();
    let Some(file) = named.or_else(|| of_kdump().then(|| FILE.into())) else { return Ok(None) };
    // A name of this form would be taken for a key.
    let file = std::path::absolute(&file).unwrap_or(file);
    let Some(file) = file.to_str() else { bail!("{VARIABLE} is not UTF-8; give the file another name") };
    Recipients::parse(&[file.to_owned()]).with_context(|| {
        format!("nothing is written, since it is to be encrypted to the recipients in {file}")
    })
}

/// Returns how many keys the file of a machine has, or why it cannot be used; `None` if there is no such file.
#[cfg(feature = "kdump-setup")]
pub(crate) fn of_machine(root: &Root) -> Option<Result<usize, String>> {
    let text = match root.read(FILE) {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
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
