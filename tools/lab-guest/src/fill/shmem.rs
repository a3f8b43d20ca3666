//! Fills tmpfs files, with small and with huge pages.

use super::Held;
use crate::Result;
use crate::pages::Mapping;
use crate::system::mount;
use lab_guest::Class;
use lab_guest::results::Filled;
use std::fs::OpenOptions;

/// Fills a tmpfs file through a mapping.
pub fn fill(class: Class, bytes: usize, held: &mut Held) -> Result<Filled> {
    let (directory, options) = match class {
        Class::ShmemHuge => ("/shmem-huge", "size=100%,huge=always"),
        _ => ("/shmem", "size=100%,huge=never"),
    };
    // shmem_enabled does not apply to mounts with a huge= option.
    mount("tmpfs", directory, "tmpfs", options)?;
    let path = format!("{directory}/stamps");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .map_err(|e| format!("{path}: {e}"))?;
    file.set_len(bytes as u64).map_err(|e| format!("{path}: {e}"))?;
    let mut mapping = Mapping::file(&file, bytes)?;
    let filled = mapping.fill(class)?;
    held.mappings.push(mapping);
    Ok(filled)
}
