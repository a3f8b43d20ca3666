//! pstore: where a kernel leaves the end of its log if no dump is made (Documentation/admin-guide/ramoops.rst, fs/pstore).

use std::path::{Path, PathBuf};

use crate::root::Root;

/// Where systemd-pstore.service keeps records, after it has removed them from the backend.
const KEPT: &str = "/var/lib/systemd/pstore";
/// Where the kernel shows them.
const SHOWN: &str = "/sys/fs/pstore";
/// systemd-pstore makes a directory for each time, and in it one for each event.
const DEPTH: usize = 3;
/// Names in all of these directories that are looked at.
const MAX_NAMES: usize = 10_000;

/// What is known of pstore.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pstore {
    /// The registered backend; `None` if there is none, or the kernel does not say.
    pub backend: Option<String>,
    /// Whether UEFI variables were not taken as backend because efi_pstore is told so (CONFIG_EFI_VARS_PSTORE_DEFAULT_DISABLE).
    pub is_efi_disabled: bool,
    /// Whether the kernel writes records before it starts a capture kernel.
    pub is_before_kdump: bool,
}

impl Pstore {
    /// Reads it below a root directory.
    pub(crate) fn read(root: &Root) -> Self {
        let parameter = |of: &str| root.text(format!("/sys/module/{of}")).map(|text| text.trim().to_owned());
        let is_on = |of: &str| parameter(of).is_some_and(|value| value == "Y" || value == "1");
        Self {
            backend: parameter("pstore/parameters/backend")
                .filter(|name| !name.is_empty() && name != "(null)"),
            is_efi_disabled: is_on("efi_pstore/parameters/pstore_disable"),
            is_before_kdump: is_on("kernel/parameters/crash_kexec_post_notifiers"),
        }
    }
}

/// The records of the newest crash in pstore, and when the last of them was written, in seconds since 1970. Empty if there are none.
pub fn records(root: &Root) -> (Vec<PathBuf>, u64) {
    let mut left = MAX_NAMES;
    let mut newest = (Vec::new(), 0);
    for directory in [SHOWN, KEPT] {
        search(root, Path::new(directory), DEPTH, &mut left, &mut newest);
    }
    newest
}

fn search(root: &Root, directory: &Path, depth: usize, left: &mut usize, newest: &mut (Vec<PathBuf>, u64)) {
    let mut names = root.names(directory);
    names.truncate(*left);
    *left -= names.len();
    names.sort();
    let mut found = (Vec::new(), 0);
    for name in names {
        let path = directory.join(&name);
        // dmesg.txt is what systemd makes of the records beside it.
        if name.as_encoded_bytes().starts_with(b"dmesg-") {
            let written =
                root.modified(&path).and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
            found.1 = found.1.max(written.map_or(0, |time| time.as_secs()));
            found.0.push(path);
        } else if depth > 0 {
            search(root, &path, depth - 1, left, newest);
        }
    }
    if !found.0.is_empty() && (newest.0.is_empty() || found.1 > newest.1) {
        *newest = found;
    }
}
