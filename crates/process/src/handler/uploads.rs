//! Cores that are to be uploaded: an empty file for each, in a directory next to them.
//!
//! One handler at a time uploads, its own core and what others have left, so that a crash storm takes the memory and the network of
//! one upload. What failed stays listed, also over a reboot, and is tried again after the next crash.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use pagehaul_physmem::file::shown;
use rustix::fs::{
    AtFlags, Dir, DirEntry, FileType, FlockOperation, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, flock,
    openat, statat, unlinkat, utimensat,
};

use super::config::Config;
use super::journal::{Entry, Priority};
use super::store::is_core;

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
            let core = core.display();
            fail(format!(
                "{core} was not uploaded, and stays, and is not tried again: cannot list it: {why}"
            ));
            return failures;
        }
    };
    let mut tried = Vec::new();
    // Its own first: the others may have failed for reasons of theirs.
    let next = |tried: &[OsString]| match tried {
        // Another handler may have sent it since it was listed.
        [] if list.has(name) => Some(name.to_owned()),
        tried => list.oldest(tried),
    };
    loop {
        // Who has the lock sees what was listed before it asked for it.
        let Some(lock) = list.lock() else { return failures };
        let Some(name) = next(&tried) else {
            drop(lock);
            match next(&tried) {
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
                let (path, url) = (path.display(), shown(&url));
                let (priority, text) = match is_there {
                    true => (Priority::Information, format!("{path} was uploaded to {}.", url.display())),
                    false => (Priority::Error, format!("{path} was removed before it was uploaded.")),
                };
                let _ = Entry::new(priority, &text).send(&config.journal);
                if is_there && config.removes_uploaded {
                    let _ = fs::remove_file(config.directory.join(&name));
                }
                list.remove(&name);
            }
            Err(why) => {
                list.postpone(&name);
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

/// Opens a core and locks it, so that no handler removes it to make room. `None`: it was removed.
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
    /// Open, so that what has its name later is not read.
    directory: File,
}

impl List {
    /// Opens the list of a directory of cores, and adds one. Nobody else may write to it: names in it are removed.
    fn with(cores: &Path, name: &OsStr) -> Result<Self, String> {
        let path = cores.join(LIST);
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
            _ => {}
        }
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW);
        let directory = options.open(&path).map_err(failed)?;
        let found = directory.metadata().map_err(failed)?;
        if found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o022 != 0 {
            return Err(format!(
                "others can write to {}; expected a directory of root's only",
                path.display()
            ));
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&directory, name, flags, Mode::from_raw_mode(0o600)).map_err(|error| failed(error.into()))?;
        Ok(Self { directory })
    }

    /// Locks it, unless another handler uploads.
    fn lock(&self) -> Option<File> {
        // Opened again: flock(2) locks an open file description.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = File::from(openat(&self.directory, c".", flags, Mode::empty()).ok()?);
        flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok().then_some(directory)
    }

    /// The core that is listed and was not tried for the longest time, and is not among these.
    fn oldest(&self, except: &[OsString]) -> Option<OsString> {
        let entry = |entry: DirEntry| {
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            // What else is there belongs to somebody.
            name.to_str().filter(|name| is_core(name))?;
            let found = statat(&self.directory, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
            let is_empty =
                FileType::from_raw_mode(found.st_mode) == FileType::RegularFile && found.st_size == 0;
            is_empty.then_some(((found.st_mtime, found.st_mtime_nsec), name))
        };
        let entries = Dir::read_from(&self.directory).ok()?.flatten().filter_map(entry);
        entries.filter(|(_, name)| !except.contains(name)).min().map(|(_, name)| name)
    }

    fn has(&self, name: &OsStr) -> bool {
        statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    fn remove(&self, name: &OsStr) {
        let _ = unlinkat(&self.directory, name, AtFlags::empty());
    }

    /// Puts a core behind all others.
    fn postpone(&self, name: &OsStr) {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        let _ = utimensat(&self.directory, name, &times, AtFlags::SYMLINK_NOFOLLOW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// The name of a core.
    fn name(core: &str) -> String {
        format!("core.{core}.0.{:032x}.7.17000000.zst", 11)
    }

    /// Cores, and their configuration.
    fn with_cores(directory: &Path, names: &[&str]) -> Config {
        names.iter().for_each(|core| fs::write(directory.join(name(core)), core).unwrap());
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
        let upload =
            |name: &str, send: &Send<'_>| upload(&config, &directory.path().join(self::name(name)), send);
        let down = |_: &File, _: &Path| Err("no route".to_owned());
        assert_eq!(upload("a", &down).len(), 1);
        assert_eq!(upload("b", &down).len(), MAX_FAILURES);
        assert_eq!(listed(&config), 2);
        // Somebody made room.
        fs::remove_file(directory.path().join(name("a"))).unwrap();
        let sent = RefCell::new(Vec::new());
        let send = |_: &File, url: &Path| {
            sent.borrow_mut().push(url.display().to_string());
            Ok(())
        };
        assert_eq!(upload("c", &send), [""; 0]);
        assert_eq!(listed(&config), 0);
        let mut sent = sent.take();
        assert_eq!(sent.first(), Some(&format!("s3://b/{}", name("c"))), "its own first");
        sent.sort();
        assert_eq!(sent, ["b", "c"].map(|core| format!("s3://b/{}", name(core))));
    }

    #[test]
    fn one_handler_uploads_what_others_list() {
        let directory = tempfile::tempdir().unwrap();
        let config = with_cores(directory.path(), &["a", "b"]);
        let count = RefCell::new(0);
        let send = |file: &File, _: &Path| {
            *count.borrow_mut() += 1;
            // It cannot be removed meanwhile.
            let path = directory.path().join(name("a"));
            if *count.borrow() == 1 {
                assert!(flock(File::open(path).unwrap(), FlockOperation::NonBlockingLockExclusive).is_err());
                let other = |_: &File, _: &Path| panic!("two upload at once");
                assert_eq!(upload(&config, &directory.path().join(name("b")), &other), [""; 0]);
            }
            assert!(file.metadata().unwrap().len() == 1);
            Ok(())
        };
        assert_eq!(upload(&config, &directory.path().join(name("a")), &send), [""; 0]);
        assert_eq!((count.take(), listed(&config)), (2, 0));
    }

    #[test]
    fn cores_that_never_go_keep_no_other_back() {
        let directory = tempfile::tempdir().unwrap();
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let config = with_cores(directory.path(), &names);
        let down = |_: &File, _: &Path| Err("no route".to_owned());
        let sent = RefCell::new(Vec::new());
        let exists = |_: &File, url: &Path| match url.to_str().unwrap() {
            url if ["a", "b", "c"].iter().any(|core| url.ends_with(&name(core))) => {
                Err("it exists".to_owned())
            }
            url => {
                sent.borrow_mut().push(url.to_owned());
                Ok(())
            }
        };
        for (index, core) in names.iter().enumerate() {
            let send: &Send<'_> = if index < 5 { &down } else { &exists };
            upload(&config, &directory.path().join(name(core)), send);
        }
        upload(&config, &directory.path().join(name("f")), &exists);
        upload(&config, &directory.path().join(name("g")), &exists);
        assert_eq!(listed(&config), 3, "{sent:?}");
    }

    #[test]
    fn what_is_not_listed_by_a_handler_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let config = with_cores(directory.path(), &["a"]);
        let list = directory.path().join(LIST);
        let core = directory.path().join(name("a"));
        let send = |_: &File, _: &Path| Ok(());
        fs::create_dir(directory.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", &list).unwrap();
        assert!(upload(&config, &core, &send)[0].contains("is not tried again"));
        fs::remove_file(&list).unwrap();
        DirBuilder::new().mode(0o700).create(&list).unwrap();
        fs::write(list.join("README"), "").unwrap();
        fs::write(list.join(name("b")), "not empty").unwrap();
        assert_eq!(upload(&config, &core, &send), [""; 0]);
        assert_eq!(listed(&config), 2);
        fs::set_permissions(&list, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        assert!(upload(&config, &core, &send)[0].contains("others can write"));
    }
}
