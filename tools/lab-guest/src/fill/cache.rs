//! Fills the page cache with files on ext4.

use crate::Result;
use crate::pages::{Mapping, page_size};
use crate::system::mount_disk;
use lab_guest::Class;
use lab_guest::plan::disk;
use lab_guest::results::Filled;
use lab_guest::stamp::{self, Stamp};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;

const CHUNK: usize = 256;
/// Attempts to drop a file from the page cache: pages can be in use for a moment.
const ATTEMPTS: usize = 64;

/// Writes a stamped file. For the class without private data the file is then dropped from the page cache and read
/// again: written pages have buffer heads, pages read from whole blocks have none.
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
    let size = page_size();
    let pages = bytes / size;
    let mut chunk = vec![0; CHUNK * size];
    for first in (0..pages).step_by(CHUNK) {
        let count = CHUNK.min(pages - first);
        for (page, sequence) in chunk.chunks_exact_mut(size).zip(first as u64..).take(count) {
            stamp::fill(page, Stamp { class, sequence });
        }
        file.write_all(chunk.get(..count * size).unwrap_or_default()).map_err(fail)?;
    }
    file.sync_all().map_err(fail)?;
    let mut mapping = Mapping::file(&file, pages * size)?;
    if class == Class::Cache {
        drop_from_memory(&file, &mapping)?;
    }
    mapping.touch();
    let filled = mapping.filled(class)?;
    // The pages stay in the cache. Most of a real machine's cache is unmapped too.
    mapping.unmap();
    Ok(filled)
}

/// Drops a file from the page cache. The advice, unlike `drop_caches`, also empties the lists on which each CPU keeps the pages it
/// added last ("drain all pagevecs if POSIX_FADV_DONTNEED fails to discard all pages", 3.9): those would stay, with the
/// buffer heads they were written through.
fn drop_from_memory(file: &File, mapping: &Mapping) -> Result<()> {
    let mut left = mapping.resident()?;
    for _ in 0..ATTEMPTS {
        if left == 0 {
            return Ok(());
        }
        // SAFETY: takes no pointers.
        let code = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        if code != 0 {
            return Err(format!("POSIX_FADV_DONTNEED: {}", std::io::Error::from_raw_os_error(code)));
        }
        left = mapping.resident()?;
    }
    Err(format!("{left} pages of a clean file stay in the page cache"))
}
