//! Fills memory with the contents of real files, for benchmarks.

use crate::pages::Mapping;
use crate::system::mount_disk;
use crate::{Result, notify_host};
use lab_guest::plan::{disk, message};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

const BUFFER: usize = 1 << 20;

/// Reads files into the page cache and into this program's memory, then waits for the host to dump the guest.
pub fn wait_for_dump(cache_mib: u64, anon_mib: u64) -> Result<()> {
    crate::tasks::populate()?;
    mount_disk(disk::FILES, "/files")?;
    let mut paths = Vec::new();
    list(Path::new("/files"), &mut paths)?;
    paths.sort();
    notify_host(
        message::STEP,
        &format!("{} files; reading {anon_mib} MiB into anonymous memory", paths.len()),
    );
    // From the end of the list, so that memory and cache hold different files if there are enough.
    let mut heap = Mapping::anonymous(usize::try_from(anon_mib << 20).unwrap_or(0).max(BUFFER), 0)?;
    let (mut used, mut rest) = (0, paths.as_slice());
    while let (Some((path, before)), true) = (rest.split_last(), used < heap.bytes().len()) {
        rest = before;
        let Ok(mut file) = File::open(path) else { continue };
        while let Ok(count @ 1..) = file.read(heap.bytes().get_mut(used..).unwrap_or_default()) {
            used += count;
        }
    }
    if used < heap.bytes().len() {
        return Err(format!(
            "the disk of files holds {} MiB, fewer than the {anon_mib} MiB requested",
            used >> 20
        ));
    }
    // Empty the page cache, so that the amount read below is exact.
    crate::system::set("/proc/sys/vm/drop_caches", "1")?;
    notify_host(message::STEP, &format!("reading {cache_mib} MiB into the page cache"));
    let mut buffer = vec![0; BUFFER];
    let mut left = cache_mib << 20;
    for path in &paths {
        let Ok(mut file) = File::open(path) else { continue };
        while let Ok(count @ 1..) = file.read(&mut buffer) {
            left = left.saturating_sub(count as u64);
        }
        if left == 0 {
            break;
        }
    }
    notify_host(message::FILLED, &fs::read_to_string("/proc/meminfo").unwrap_or_default().replace('\n', ";"));
    crate::tasks::wait()
}

fn list(directory: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            list(&entry.path(), paths)?;
        } else if kind.is_file() {
            paths.push(entry.path());
        }
    }
    Ok(())
}
