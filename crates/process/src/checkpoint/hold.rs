//! Keeping the processes frozen, in CRIU's hands: until their checkpoint is on the disk, or, if they are left running, until their
//! images have been read. CRIU puts their memory into pipes without a copy (`vmsplice`), so that what they write before a pipe is
//! read would be in the image, which then has parts of two moments.
//!
//! CRIU runs an action script once all images are out (`post-dump`), while it still traces the processes. The script is
//! this program: it waits for the word that this is done. If it fails, CRIU lets the processes go on as
//! they were, with their network connections. It fails when its socket ends, so also when pagehaul is killed. If CRIU is
//! killed as well, the kernel detaches its tracees, which then go on too.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::work_directory::{WorkDirectory, accept};
use crate::error::ProcessError;
use crate::signal_mask::{ALL, Blocked};

/// Name of the script in the work directory, by which the program knows what it is started for.
const SCRIPT: &str = "post-dump";
/// Name of the socket next to it.
const SOCKET: &str = "post-dump.sock";
/// What the script waits for.
const COMMITTED: [u8; 1] = [1];

/// An action script that CRIU has yet to start.
pub(crate) struct Script {
    pub(crate) path: PathBuf,
    pub(crate) listener: UnixListener,
}

impl Script {
    pub(crate) fn new(work: &WorkDirectory) -> Result<Self, ProcessError> {
        let path = work.path().join(SCRIPT);
        let listener = work.listen(SOCKET)?;
        // Once this program is dead the link leads nowhere, and CRIU counts that as the script's failure.
        std::os::unix::fs::symlink(format!("/proc/{}/exe", std::process::id()), &path)
            .map_err(|source| ProcessError::Resource { action: "make CRIU's action script", source })?;
        Ok(Self { path, listener })
    }

    /// Takes the script's connection, if there is one.
    pub(crate) fn started(&self) -> io::Result<Option<Hold>> {
        Ok(accept(&self.listener)?.map(Hold))
    }
}

/// Processes frozen by CRIU, which lets them go on when this is dropped.
pub(crate) struct Hold(UnixStream);

impl Hold {
    /// Has CRIU leave the processes stopped instead: their checkpoint is on the disk.
    pub(crate) fn commit(mut self) {
        // A script that was killed made CRIU do the same.
        let _ = self.0.write_all(&COMMITTED);
    }

    /// Has CRIU let the processes go on: their images have been read. An error if they went on before.
    pub(crate) fn let_go(mut self) -> Result<(), ProcessError> {
        // A script that was killed counts as one that was successful.
        let waits =
            recv(&self.0, &mut [0; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT).err() == Some(Errno::AGAIN);
        if waits && self.0.write_all(&COMMITTED).is_ok() {
            return Ok(());
        }
        Err(Self::ended_early())
    }

    /// CRIU did not hold the processes until they were let go.
    pub(crate) fn ended_early() -> ProcessError {
        let why = "the processes went on before their memory was read, because CRIU's action script was ended; try again";
        ProcessError::Refused(why.into())
    }
}

/// Runs as CRIU's action script if this program was started as one. Returns the exit status then.
pub fn action_script() -> Option<ExitCode> {
    let program = PathBuf::from(std::env::args_os().next()?);
    let action = std::env::var_os("CRTOOLS_SCRIPT_ACTION").filter(|_| program.ends_with(SCRIPT))?;
    // CRIU calls it at other moments too.
    let is_fine = action != "post-dump" || wait(&program.with_file_name(SOCKET)).unwrap_or(false);
    Some(if is_fine { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Waits until pagehaul says that the checkpoint is on the disk, or ends without.
fn wait(socket: &Path) -> io::Result<bool> {
    // CRIU counts a script that a signal ended as one that was successful.
    let _blocked = Blocked::new(ALL)?;
    let mut answer = Vec::new();
    UnixStream::connect(socket)?.read_to_end(&mut answer)?;
    Ok(answer == COMMITTED)
}
