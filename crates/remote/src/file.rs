use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pagehaul_physmem::OpenError;
use pagehaul_physmem::file::{ReadAt, shown};

use crate::cache::Cache;
use crate::error::RemoteError;
use crate::forks::PerProcess;
use crate::object::{Object, Ranges};
use crate::process;

/// The first read of this process that failed.
static FAILURE: OnceLock<String> = OnceLock::new();

/// Returns which object could not be read to the end by this process, and why. What was made of it lacks something, though single
/// faults of a dump are passed over.
pub fn failure() -> Option<&'static str> {
    FAILURE.get().map(String::as_str)
}

/// An object that is read as a file.
pub struct RemoteFile {
    cache: PerProcess<Cache>,
    size: u64,
    path: PathBuf,
    identity: (u64, u64),
}

impl RemoteFile {
    /// Opens an object by its URL: `http://`, `https://` or `s3://BUCKET/KEY`.
    pub fn open(url: &Path) -> Result<Self, OpenError> {
        let shown = shown(url);
        let text = url.to_str().ok_or_else(|| RemoteError::Settings("the URL is not UTF-8".to_owned()));
        match text.and_then(|text| Ok((text, Self::connect(text)?))) {
            Ok((text, (cache, size))) => {
                // No file has this device number.
                let identity = (u64::MAX, twox_hash::XxHash3_64::oneshot(text.as_bytes()));
                Ok(Self { cache: PerProcess::new(cache), size, path: shown, identity })
            }
            Err(error) => Err(OpenError::Io { path: shown, action: "open", source: error.into() }),
        }
    }

    /// Returns a cache of an object, and the size of the object.
    fn connect(url: &str) -> Result<(Cache, u64), RemoteError> {
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
        Ok((Cache::new(ranges, size, &first), size))
    }
}

impl ReadAt for RemoteFile {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.cache.get(Cache::renew).and_then(|cache| cache.read_at(offset, buf));
        if let Err(error) = &read {
            let _ = FAILURE.set(format!("{}: {error}", self.path.display()));
        }
        Ok(read?)
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn will_need(&self, ranges: &[Range<u64>]) {
        if let Ok(cache) = self.cache.get(Cache::renew) {
            cache.will_need(ranges);
        }
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn identity(&self) -> (u64, u64) {
        self.identity
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;
    use crate::forks::tests::in_child;
    use pagehaul_test_support::server::{Response, Server};

    #[test]
    fn a_child_reads_what_its_parent_opened() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|at| (at / 7) as u8).collect();
        let (arrive, arrived) = channel();
        let (go_on, may_go_on) = channel::<()>();
        let (object, gate) = (bytes.clone(), Mutex::new((arrive, may_go_on)));
        let server = Server::start(move |request| {
            // The first answer after opening waits for the test.
            if request.number == 1 {
                let (arrive, may_go_on) = &*gate.lock().unwrap();
                arrive.send(()).unwrap();
                may_go_on.recv().unwrap();
            }
            Response::range(request, &object, "v1")
        });
        let file = RemoteFile::open(Path::new(&server.url("/dump"))).unwrap();
        let is_read = || {
            let mut found = vec![0; 20_000];
            file.read_exact_at(50_000, &mut found).is_ok() && found == bytes[50_000..70_000]
        };
        thread::scope(|scope| {
            let reading = scope.spawn(is_read);
            // The parent's thread is inside of a fetch, on the parent's connection.
            arrived.recv().unwrap();
            let child = in_child(is_read);
            go_on.send(()).unwrap();
            assert!(reading.join().unwrap() && child);
        });
        assert!(is_read());
    }
}
