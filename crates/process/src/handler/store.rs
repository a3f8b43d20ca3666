//! The directory of cores: names, retention, and room on its disk.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, XattrFlags, flock, fsetxattr, statvfs};

use super::config::{Config, Space};
use super::crash::Crash;

/// What begins the name of a core.
const PREFIX: &str = "core.";
/// What ends the names of cores: those of each form that the handler writes.
const EXTENSIONS: [&str; 3] = [".zst", ".zst.age", ".age"];
/// Names that are tried.
const MAX_NAMES: u32 = 10_000;
/// Maximum bytes of a process's name in that of its core.
const MAX_NAME: usize = 64;

/// The directory.
pub(super) struct Store<'a> {
    directory: &'a Path,
    max_total: Space,
    keep_free: Space,
    max_age: Option<Duration>,
}

/// A core in it.
struct Core {
    changed: SystemTime,
    path: PathBuf,
    /// Bytes on the disk.
    bytes: u64,
}

impl<'a> Store<'a> {
    /// Makes the directory if it is not there.
    pub(super) fn open(config: &'a Config) -> io::Result<Self> {
        let Config { directory, max_total, keep_free, max_age, .. } = config;
        DirBuilder::new().recursive(true).mode(0o755).create(directory)?;
        Ok(Self { directory, max_total: *max_total, keep_free: *keep_free, max_age: *max_age })
    }

    /// The path of a core, named as systemd-coredump names its own. If something has this name, as a core of the same process and second
    /// may, the next microseconds are tried.
    pub(super) fn path(&self, crash: &Crash, boot: &str, extension: &str) -> PathBuf {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_+".contains(byte);
        let letter = |byte: &u8| if is_plain(byte) { char::from(*byte) } else { '_' };
        let name: String = crash.comm.as_bytes().iter().take(MAX_NAME).map(letter).collect();
        let Crash { uid, pid, time, .. } = crash;
        let path = |microsecond: u32| {
            let start = format!("{PREFIX}{name}.{uid}.{boot}.{pid}.{time}{microsecond:06}");
            self.directory.join(start + extension)
        };
        let is_free = |path: &PathBuf| path.symlink_metadata().is_err();
        (0..MAX_NAMES).map(path).find(is_free).unwrap_or_else(|| path(0))
    }

    /// Removes cores that are too old, then the oldest until all limits are kept. One that is being written is never removed, nor
    /// is `current`. Returns why there is no room, if there still is none.
    pub(super) fn make_room(&self, current: Option<&Path>) -> Option<String> {
        let disk = match statvfs(self.directory) {
            Ok(disk) => disk,
            Err(error) => return Some(format!("cannot examine {}: {error}", self.directory.display())),
        };
        let size = disk.f_blocks.saturating_mul(disk.f_frsize);
        let (most, least) = (self.max_total.of(size), self.keep_free.of(size));
        let mut free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let mut cores = self.cores();
        let mut total = cores.iter().map(|core| core.bytes).fold(0, u64::saturating_add);
        cores.sort_by(|one, other| (one.changed, &one.path).cmp(&(other.changed, &other.path)));
        let now = SystemTime::now();
        for core in &cores {
            let age = now.duration_since(core.changed).unwrap_or_default();
            let is_old = self.max_age.is_some_and(|most| age > most);
            if !is_old && total <= most && free >= least {
                // Later ones are younger.
                return None;
            }
            if current != Some(&core.path) && remove(&core.path) {
                total -= core.bytes.min(total);
                free = free.saturating_add(core.bytes);
            }
        }
        let directory = self.directory.display();
        if total > most {
            return Some(format!("the cores in {directory} take more than {most} bytes (max_total)"));
        }
        (free < least)
            .then(|| format!("the disk of {directory} has less than {least} bytes free (keep_free)"))
    }

    fn cores(&self) -> Vec<Core> {
        let Ok(entries) = fs::read_dir(self.directory) else { return Vec::new() };
        let core = |entry: fs::DirEntry| {
            entry.file_name().to_str().filter(|name| is_core(name))?;
            let found = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            let changed = found.modified().ok()?;
            Some(Core { changed, path: entry.path(), bytes: found.blocks().saturating_mul(512) })
        };
        entries.flatten().filter_map(core).collect()
    }
}

/// Whether a file has a name as [`Store::path`] makes them. Others belong to somebody.
pub(super) fn is_core(name: &str) -> bool {
    let Some(name) = name.strip_prefix(PREFIX) else { return false };
    let is_known = |extension: &&str| EXTENSIONS.contains(extension);
    let (name, extension) =
        name.find(".zst").or_else(|| name.find(".age")).map_or((name, ""), |at| name.split_at(at));
    if !extension.is_empty() && !is_known(&extension) {
        return false;
    }
    let parts: Vec<&str> = name.split('.').collect();
    let [_, uid, boot, pid, time] = parts.as_slice() else { return false };
    let is_number = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_boot = boot.is_empty() || boot.len() == 32 && boot.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_boot && time.len() > 6 && [uid, pid, time].into_iter().all(is_number)
}

/// Removes a core, unless a program writes to it: it has a lock then.
fn remove(path: &Path) -> bool {
    let mut options = fs::OpenOptions::new();
    let opened = options.read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path);
    let Ok(file) = opened else { return false };
    flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() && fs::remove_file(path).is_ok()
}

/// Gives a core the extended attributes that systemd-coredump gives its own. Without them, the name has most of it.
pub(super) fn describe(path: &Path, crash: &Crash, executable: &[u8]) {
    let Ok(file) = File::open(path) else { return };
    let Crash { pid, uid, gid, signal, time, limit, host, comm, .. } = crash;
    let numbers = [
        ("pid", pid.to_string()),
        ("uid", uid.to_string()),
        ("gid", gid.to_string()),
        ("signal", signal.to_string()),
        ("timestamp", format!("{time}000000")),
        ("rlimit", limit.to_string()),
    ];
    let texts = [("hostname", host.as_bytes()), ("comm", comm.as_bytes()), ("exe", executable)];
    let numbers = numbers.iter().map(|(name, value)| (*name, value.as_bytes()));
    for (name, value) in numbers.chain(texts).filter(|(_, value)| !value.is_empty()) {
        let _ = fsetxattr(&file, format!("user.coredump.{name}"), value, XattrFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The name of a core that the handler made.
    fn name(time: u32) -> String {
        format!("core.a.0.{:032x}.7.{time}000000.zst", 11)
    }

    fn config(directory: &Path) -> Config {
        let directory = directory.join("cores");
        let (max_total, keep_free) = (Space::Bytes(u64::MAX), Space::Bytes(0));
        Config { directory, max_total, keep_free, max_age: None, ..Config::default() }
    }

    /// Cores of 64 KiB, the first the oldest; each a day older than the next.
    fn with_cores(config: &Config, names: &[&str]) {
        fs::create_dir_all(&config.directory).unwrap();
        for (index, name) in names.iter().enumerate() {
            let path = config.directory.join(name);
            fs::write(&path, vec![1; 64 << 10]).unwrap();
            let days = (names.len() - index) as u64;
            let then = SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60);
            File::options().write(true).open(&path).unwrap().set_modified(then).unwrap();
        }
    }

    fn left(config: &Config) -> Vec<String> {
        let entries = fs::read_dir(&config.directory).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_oldest_goes_first_and_others_files_stay() {
        let directory = tempfile::tempdir().unwrap();
        let config = Config { max_total: Space::Bytes(150 << 10), ..config(directory.path()) };
        with_cores(&config, &["core.mine", &name(3), &name(2), &name(1)]);
        fs::create_dir(config.directory.join("core.directory")).unwrap();
        let store = Store::open(&config).unwrap();
        assert_eq!(store.make_room(None), None);
        assert_eq!(left(&config), [&name(1), &name(2), "core.directory", "core.mine"]);
        // What is being written counts and stays.
        let tight = Config { max_total: Space::Bytes(70 << 10), ..config.clone() };
        let writing = File::open(config.directory.join(name(2))).unwrap();
        flock(&writing, FlockOperation::LockExclusive).unwrap();
        assert_eq!(Store::open(&tight).unwrap().make_room(None), None);
        assert_eq!(left(&config), [&name(2), "core.directory", "core.mine"]);
        let none = Config { max_total: Space::Bytes(1), ..config.clone() };
        let why = Store::open(&none).unwrap().make_room(None).unwrap();
        assert!(why.contains("max_total"), "{why}");
        drop(writing);
        let current = config.directory.join(name(2));
        assert!(Store::open(&none).unwrap().make_room(Some(&current)).is_some());
        assert_eq!(left(&config), [&name(2), "core.directory", "core.mine"]);
    }

    #[test]
    fn only_names_of_the_handlers_form_are_cores() {
        for extension in ["", ".zst", ".zst.age", ".age"] {
            let words = ["7", "9", "1000", "100", "11", "17", "0", "h", "../a b.zst"];
            let crash = Crash::parse(&words.map(Into::into)).unwrap();
            let directory = tempfile::tempdir().unwrap();
            let config = config(directory.path());
            let path = Store::open(&config).unwrap().path(&crash, &"ab".repeat(16), extension);
            assert!(is_core(path.file_name().unwrap().to_str().unwrap()), "{}", path.display());
        }
        let boot = "ab".repeat(16);
        for name in [
            "core.mine",
            "core.1234",
            "core.a.b.c.d.e",
            &format!("core.a.0.{boot}.7.17"),
            &format!("core.a.0.{boot}.7.17000000.gz"),
            &format!("core.a.0.{boot}.7.17000000.zst.bak"),
            &format!("mine.a.0.{boot}.7.17000000.zst"),
        ] {
            assert!(!is_core(name), "{name}");
        }
    }

    #[test]
    fn old_cores_go_whatever_room_there_is() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        with_cores(&config, &[&name(3), &name(2), &name(1)]);
        let days = |days: u64| Duration::from_secs(days * 24 * 60 * 60 + 60 * 60);
        let aged = Config { max_age: Some(days(2)), ..config.clone() };
        assert_eq!(Store::open(&aged).unwrap().make_room(None), None);
        assert_eq!(left(&config), [name(1), name(2)]);
    }

    #[test]
    fn a_disk_without_room_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let config = Config { keep_free: Space::Percent(100), ..config(directory.path()) };
        with_cores(&config, &[&name(1)]);
        let why = Store::open(&config).unwrap().make_room(None).unwrap();
        assert!(why.contains("keep_free"), "{why}");
        assert_eq!(left(&config), [""; 0]);
    }

    #[test]
    fn names_have_no_path_in_them() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        let words = ["7", "9", "1000", "100", "11", "17", "0", "h", "../a b\u{e9}"];
        let crash = Crash::parse(&words.map(Into::into)).unwrap();
        let path = Store::open(&config).unwrap().path(&crash, "b00t", ".zst");
        assert_eq!(path.parent(), Some(&*config.directory));
        assert_eq!(path.file_name().unwrap(), "core.___a_b__.1000.b00t.7.17000000.zst");
    }
}
