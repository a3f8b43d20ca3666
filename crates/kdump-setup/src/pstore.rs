//! pstore: where a kernel leaves the end of its log if no dump is made (Documentation/admin-guide/ramoops.rst, fs/pstore).

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::root::Root;

/// Where systemd-pstore.service keeps records, after it has removed them from the backend.
const KEPT: &str = "/var/lib/systemd/pstore";
/// Where the kernel shows them.
const SHOWN: &str = "/sys/fs/pstore";
/// systemd-pstore makes a directory for each time, and in it one for each event.
const DEPTH: usize = 3;
/// Names in all of these directories that are looked at.
const MAX_NAMES: usize = 10_000;
/// Seconds that the records of an event may take to be written, as `facts` and `triage` have it.
const GAP: u64 = 10;

/// What is known of pstore.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pstore {
    /// Whether the kernel's modules are known, and with them whether there is a backend.
    pub is_known: bool,
    /// The registered backend.
    pub backend: Option<String>,
    /// Whether `efi_pstore.pstore_disable` keeps UEFI variables from being a backend (its default is
    /// CONFIG_EFI_VARS_PSTORE_DEFAULT_DISABLE).
    pub is_efi_disabled: bool,
    /// Whether the kernel writes records before it starts a capture kernel.
    pub is_before_kdump: bool,
}

impl Pstore {
    /// Reads it below a root directory.
    pub(crate) fn read(root: &Root, command_line: &[String]) -> Self {
        let parameter = |of: &str| root.text(format!("/sys/module/{of}")).map(|text| text.trim().to_owned());
        let is_on = |of: &str| parameter(of).map(|value| value == "Y" || value == "1");
        let backend = parameter("pstore/parameters/backend");
        let is_asked = |word: &String| {
            let value = word.strip_prefix("crash_kexec_post_notifiers");
            value.is_some_and(|value| ["", "=1", "=y", "=Y", "=on"].contains(&value))
        };
        Self {
            // Without the directory of pstore, the kernel has none.
            is_known: root.exists("/sys/module"),
            backend: backend.filter(|name| !name.is_empty() && name != "(null)"),
            is_efi_disabled: is_on("efi_pstore/parameters/pstore_disable") == Some(true),
            is_before_kdump: is_on("kernel/parameters/crash_kexec_post_notifiers")
                .unwrap_or_else(|| command_line.iter().any(is_asked)),
        }
    }
}

/// The records of the event with the newest, and when that was written, in seconds since 1970. Empty if there are none. `is_record`
/// says whether a file with these first bytes is one.
pub fn records(root: &Root, is_record: impl Fn(&[u8]) -> bool) -> (Vec<PathBuf>, u64) {
    let mut search = Search { root, is_record: &is_record, left: MAX_NAMES, newest: (Vec::new(), 0) };
    for directory in [SHOWN, KEPT] {
        search.directory(Path::new(directory), DEPTH);
    }
    let (mut records, written) = std::mem::take(&mut search.newest);
    let others = search.of_other_seconds(&records);
    records.extend(others);
    (records, written)
}

/// Whether a file is named as the kernel names records of its log.
fn is_named_as_record(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"dmesg-"))
}

struct Search<'a> {
    root: &'a Root,
    is_record: &'a dyn Fn(&[u8]) -> bool,
    /// Names that may still be looked at.
    left: usize,
    newest: (Vec<PathBuf>, u64),
}

impl Search<'_> {
    fn directory(&mut self, directory: &Path, depth: usize) {
        let mut names = self.root.names(directory);
        names.truncate(self.left);
        self.left -= names.len();
        names.sort();
        let paths = names.iter().map(|name| directory.join(name)).collect::<Vec<_>>();
        let records = self.records_of(directory, &paths);
        let written = records.iter().map(|(_, written)| *written).max().unwrap_or(0);
        if !records.is_empty() && (self.newest.0.is_empty() || written > self.newest.1) {
            self.newest = (records.into_iter().map(|(path, _)| path).collect(), written);
        }
        if depth > 0 {
            paths
                .iter()
                .filter(|path| !is_named_as_record(path))
                .for_each(|path| self.directory(path, depth - 1));
        }
    }

    /// The records among the files of a directory.
    fn records_of(&self, directory: &Path, files: &[PathBuf]) -> Vec<(PathBuf, u64)> {
        let named = files.iter().filter(|path| is_named_as_record(path));
        let mut records: Vec<_> = named.filter_map(|path| self.record(path)).collect();
        if records.is_empty() {
            // What systemd-pstore makes of all records of a crash.
            records.extend(self.record(&directory.join("dmesg.txt")));
        }
        records
    }

    /// The records of the same event that systemd-pstore keeps elsewhere. An EFI variable has the second in which it was written
    /// (`efi_pstore_write`, drivers/firmware/efi/efi-pstore.c), which is the name of a directory, and the count of the event, which is
    /// that of one in it: an event that took longer is in several.
    fn of_other_seconds(&self, records: &[PathBuf]) -> Vec<PathBuf> {
        let number = |name: &OsStr| name.to_str()?.parse::<u64>().ok();
        let directory = records.first().and_then(|record| record.parent());
        let Some((count, of_second)) = directory.and_then(|path| Some((path.file_name()?, path.parent()?)))
        else {
            return Vec::new();
        };
        let Some(second) =
            of_second.file_name().and_then(number).filter(|_| of_second.parent() == Some(KEPT.as_ref()))
        else {
            return Vec::new();
        };
        let mut others: Vec<u64> = self.root.names(KEPT).iter().filter_map(|name| number(name)).collect();
        others.retain(|other| (1..=GAP).contains(&other.abs_diff(second)));
        others.sort_unstable();
        let of_other = |other: u64| {
            let directory = Path::new(KEPT).join(other.to_string()).join(count);
            let mut files: Vec<_> =
                self.root.names(&directory).iter().map(|name| directory.join(name)).take(MAX_NAMES).collect();
            files.sort();
            self.records_of(&directory, &files)
        };
        others.into_iter().flat_map(of_other).map(|(path, _)| path).collect()
    }

    /// A record, and when it was written.
    fn record(&self, path: &Path) -> Option<(PathBuf, u64)> {
        let file = self.root.file(path).ok()?;
        let written = file.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        let mut start = Vec::new();
        file.take(64).read_to_end(&mut start).ok()?;
        // One that the kernel could not decompress has no such start.
        let is_compressed = path.as_os_str().as_encoded_bytes().ends_with(b".enc.z") && !start.is_empty();
        (is_compressed || (self.is_record)(&start)).then(|| (path.to_owned(), written.as_secs()))
    }
}
