use std::io;
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle};

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};

use crate::device::device_of;
use crate::fs::{DumpFs, READ_AHEAD};
use crate::layout::CoreFile;
use crate::options::Options;

/// Why it cannot be mounted, served, or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The system refused.
    #[error("cannot {action} {path}: {source}", path = path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// A mounted dump. It is unmounted when this is dropped.
pub struct Mounted {
    /// With a thread that has ended, to put in the place of the session's.
    session: Option<(BackgroundSession, JoinHandle<io::Result<()>>)>,
    path: PathBuf,
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
    let session = Session::new(fs, path, &config).and_then(Session::spawn).map_err(fail)?;
    if let Some(device) = device_of(path) {
        read_further_ahead(&device);
    }
    Ok(Mounted { session: Some((session, ended)), path: path.to_owned() })
}

impl Mounted {
    /// Whether it was unmounted from outside, or cannot be served.
    pub fn is_over(&self) -> bool {
        self.session.as_ref().is_none_or(|(session, _)| session.guard.is_finished())
    }

    /// Unmounts it. Fails if it could not be served until now.
    pub fn unmount(mut self) -> Result<(), MountError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), MountError> {
        let Some((mut session, ended)) = self.session.take() else { return Ok(()) };
        let fail = |action| move |source| MountError::Io { path: self.path.clone(), action, source };
        if !session.guard.is_finished() {
            return session.umount_and_join().map_err(fail("unmount"));
        }
        // A session gives its thread away only together with its mount.
        let thread = std::mem::replace(&mut session.guard, ended);
        let served = thread.join().unwrap_or_else(|_| Err(io::Error::other("its thread panicked")));
        match served {
            // It was unmounted from outside, and something else may be mounted there by now. fuser would unmount that: it
            // takes the POLLERR of a device whose mount is gone for a sign that it is still there (`is_mounted`, 0.18.0).
            Ok(()) => std::mem::forget(session),
            // It is still mounted, and dropping the session unmounts it.
            Err(source) => return Err(fail("serve")(source)),
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // An error has no place to go.
        let _ = self.end();
    }
}

/// Raises the kernel's read-ahead of 128 KiB, which applies whatever the file system allows. Only root may; without it,
/// reading works as well.
fn read_further_ahead(device: &str) {
    let setting = format!("/sys/class/bdi/{device}/read_ahead_kb");
    let _ = std::fs::write(setting, (READ_AHEAD / 1024).to_string());
}
