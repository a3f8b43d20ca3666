//! The directory for CRIU's sockets, logs and statistics, and connections over its sockets.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::Duration;

use pagehaul_run::Progress;
use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::error::ProcessError;

const PREFIX: &str = "pagehaul-criu-";
/// How often CRIU's socket is polled.
const CONNECT: Duration = Duration::from_millis(2);

/// A directory that only its owner can enter. It is locked as long as this program lives: a directory without a lock was
/// left by one that was killed, and the next one removes it.
pub(crate) struct WorkDirectory {
    directory: TempDir,
    _lock: File,
}

impl WorkDirectory {
    pub(crate) fn new() -> Result<Self, ProcessError> {
        let failed = |source| ProcessError::Resource { action: "make a temporary directory", source };
        remove_abandoned(&std::env::temp_dir());
        loop {
            let mut builder = tempfile::Builder::new();
            let directory = builder
                .prefix(PREFIX)
                .permissions(Permissions::from_mode(0o700))
                .tempdir()
                .map_err(failed)?;
            // Another run may have taken it for an abandoned one before it was locked.
            if let Some(lock) = lock(directory.path()).map_err(failed)? {
                return Ok(Self { directory, _lock: lock });
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Makes a socket in it.
    pub(crate) fn listen(&self, name: &str) -> Result<UnixListener, ProcessError> {
        let failed = |source| ProcessError::Resource { action: "make CRIU's socket", source };
        let listener = UnixListener::bind(self.path().join(name)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(listener)
    }
}

/// Locks a directory. None if another process has locked or removed it.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    let is_there = fs::symlink_metadata(path).is_ok_and(|there| {
        file.metadata().is_ok_and(|locked| (there.dev(), there.ino()) == (locked.dev(), locked.ino()))
    });
    Ok(is_there.then_some(file))
}

/// Removes this user's work directories that no process holds a lock on.
fn remove_abandoned(parent: &Path) {
    let names = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in names.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let is_ours = |meta: fs::Metadata| meta.is_dir() && meta.uid() == geteuid().as_raw();
        // Not a link's target. What cannot be removed stays until the next time.
        if fs::symlink_metadata(entry.path()).is_ok_and(is_ours)
            && let Ok(Some(_lock)) = lock(&entry.path())
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Takes the next connection that a process of this user, or root's, makes. None if there is none at this moment.
pub(crate) fn accept(listener: &UnixListener) -> io::Result<Option<UnixStream>> {
    let socket = match listener.accept() {
        Ok((socket, _)) => socket,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
        Err(error) => return Err(error),
    };
    socket.set_nonblocking(false)?;
    let peer = socket_peercred(&socket)?.uid;
    Ok((peer.is_root() || peer == geteuid()).then_some(socket))
}

/// Waits for CRIU to connect. None if it ended before, or the run is cancelled.
pub(crate) fn accept_criu(
    listener: &UnixListener,
    child: &mut Child,
    progress: &Progress,
) -> Option<UnixStream> {
    loop {
        if let Some(socket) = accept(listener).ok()? {
            return Some(socket);
        }
        if progress.is_cancelled() || !matches!(child.try_wait(), Ok(None)) {
            return None;
        }
        thread::sleep(CONNECT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abandoned_directories_are_removed_and_others_stay() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let path = parent.path().join(name);
            fs::create_dir(&path).unwrap();
            fs::write(path.join("dump.log"), "log").unwrap();
            path
        };
        let (abandoned, held, other) = (make("pagehaul-criu-a"), make("pagehaul-criu-b"), make("other"));
        let lock = lock(&held).unwrap().unwrap();
        std::os::unix::fs::symlink(&other, parent.path().join("pagehaul-criu-c")).unwrap();
        remove_abandoned(parent.path());
        assert!(!abandoned.exists() && held.join("dump.log").exists() && other.join("dump.log").exists());
        // Closing it would not do: another test's child has it open, too, until its exec.
        flock(&lock, FlockOperation::Unlock).unwrap();
        remove_abandoned(parent.path());
        assert!(!held.exists());
    }

    #[test]
    fn work_directories_are_closed_to_others_and_go_away() {
        let work = WorkDirectory::new().unwrap();
        let path = work.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        drop(WorkDirectory::new().unwrap());
        assert!(path.exists(), "another run has removed it");
        drop(work);
        assert!(!path.exists());
    }
}
