//! Cores that are to be uploaded: an empty file for each, in a directory next to them.
//!
//! One handler at a time uploads, its own core and what others have left, so that a crash storm takes the memory and the network of
//! one upload. What failed stays listed, also over a reboot, and is tried again after the next crash.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use pagehaul_physmem::file::shown;
use rustix::fs::{FlockOperation, flock};

use super::config::Config;
use super::journal::{Entry, Priority};

/// The directory, in that of the cores.
const LIST: &str = "pending";
/// Uploads that fail before the rest is left to the next crash: one may be the core's own fault, two are not.
const MAX_FAILURES: usize = 2;

/// Uploads a file to a URL. It is whole there once this returns.
pub type Send<'a> = dyn Fn(&File, &Path) -> Result<(), String> + 'a;

/// Uploads a core, and those that are left from before, if the configuration says where to. The journal has what became of each.
/// Returns why some were not uploaded: they stay.
pub fn upload(config: &Config, core: &Path, send: &Send<'_>) -> Vec<String> {
    let (Some(prefix), Some(name)) = (&config.upload, core.file_name()) else { return Vec::new() };
    let mut failures = Vec::new();
    let mut fail = |why: String| {
        let _ = Entry::new(Priority::Error, &format!("{why}.")).send(&config.journal);
        failures.push(why);
        failures.len() >= MAX_FAILURES
    };
    let list = match List::with(&config.directory, name) {
        Ok(list) => list,
        Err(why) => {
            fail(format!("{} was not uploaded, and stays: cannot list it: {why}", core.display()));
            return failures;
        }
    };
    let mut tried = Vec::new();
    loop {
        // Who has the lock sees what was listed before it asked for it.
        let Some(lock) = list.lock() else { return failures };
        let Some(name) = list.newest(&tried) else {
            drop(lock);
            match list.newest(&tried) {
                // Listed by a handler that found the lock taken.
                Some(_) => continue,
                None => return failures,
            }
        };
        let (path, url) = (config.directory.join(&name), url(prefix, &name));
        let sent =
            shared(&path).and_then(|file| file.map_or(Ok(false), |file| send(&file, &url).map(|()| true)));
        match sent {
            Ok(is_there) => {
                if is_there {
                    let text = format!("{} was uploaded to {}.", path.display(), shown(&url).display());
                    let _ = Entry::new(Priority::Information, &text).send(&config.journal);
                }
                if config.removes_uploaded {
                    let _ = fs::remove_file(&path);
                }
                list.remove(&name);
            }
            Err(why) => {
                if fail(format!("{} was not uploaded, and stays: {why}", path.display())) {
                    return failures;
                }
            }
        }
        tried.push(name);
    }
}

fn url(prefix: &str, name: &OsStr) -> PathBuf {
    let mut url = OsString::from(prefix);
    url.push(name);
    url.into()
}

/// Opens a core so that nobody removes it to make room; `None` if somebody has.
fn shared(path: &Path) -> Result<Option<File>, String> {
    let open = || {
        let file =
            OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
        flock(&file, FlockOperation::LockShared)?;
        Ok(file)
    };
    match open() {
        Ok(file) => Ok(Some(file)),
        Err(error) if io::Error::kind(&error) == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot open it: {error}")),
    }
}

struct List {
    directory: PathBuf,
}

impl List {
    /// Opens the list of a directory of cores, and adds one.
    fn with(cores: &Path, name: &OsStr) -> io::Result<Self> {
        let this = Self { directory: cores.join(LIST) };
        DirBuilder::new().recursive(true).mode(0o700).create(&this.directory)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        options.open(this.directory.join(name))?;
        Ok(this)
    }

    /// Locks it, unless another handler uploads.
    fn lock(&self) -> Option<File> {
        let directory = File::open(&self.directory).ok()?;
        flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok().then_some(directory)
    }

    /// The youngest core that is not among these.
    fn newest(&self, except: &[OsString]) -> Option<OsString> {
        let entry = |entry: fs::DirEntry| {
            let listed = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((listed.modified().unwrap_or(SystemTime::UNIX_EPOCH), entry.file_name()))
        };
        let entries = fs::read_dir(&self.directory).ok()?.flatten().filter_map(entry);
        entries.filter(|(_, name)| !except.contains(name)).max().map(|(_, name)| name)
    }

    fn remove(&self, name: &OsStr) {
        let _ = fs::remove_file(self.directory.join(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Cores of these names, and their configuration.
    fn with_cores(directory: &Path, names: &[&str]) -> Config {
        names.iter().for_each(|name| fs::write(directory.join(name), name).unwrap());
        let journal = directory.join("journal");
        Config { directory: directory.into(), upload: Some("s3://b/".into()), journal, ..Config::default() }
    }

    fn listed(config: &Config) -> usize {
        fs::read_dir(config.directory.join(LIST)).unwrap().count()
    }

    #[test]
    fn what_failed_is_tried_again_after_the_next_crash() {
        let directory = tempfile::tempdir().unwrap();
        let config = with_cores(directory.path(), &["a", "b", "c"]);
        let upload = |name: &str, send: &Send<'_>| upload(&config, &directory.path().join(name), send);
        let down = |_: &File, _: &Path| Err("no route".to_owned());
        assert_eq!(upload("a", &down).len(), 1);
        assert_eq!(upload("b", &down).len(), MAX_FAILURES);
        assert_eq!(listed(&config), 2);
        // Somebody made room.
        fs::remove_file(directory.path().join("a")).unwrap();
        let sent = RefCell::new(Vec::new());
        let send = |_: &File, url: &Path| {
            sent.borrow_mut().push(url.display().to_string());
            Ok(())
        };
        assert_eq!(upload("c", &send), [""; 0]);
        assert_eq!(listed(&config), 0);
        let mut sent = sent.take();
        assert_eq!(sent.first().map(String::as_str), Some("s3://b/c"), "its own first");
        sent.sort();
        assert_eq!(sent, ["s3://b/b", "s3://b/c"]);
    }

    #[test]
    fn one_handler_uploads_what_others_list() {
        let directory = tempfile::tempdir().unwrap();
        let config = with_cores(directory.path(), &["a", "b"]);
        let count = RefCell::new(0);
        let send = |file: &File, _: &Path| {
            *count.borrow_mut() += 1;
            // It cannot be removed meanwhile.
            let path = directory.path().join("a");
            if *count.borrow() == 1 {
                assert!(flock(File::open(path).unwrap(), FlockOperation::NonBlockingLockExclusive).is_err());
                let other = |_: &File, _: &Path| panic!("two upload at once");
                assert_eq!(upload(&config, &directory.path().join("b"), &other), [""; 0]);
            }
            assert!(file.metadata().unwrap().len() == 1);
            Ok(())
        };
        assert_eq!(upload(&config, &directory.path().join("a"), &send), [""; 0]);
        assert_eq!((count.take(), listed(&config)), (2, 0));
    }
}
