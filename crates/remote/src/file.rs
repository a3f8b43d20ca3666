use std::io;
use std::path::{Path, PathBuf};

use pagehaul_physmem::OpenError;
use pagehaul_physmem::file::{ReadAt, shown};

use crate::RemoteError;
use crate::cache::Cache;
use crate::object::{Object, Ranges};
use crate::process;

/// An object that is read as a file.
pub struct RemoteFile {
    cache: Cache,
    path: PathBuf,
    identity: (u64, u64),
}

impl RemoteFile {
    /// Opens an object by its URL: `http://`, `https://` or `s3://BUCKET/KEY`.
    pub fn open(url: &Path) -> Result<Self, OpenError> {
        let text = url.to_string_lossy();
        let shown = shown(url).to_owned();
        match Self::connect(&text) {
            Ok(cache) => {
                // No file has this device number.
                let identity = (u64::MAX, twox_hash::XxHash3_64::oneshot(text.as_bytes()));
                Ok(Self { cache, path: shown, identity })
            }
            Err(error) => Err(OpenError::Io { path: shown, action: "open", source: error.into() }),
        }
    }

    fn connect(url: &str) -> Result<Cache, RemoteError> {
        let (ranges, size, first): (Box<dyn Ranges>, _, _) = match process::open(url) {
            Some(opened) => {
                let (ranges, size, first) = opened?;
                (Box::new(ranges), size, first)
            }
            None => {
                let (object, first) = Object::open(url)?;
                let size = object.size();
                (Box::new(object), size, first)
            }
        };
        Ok(Cache::new(ranges, size, &first))
    }
}

impl ReadAt for RemoteFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        Ok(self.cache.read_at(offset, buf)?)
    }

    fn size(&self) -> u64 {
        self.cache.size()
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn identity(&self) -> (u64, u64) {
        self.identity
    }
}
