use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::{Builder, JoinHandle};

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use rustix::fs::statfs;
use rustix::io::Errno;
use rustix::mount::{UnmountFlags, unmount};

use crate::device::device_of;
use crate::fs::{DumpFs, READ_AHEAD};
use crate::layout::CoreFile;
use crate::options::Options;

/// `FUSE_SUPER_MAGIC` of include/uapi/linux/magic.h.
const FUSE: u64 = 0x6573_5546;

/// Why it cannot be mounted, served, or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The system refused.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The kernel offers no FUSE here.
    #[error(
        "cannot mount on {path}: there is no /dev/fuse; load the module (modprobe fuse), or start the container with \
         --device /dev/fuse",
        path = path.display()
    )]
    NoDevice { path: PathBuf },
    /// Only root mounts without the helper.
    #[error(
        "cannot mount on {path}: fusermount3 is not on PATH, and only root mounts without it; install fuse3",
        path = path.display()
    )]
    NoHelper { path: PathBuf },
    /// The mount would hide what is in the directory.
    #[error("{path} is not empty, and the mount would hide what is in it; name an empty directory", path = path.display())]
    NotEmpty { path: PathBuf },
    /// Something is mounted there.
    #[error("something is mounted on {path}; unmount it first, or name another directory", path = path.display())]
    InUse { path: PathBuf },
}

/// Returns an error if `path` is no empty directory that can be mounted on.
pub fn check_directory(path: &Path) -> Result<(), MountError> {
    let fail = |source| MountError::Io { path: path.to_owned(), action: "mount on", source };
    let meta = match path.metadata() {
        // A mount whose process is gone.
        Err(error) if error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error()) => {
            return Err(MountError::InUse { path: path.to_owned() });
        }
        meta => meta.map_err(fail)?,
    };
    if !meta.is_dir() {
        return Err(fail(io::ErrorKind::NotADirectory.into()));
    }
    let mut entries = std::fs::read_dir(path).map_err(fail)?;
    if entries.next().is_none() {
        return Ok(());
    }
    // What is mounted has another device than the directory that it is in. The root has no other.
    let above = path.join("..").metadata().map_err(fail)?;
    Err(match meta.dev() != above.dev() {
        true => MountError::InUse { path: path.to_owned() },
        false => MountError::NotEmpty { path: path.to_owned() },
    })
}

/// Returns why it could not be mounted, where the system's error does not say so.
fn explained(path: &Path, source: io::Error) -> MountError {
    let path = path.to_owned();
    if !Path::new("/dev/fuse").exists() {
        return MountError::NoDevice { path };
    }
    let is_missing = |name| Command::new(name).arg("-V").output().is_err();
    if !rustix::process::geteuid().is_root() && is_missing("fusermount3") && is_missing("fusermount") {
        return MountError::NoHelper { path };
    }
    MountError::Io { path, action: "mount on", source }
}

/// A mounted dump. It is detached when this is dropped.
pub struct Mounted {
    /// With a thread that has ended, to put in the place of the session's.
    session: Option<(BackgroundSession, JoinHandle<io::Result<()>>)>,
    path: PathBuf,
    is_detached: bool,
}

/// Mounts `core` as `vmcore` in the directory `path`, with small `files` next to it, given by name.
pub fn mount(
    core: CoreFile<'static>,
    files: Vec<(String, Vec<u8>)>,
    path: &Path,
    options: &Options,
) -> Result<Mounted, MountError> {
    let fail = |source| MountError::Io { path: path.to_owned(), action: "mount on", source };
    let fs = DumpFs::new(core, files, options);
    let ended = Builder::new().spawn(|| Ok(())).map_err(fail)?;
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::RO,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoExec,
        MountOption::DefaultPermissions,
        MountOption::FSName(options.name.clone()),
        MountOption::Subtype("pagehaul".into()),
    ];
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = true;
    let session = Session::new(fs, path, &config).and_then(Session::spawn);
    let session = session.map_err(|source| explained(path, source))?;
    if let Some(device) = device_of(path) {
        read_further_ahead(&device);
    }
    Ok(Mounted { session: Some((session, ended)), path: path.to_owned(), is_detached: false })
}

impl Mounted {
    /// Whether it is unmounted and no file of it is open, or it cannot be served.
    pub fn is_over(&self) -> bool {
        self.session.as_ref().is_none_or(|(session, _)| session.guard.is_finished())
    }

    /// Takes it out of the directory. Files that are open are served until they are closed; then it is over.
    pub fn detach(&mut self) -> Result<(), MountError> {
        if !self.is_detached {
            detach(&self.path).map_err(self.fail("unmount"))?;
            self.is_detached = true;
        }
        Ok(())
    }

    /// Ends it, and detaches it if it was not. Fails if it could not be served until now.
    pub fn end(mut self) -> Result<(), MountError> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), MountError> {
        let Some((mut session, ended)) = self.session.take() else { return Ok(()) };
        let is_over = session.guard.is_finished();
        let served = match is_over {
            // A session gives its thread away only together with its mount.
            true => {
                let thread = std::mem::replace(&mut session.guard, ended);
                thread.join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
            }
            false => Ok(()),
        };
        let served = match served {
            Err(error) if is_end(&error) && (self.is_detached || !is_fuse(&self.path)) => Ok(()),
            served => served,
        };
        // Its threads serve on. fuser would unmount, and not lazily: what is in use would stay, served by no process, and what
        // somebody else has mounted there meanwhile would go. It takes the POLLERR of a device whose mount is gone for a sign
        // that it is still there (`is_mounted`, 0.18.0).
        std::mem::forget(session);
        if !is_over || served.is_err() {
            self.detach()?;
        }
        served.map_err(self.fail("serve"))
    }

    fn fail(&self, action: &'static str) -> impl FnOnce(io::Error) -> MountError {
        let path = self.path.clone();
        move |source| MountError::Io { path, action, source }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // An error has no place to go.
        let _ = self.finish();
    }
}

/// Whether a thread has taken a request when the connection ended. The kernel has it know by another error than those that wait for one
/// (ENODEV; `fuse_dev_do_read()`, fs/fuse/dev.c).
fn is_end(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::CONNABORTED.raw_os_error())
}

/// Whether a FUSE file system is mounted on a path, one without a connection (ENOTCONN) too.
fn is_fuse(path: &Path) -> bool {
    statfs(path).map_or(true, |found| found.f_type as u64 == FUSE)
}

/// Unmounts lazily. What is not mounted is left alone.
pub fn detach(path: &Path) -> io::Result<()> {
    match unmount(path, UnmountFlags::DETACH) {
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        // A user who is not root mounted by this program, too.
        Err(Errno::PERM) => {
            let helper = |name| Command::new(name).args(["-u", "-z", "--"]).arg(path).output();
            let ended = helper("fusermount3").or_else(|_| helper("fusermount"))?;
            match ended.status.success() {
                true => Ok(()),
                false => Err(io::Error::other(String::from_utf8_lossy(&ended.stderr).trim().to_owned())),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Raises the kernel's read-ahead of 128 KiB, which applies whatever the file system allows. Only root may; without it,
/// reading works as well.
fn read_further_ahead(device: &str) {
    let setting = format!("/sys/class/bdi/{device}/read_ahead_kb");
    let _ = std::fs::write(setting, (READ_AHEAD / 1024).to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_was_taken_at_the_end_is_no_failure() {
        assert!(is_end(&io::Error::from_raw_os_error(Errno::CONNABORTED.raw_os_error())));
        assert!(!is_end(&io::Error::from_raw_os_error(Errno::IO.raw_os_error())));
        let directory = tempfile::tempdir().unwrap();
        assert!(!is_fuse(directory.path()));
        assert!(is_fuse(&directory.path().join("missing")));
    }
}
