//! A file system that fails on request: a directory of files in memory, through FUSE.
#![allow(dead_code)] // each test file uses its own part

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, Session, TimeOrNow, WriteFlags,
};

/// When it fails.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// Writes that succeed; all later ones are I/O errors.
    pub writes: Option<usize>,
    /// Flushes to the disk that succeed; all later ones are I/O errors.
    pub syncs: Option<usize>,
    /// Writes after which the writer is killed.
    pub kill: Option<usize>,
    /// Where files cannot be read.
    pub bad: Range<usize>,
    /// What becomes of one write, counted from 0.
    pub fault: Option<(usize, Fault)>,
}

/// What becomes of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails; later ones succeed.
    Error,
    /// It writes only half; later ones succeed.
    Short,
    /// From now on no file can grow beyond the sizes that all have together, in the middle of this write.
    Full,
}

/// What it holds, and what was done to it.
#[derive(Default)]
struct State {
    files: Vec<(Option<OsString>, Vec<u8>)>,
    plan: Plan,
    writes: usize,
    syncs: usize,
    /// Bytes that all files may take.
    room: Option<usize>,
    /// The process to kill, if not the writer.
    victim: Option<i32>,
}

impl State {
    fn index(&self, inode: INodeNo) -> Option<usize> {
        let index = usize::try_from(inode.0.checked_sub(2)?).ok()?;
        (index < self.files.len()).then_some(index)
    }

    fn find(&self, name: &OsStr) -> Option<usize> {
        self.files.iter().position(|(known, _)| known.as_deref() == Some(name))
    }

    /// How many of `length` bytes to be written to a file at `at` there is room for.
    fn fits(&self, index: usize, at: usize, length: usize) -> usize {
        let Some(room) = self.room else { return length };
        let taken: usize = self.files.iter().map(|(_, bytes)| bytes.len()).sum();
        let most = self.files[index].1.len() + room.saturating_sub(taken);
        most.saturating_sub(at).min(length)
    }

    fn attributes(&self, index: Option<usize>) -> FileAttr {
        let size = index.map_or(0, |index| self.files[index].1.len() as u64);
        FileAttr {
            ino: INodeNo(index.map_or(1, |index| index as u64 + 2)),
            size,
            blocks: size.div_ceil(512),
            atime: SystemTime::UNIX_EPOCH,
            mtime: SystemTime::UNIX_EPOCH,
            ctime: SystemTime::UNIX_EPOCH,
            crtime: SystemTime::UNIX_EPOCH,
            kind: if index.is_some() { FileType::RegularFile } else { FileType::Directory },
            perm: if index.is_some() { 0o600 } else { 0o700 },
            nlink: 1,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

/// How long the kernel may cache attributes and names.
const NEVER: Duration = Duration::ZERO;

struct Files(Arc<Mutex<State>>);

impl Files {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }
}

impl Filesystem for Files {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let state = self.state();
        match state.find(name) {
            Some(index) => reply.entry(&NEVER, &state.attributes(Some(index)), Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let state = self.state();
        reply.attr(&NEVER, &state.attributes(state.index(inode)));
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut state = self.state();
        let Some(index) = state.index(inode) else { return reply.error(Errno::EPERM) };
        if let Some(size) = size {
            state.files[index].1.resize(size as usize, 0);
        }
        reply.attr(&NEVER, &state.attributes(Some(index)));
    }

    fn create(&self, _: &Request, _: INodeNo, name: &OsStr, _: u32, _: u32, _: i32, reply: ReplyCreate) {
        let mut state = self.state();
        state.files.push((Some(name.to_owned()), Vec::new()));
        let attributes = state.attributes(Some(state.files.len() - 1));
        reply.created(&NEVER, &attributes, Generation(0), FileHandle(0), FopenFlags::empty());
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn unlink(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let mut state = self.state();
        match state.find(name) {
            Some(index) => {
                state.files[index].0 = None;
                reply.ok();
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        name: &OsStr,
        _: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut state = self.state();
        let Some(index) = state.find(name) else { return reply.error(Errno::ENOENT) };
        if let Some(other) = state.find(new_name) {
            if flags.contains(RenameFlags::RENAME_NOREPLACE) {
                return reply.error(Errno::EEXIST);
            }
            state.files[other] = (None, Vec::new());
        }
        state.files[index].0 = Some(new_name.to_owned());
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let state = self.state();
        let Some(index) = state.index(inode) else { return reply.error(Errno::EISDIR) };
        let bytes = &state.files[index].1;
        let start = (offset as usize).min(bytes.len());
        let end = (start + size as usize).min(bytes.len());
        if start < state.plan.bad.end && state.plan.bad.start < end {
            return reply.error(Errno::EIO);
        }
        reply.data(&bytes[start..end]);
    }

    fn write(
        &self,
        request: &Request,
        inode: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut state = self.state();
        let Some(index) = state.index(inode) else { return reply.error(Errno::EISDIR) };
        if state.plan.writes.is_some_and(|good| state.writes >= good) {
            return reply.error(Errno::EIO);
        }
        let at = offset as usize;
        let mut length = data.len();
        let fault = state.plan.fault.filter(|(number, _)| *number == state.writes).map(|(_, fault)| fault);
        match fault {
            Some(Fault::Error) => {
                state.writes += 1;
                return reply.error(Errno::EIO);
            }
            Some(Fault::Short) => length = length.div_ceil(2),
            Some(Fault::Full) => {
                let taken: usize = state.files.iter().map(|(_, bytes)| bytes.len()).sum();
                state.room = Some(taken + length / 2);
            }
            None => {}
        }
        length = state.fits(index, at, length);
        if length == 0 && !data.is_empty() {
            return reply.error(Errno::ENOSPC);
        }
        let bytes = &mut state.files[index].1;
        bytes.resize(bytes.len().max(at + length), 0);
        bytes[at..at + length].copy_from_slice(&data[..length]);
        state.writes += 1;
        if state.plan.kill == Some(state.writes) {
            let writer = state.victim.unwrap_or(request.pid() as i32);
            let writer = rustix::process::Pid::from_raw(writer).unwrap();
            rustix::process::kill_process(writer, rustix::process::Signal::KILL).unwrap();
        }
        reply.written(length as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let mut state = self.state();
        if state.plan.syncs.is_some_and(|good| state.syncs >= good) {
            return reply.error(Errno::EIO);
        }
        state.syncs += 1;
        reply.ok();
    }
}

/// Gives this thread and its children a mount namespace: the kernel removes what they mount when the last of them ends, so
/// that a test that is killed leaves no mount.
fn unshare_mounts() -> io::Result<()> {
    let (none, root) = (std::ptr::null::<libc::c_char>(), c"/".as_ptr());
    // SAFETY: both calls change only what this thread and its children see mounted; the path lives through the call.
    let done = unsafe {
        libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(none, root, none, libc::MS_REC | libc::MS_PRIVATE, none.cast()) == 0
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The file system, mounted for the thread that mounts it and its children; unmounted when dropped.
pub struct Faulty {
    state: Arc<Mutex<State>>,
    session: Option<BackgroundSession>,
}

impl Faulty {
    /// Mounts it on a directory. Returns `None` without root or FUSE.
    pub fn mount(directory: &Path) -> Option<Self> {
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        if device.is_err() || !rustix::process::geteuid().is_root() || unshare_mounts().is_err() {
            eprintln!("not tested: FUSE file systems cannot be mounted here");
            return None;
        }
        std::fs::create_dir(directory).unwrap();
        let state = Arc::<Mutex<State>>::default();
        let mut config = Config::default();
        config.mount_options = vec![MountOption::RW, MountOption::FSName("faulty".into())];
        let session =
            Session::new(Files(Arc::clone(&state)), directory, &config).and_then(Session::spawn).unwrap();
        Some(Self { state, session: Some(session) })
    }

    /// Puts a file there.
    pub fn put(&self, name: &str, bytes: Vec<u8>) {
        self.state.lock().unwrap().files.push((Some(name.into()), bytes));
    }

    /// Returns what a file holds.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state.lock().unwrap();
        Some(state.files[state.find(name.as_ref())?].1.clone())
    }

    /// Takes a file away.
    pub fn take(&self, name: &str) -> Option<Vec<u8>> {
        let mut state = self.state.lock().unwrap();
        let index = state.find(name.as_ref())?;
        state.files[index].0 = None;
        Some(std::mem::take(&mut state.files[index].1))
    }

    /// Names the process that a plan kills, where the kernel writes on its behalf.
    pub fn set_victim(&self, pid: u32) {
        self.state.lock().unwrap().victim = Some(pid as i32);
    }

    /// Runs a command twice: to its end, which shows how many writes it does, and then until it is killed after three quarters of them.
    pub fn killed(&self, command: &mut Command) {
        assert!(command.status().unwrap().success());
        let (writes, _) = self.fail(Plan::default());
        self.clear();
        self.fail(Plan { kill: Some(writes * 3 / 4), ..Plan::default() });
        let mut child = command.spawn().unwrap();
        self.set_victim(child.id());
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        self.fail(Plan::default());
    }

    /// Removes all files.
    pub fn clear(&self) {
        self.state.lock().unwrap().files.iter_mut().for_each(|file| *file = (None, Vec::new()));
    }

    /// Chooses which later operations fail. Returns the numbers of writes and flushes so far.
    pub fn fail(&self, plan: Plan) -> (usize, usize) {
        let mut state = self.state.lock().unwrap();
        state.plan = plan;
        (state.room, state.victim) = (None, None);
        (std::mem::take(&mut state.writes), std::mem::take(&mut state.syncs))
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            // A test that failed has more to say than this could.
            let _ = session.umount_and_join();
        }
    }
}
