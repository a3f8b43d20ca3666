//! The files of a mount: few, read-only, known when it begins.

use std::ffi::OsStr;
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry,
    ReplyLseek, ReplyOpen, Request,
};
use pagehaul_physmem::View;

use crate::layout::CoreFile;
use crate::options::Options;

/// Nothing changes while it is mounted.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Bytes the kernel may read ahead, and ask for at once.
pub(crate) const READ_AHEAD: u32 = 1 << 20;
/// Requests that may be under way without anyone waiting for them: what reads ahead on every CPU.
const BACKGROUND: u16 = 64;

/// Inode of the vmcore; the others follow.
const VMCORE: u64 = 2;

/// What is mounted.
pub(crate) struct DumpFs {
    core: CoreFile<'static>,
    /// Bytes of the vmcore that are no holes.
    stored: u64,
    /// Small files next to it.
    files: Vec<(String, Vec<u8>)>,
    time: SystemTime,
    owner: (u32, u32),
    /// Whether others than the owner may read it.
    for_others: bool,
    readers: Mutex<Vec<Reader>>,
}

/// What a request is served with; as many as there were requests at the same time.
struct Reader {
    view: Box<dyn View>,
    buffer: Vec<u8>,
}

impl DumpFs {
    pub(crate) fn new(core: CoreFile<'static>, files: Vec<(String, Vec<u8>)>, options: &Options) -> Self {
        let stored = core.stored_bytes().unwrap_or(core.size());
        let time = UNIX_EPOCH + Duration::from_secs(options.time.unwrap_or(0));
        let owner = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        Self { core, stored, files, time, owner, for_others: options.allow_other, readers: Mutex::default() }
    }

    fn attributes(&self, inode: u64) -> Option<FileAttr> {
        let (size, stored, directory) = match inode {
            1 => (0, 0, true),
            VMCORE => (self.core.size(), self.stored, false),
            _ => {
                let size = self.file(inode)?.len() as u64;
                (size, size, false)
            }
        };
        Some(FileAttr {
            ino: INodeNo(inode),
            size,
            blocks: stored.div_ceil(512),
            atime: self.time,
            mtime: self.time,
            ctime: self.time,
            crtime: self.time,
            kind: if directory { FileType::Directory } else { FileType::RegularFile },
            // A dump holds everything the machine knew: only its owner may read it, unless others are to.
            perm: match (directory, self.for_others) {
                (true, false) => 0o500,
                (true, true) => 0o555,
                (false, false) => 0o400,
                (false, true) => 0o444,
            },
            nlink: if directory { 2 } else { 1 },
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn file(&self, inode: u64) -> Option<&[u8]> {
        let index = usize::try_from(inode.checked_sub(VMCORE + 1)?).ok()?;
        self.files.get(index).map(|(_, bytes)| bytes.as_slice())
    }

    fn names(&self) -> impl Iterator<Item = (u64, &str)> {
        std::iter::once("vmcore")
            .chain(self.files.iter().map(|(name, _)| name.as_str()))
            .zip(VMCORE..)
            .map(|(name, inode)| (inode, name))
    }

    fn reader(&self) -> Reader {
        let kept = self.readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_else(|| Reader { view: self.core.view(), buffer: Vec::new() })
    }

    fn keep(&self, reader: Reader) {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner).push(reader);
    }
}

impl Filesystem for DumpFs {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What the kernel cannot do, it does without.
        let _ = config.set_max_readahead(READ_AHEAD);
        let _ = config.set_max_background(BACKGROUND);
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_READ | InitFlags::FUSE_MAX_PAGES);
        let _ = config.add_capabilities(InitFlags::FUSE_PARALLEL_DIROPS);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.names().find(|(_, known)| parent == INodeNo::ROOT && name == *known);
        match found.and_then(|(inode, _)| self.attributes(inode)) {
            Some(attributes) => reply.entry(&FOREVER, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode.0) {
            Some(attributes) => reply.attr(&FOREVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
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
        if inode.0 != VMCORE {
            let Some(bytes) = self.file(inode.0) else { return reply.error(Errno::ENOENT) };
            let rest = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)).unwrap_or(&[]);
            return reply.data(&rest[..rest.len().min(size as usize)]);
        }
        let mut reader = self.reader();
        reader.buffer.resize(size as usize, 0);
        // Not as many bytes as were asked for would be taken for the end of the file: all of them, or an error, after which
        // the kernel asks page by page.
        match self.core.read(reader.view.as_mut(), offset, &mut reader.buffer) {
            Ok(count) => reply.data(&reader.buffer[..count]),
            Err(_) => reply.error(Errno::EIO),
        }
        self.keep(reader);
    }

    fn lseek(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        /// `SEEK_DATA` and `SEEK_HOLE` (include/uapi/linux/fs.h); the others never get here.
        const SEEK_DATA: i32 = 3;
        const SEEK_HOLE: i32 = 4;
        let size = self.attributes(inode.0).map_or(0, |attributes| attributes.size);
        let Some(from) = u64::try_from(offset).ok().filter(|from| *from < size) else {
            return reply.error(Errno::ENXIO);
        };
        let found = match (inode.0, whence) {
            (VMCORE, SEEK_DATA | SEEK_HOLE) => self.core.seek(from, whence == SEEK_DATA),
            (_, SEEK_DATA) => Ok(Some(from)),
            (_, SEEK_HOLE) => Ok(Some(size)),
            _ => return reply.error(Errno::EINVAL),
        };
        match found {
            Ok(Some(at)) => reply.offset(at as i64),
            Ok(None) => reply.error(Errno::ENXIO),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn readdir(&self, _: &Request, inode: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if inode != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let directories = [(1, FileType::Directory, "."), (1, FileType::Directory, "..")];
        let files = self.names().map(|(inode, name)| (inode, FileType::RegularFile, name));
        let entries = directories.into_iter().chain(files).enumerate().skip(offset as usize);
        for (index, (inode, kind, name)) in entries {
            if reply.add(INodeNo(inode), index as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
