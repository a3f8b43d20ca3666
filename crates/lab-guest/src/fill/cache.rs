//! Page cache of files on ext4.

use crate::Result;
use crate::pages::Mapping;
use crate::system::{mount_disk, set};
use lab_guest::Class;
use lab_guest::order::disk;
use lab_guest::results::Filled;
use lab_guest::stamp::{self, PAGE, Stamp};
use std::fs::OpenOptions;
use std::io::Write;

const CHUNK: usize = 256;

/// Writes a stamped file. For the class without private data it is then dropped from memory and read again: pages
/// that are written have buffer heads, pages that are read from whole blocks have none.
pub fn fill(class: Class, bytes: usize) -> Result<Filled> {
    let (serial, directory) = match class {
        Class::CachePrivate => (disk::CACHE_PRIVATE, "/cache-private"),
        _ => (disk::CACHE, "/cache"),
    };
    mount_disk(serial, directory)?;
    let path = format!("{directory}/stamps");
    let fail = |e: std::io::Error| format!("{path}: {e}");
    let mut file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).map_err(fail)?;
    let pages = bytes / PAGE;
    let mut chunk = vec![0; CHUNK * PAGE];
    for first in (0..pages).step_by(CHUNK) {
        let count = CHUNK.min(pages - first);
        for (page, sequence) in chunk.chunks_exact_mut(PAGE).zip(first as u64..).take(count) {
            stamp::fill(page, Stamp { class, sequence });
        }
        file.write_all(chunk.get(..count * PAGE).unwrap_or_default()).map_err(fail)?;
    }
    file.sync_all().map_err(fail)?;
    if class == Class::Cache {
        set("/proc/sys/vm/drop_caches", "1")?;
    }
    let mut mapping = Mapping::file(&file, pages * PAGE)?;
    mapping.touch();
    let filled = mapping.filled(class)?;
    // The cache stays when the mapping goes; unmapped pages are what most of a machine's cache is.
    mapping.unmap();
    Ok(filled)
}
