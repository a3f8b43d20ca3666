//! What handlers that run at once share: the memory for their copies, and the rate of cores.
//!
//! Both are files in a directory of /run. A handler that is killed leaves nothing that counts: its lock is gone with it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::Hasher;
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::time::{ClockId, clock_gettime};
use twox_hash::XxHash64;

/// Seconds over which the rate counts.
const MINUTE: u64 = 60;
/// Maximum length of the record of cores that is read: some thousands.
const MAX_RECORD: u64 = 1 << 20;
/// What begins the name of a reservation.
const MEMORY: &str = "memory.";

/// The directory.
pub(super) struct Runtime {
    directory: PathBuf,
}

/// Memory that a handler may take, until this is dropped.
pub(super) struct Reservation {
    pub(super) bytes: u64,
    path: PathBuf,
    /// Locked.
    _file: File,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl Runtime {
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// Opens a file of the directory, and waits for its lock.
    fn locked(&self, name: &str) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(libc::O_NOFOLLOW).open(self.directory.join(name))?;
        flock(&file, FlockOperation::LockExclusive)?;
        Ok(file)
    }

    /// Reserves up to `wanted` bytes of memory, and `least` in any case, so that each core gets on. `most` returns how many
    /// bytes all handlers together may take, from those that others have reserved.
    pub(super) fn reserve(
        &self,
        wanted: u64,
        least: u64,
        most: impl FnOnce(u64) -> u64,
    ) -> io::Result<Reservation> {
        let _lock = self.locked("lock")?;
        let others = self.reserved()?;
        let bytes = wanted.min(most(others).saturating_sub(others)).max(least);
        let path = self.directory.join(format!("{MEMORY}{}", std::process::id()));
        // Left by a process that had this number, and was killed.
        let _ = fs::remove_file(&path);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        flock(&file, FlockOperation::LockExclusive)?;
        file.write_all(bytes.to_string().as_bytes())?;
        Ok(Reservation { bytes, path, _file: file })
    }

    /// Bytes that running handlers have reserved. Removes what killed ones have left.
    fn reserved(&self) -> io::Result<u64> {
        let mut sum = 0u64;
        for entry in fs::read_dir(&self.directory)?.flatten() {
            if !entry.file_name().to_string_lossy().starts_with(MEMORY) {
                continue;
            }
            let path = entry.path();
            let Ok(file) = File::open(&path) else { continue };
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                let _ = fs::remove_file(&path);
                continue;
            }
            let mut text = String::new();
            let _ = file.take(32).read_to_string(&mut text);
            sum = sum.saturating_add(text.trim().parse().unwrap_or(0));
        }
        Ok(sum)
    }

    /// Counts a core of `program`, unless it had `most` within the last minute. Returns whether it is counted.
    pub(super) fn admit(&self, program: &[u8], most: u32) -> io::Result<bool> {
        // Continues over suspends, and never goes back; /run does not outlive a boot.
        self.admit_at(program, most, clock_gettime(ClockId::Boottime).tv_sec as u64)
    }

    fn admit_at(&self, program: &[u8], most: u32, now: u64) -> io::Result<bool> {
        let mut file = self.locked("recent")?;
        let mut text = String::new();
        let _ = (&file).take(MAX_RECORD).read_to_string(&mut text);
        let mut hasher = XxHash64::with_seed(0);
        hasher.write(program);
        let program = format!("{:016x}", hasher.finish());
        let is_recent = |line: &&str| {
            let then = line.split(' ').next().and_then(|seconds| seconds.parse::<u64>().ok());
            then.is_some_and(|then| then <= now && now - then < MINUTE)
        };
        let recent: Vec<&str> = text.lines().filter(is_recent).collect();
        let count = recent.iter().filter(|line| line.ends_with(&program)).count();
        if count >= most as usize {
            return Ok(false);
        }
        let mut record = recent.join("\n");
        if !record.is_empty() {
            record.push('\n');
        }
        record.push_str(&format!("{now} {program}\n"));
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(record.as_bytes())?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> (tempfile::TempDir, Runtime) {
        let directory = tempfile::tempdir().unwrap();
        let runtime = Runtime::open(&directory.path().join("a/b")).unwrap();
        (directory, runtime)
    }

    #[test]
    fn each_program_has_its_own_rate() {
        let (_directory, runtime) = runtime();
        let admit = |program: &str, now| runtime.admit_at(program.as_bytes(), 2, now).unwrap();
        assert!(admit("/a", 100) && admit("/a", 130) && admit("/b", 130));
        assert!(!admit("/a", 159), "two within the minute");
        assert!(admit("/a", 160) && !admit("/a", 161), "the first is a minute ago");
        assert!(admit("/a", 10), "a record of the future does not count");
        fs::write(runtime.directory.join("recent"), "\n1 2 3\nnonsense \u{1}\n").unwrap();
        assert!(admit("/a", 200));
    }

    #[test]
    fn what_others_have_reserved_is_left_to_them() {
        let (_directory, runtime) = runtime();
        // As another handler leaves it: locked while it runs, and there once it was killed.
        let path = runtime.directory.join("memory.1");
        fs::write(&path, "70").unwrap();
        let other = File::open(&path).unwrap();
        flock(&other, FlockOperation::LockExclusive).unwrap();
        assert_eq!(runtime.reserve(100, 10, |_| 150).unwrap().bytes, 80);
        assert_eq!(runtime.reserve(100, 10, |others| others + 5).unwrap().bytes, 10);
        drop(other);
        let mine = runtime.reserve(100, 10, |_| 150).unwrap();
        assert_eq!(mine.bytes, 100);
        assert!(!path.exists());
        drop(mine);
        assert_eq!(runtime.reserved().unwrap(), 0);
    }
}
