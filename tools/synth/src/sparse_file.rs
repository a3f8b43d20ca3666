//! Files that are mostly holes.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Target of writes: a vector, or a file with holes where nothing is written.
pub(crate) trait Target {
    fn put(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;
}

impl Target for Vec<u8> {
    fn put(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let offset = offset as usize;
        self[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

impl Target for File {
    fn put(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }
}

/// Creates a file of `size` bytes that is one hole.
pub(crate) fn create(path: &Path, size: u64) -> io::Result<File> {
    let file = File::create(path)?;
    file.set_len(size)?;
    Ok(file)
}
