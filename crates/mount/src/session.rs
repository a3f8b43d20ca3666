use std::io;
use std::path::{Path, PathBuf};

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};

use crate::device::device_of;
use crate::fs::{DumpFs, READ_AHEAD};
use crate::layout::CoreFile;
use crate::options::Options;

/// Why it cannot be mounted, or unmounted.
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
    session: Option<BackgroundSession>,
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
    Ok(Mounted { session: Some(session), path: path.to_owned() })
}

impl Mounted {
    /// Whether it was unmounted from outside.
    pub fn is_over(&self) -> bool {
        self.session.as_ref().is_none_or(|session| session.guard.is_finished())
    }

    /// Unmounts it.
    pub fn unmount(mut self) -> Result<(), MountError> {
        self.end().map_err(|source| MountError::Io { path: self.path.clone(), action: "unmount", source })
    }

    fn end(&mut self) -> io::Result<()> {
        match self.session.take() {
            // It was unmounted from outside, and something else may be mounted there by now. fuser would unmount that: it
            // takes the POLLERR of a device whose mount is gone for a sign that it is still there (`is_mounted`, 0.18.0).
            Some(session) if session.guard.is_finished() => {
                std::mem::forget(session);
                Ok(())
            }
            Some(session) => session.umount_and_join(),
            None => Ok(()),
        }
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
