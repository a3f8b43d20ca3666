//! Copying pages out of a process.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::error::ProcessError;
use crate::mapping::Mapping;
use crate::populated::Run;
use crate::procfs;
use crate::units::Pid;
use crate::units::page_size;

/// Maximum number of ranges in one call (`UIO_MAXIOV`, include/uapi/linux/uio.h).
const MAX_PIECES: usize = 1024;

/// What could not be copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) pages: u64,
    /// Address of the first of them.
    pub(crate) first: u64,
}

/// The memory of a process, and two ways to read it.
///
/// `process_vm_readv` is faster: on one CPU of the development machine, 7 GB/s of small pages and 25 GB/s of huge ones, where
/// `/proc/PID/mem` reads 4.6 and 7. But it pins what it copies. Since Linux 5.19 (commit a7f226604170, "mm/gup: trigger
/// FAULT_FLAG_UNSHARE when R/O-pinning a possibly shared anonymous page"), pinning gives the process its own copy of every
/// page it shares with a parent or child. That takes as much memory again and three times as long, and fails for huge pages
/// when none is left. `/proc/PID/mem` reads pages as they are.
pub(crate) struct Memory {
    pid: Pid,
    file: File,
    shared: Shared,
}

/// Which pages a process may share with a parent or child.
pub(crate) enum Shared {
    /// All: it is a snapshot.
    All,
    /// Those in these ranges of addresses, in order.
    In(Vec<Range<u64>>),
}

impl Shared {
    /// For a process with these mappings.
    pub(crate) fn of(mappings: &[Mapping]) -> Self {
        let forked = mappings.iter().filter(|mapping| mapping.has_forked());
        Self::In(forked.map(|mapping| mapping.range.clone()).collect())
    }
}

impl Memory {
    /// Of the process to which the living thread `tid` belongs.
    pub(crate) fn open(tid: Pid, shared: Shared) -> Result<Self, ProcessError> {
        let path = procfs::path(tid, "mem");
        let file = File::open(&path).map_err(|source| ProcessError::Proc { path, source })?;
        Ok(Self { pid: tid, file, shared })
    }

    /// The thread it is read through.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// Copies runs of pages to `buffer`, one after the other. Pages that cannot be read (beyond the end of a file, taken
    /// away meanwhile, guard pages) read as zeros and are counted. An error means that the process is gone or may not be
    /// read.
    pub(crate) fn copy(&self, runs: &[Run], buffer: &mut [u8]) -> io::Result<Missing> {
        let page_size = page_size();
        let mut missing = Missing::default();
        let mut done = 0;
        // The run being copied, and how far into it.
        let (mut run, mut into) = (0, 0);
        while let Some(first) = runs.get(run) {
            let rest = buffer.get_mut(done..).unwrap_or_default();
            let mine =
                runs[run..].iter().take(MAX_PIECES).take_while(|run| !self.is_shared(run.address)).count();
            let (copied, wanted) = if mine == 0 {
                let wanted = first.range.end - first.range.start - into;
                let rest = rest.get_mut(..wanted as usize).unwrap_or_default();
                (self.read(first.address + into, rest)?, wanted)
            } else {
                self.take(&runs[run..run + mine], into, rest)?
            };
            // Partial pages do not count.
            let copied = copied.min(wanted) / page_size * page_size;
            done += copied as usize;
            advance(runs, &mut run, &mut into, copied);
            if copied < wanted
                && let Some(at) = runs.get(run)
            {
                let address = at.address + into;
                if let Some(page) = buffer.get_mut(done..done + page_size as usize) {
                    // Memory without permission to read exists; only the file reads it.
                    if mine == 0 || self.read(address, page)? < page_size {
                        page.fill(0);
                        if missing.pages == 0 {
                            missing.first = address;
                        }
                        missing.pages += 1;
                    }
                }
                done += page_size as usize;
                advance(runs, &mut run, &mut into, page_size);
            }
        }
        Ok(missing)
    }

    fn is_shared(&self, address: u64) -> bool {
        match &self.shared {
            Shared::All => true,
            Shared::In(ranges) => {
                let next = ranges.partition_point(|range| range.end <= address);
                ranges.get(next).is_some_and(|range| range.contains(&address))
            }
        }
    }

    /// Copies from `address` on; fewer bytes than `buffer` holds where one cannot be read.
    fn read(&self, address: u64, buffer: &mut [u8]) -> io::Result<u64> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], address + done as u64) {
                // Its memory is gone with its last thread.
                Ok(0) => return Err(io::Error::from_raw_os_error(libc::ESRCH)),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if matches!(error.raw_os_error(), Some(libc::EIO | libc::EFAULT)) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done as u64)
    }

    /// Copies `runs` from `into` bytes into the first on. Returns the bytes copied, and the bytes asked for.
    fn take(&self, runs: &[Run], into: u64, buffer: &mut [u8]) -> io::Result<(u64, u64)> {
        let pieces: Vec<libc::iovec> = runs
            .iter()
            .enumerate()
            .map(|(index, piece)| {
                let skip = if index == 0 { into } else { 0 };
                let length = piece.range.end - piece.range.start - skip;
                libc::iovec {
                    iov_base: std::ptr::without_provenance_mut((piece.address + skip) as usize),
                    iov_len: length as usize,
                }
            })
            .collect();
        let wanted: u64 = pieces.iter().map(|piece| piece.iov_len as u64).sum();
        let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        loop {
            // SAFETY: `local` is exclusively borrowed memory; the other addresses are the other process's, and
            // the kernel checks them.
            let result = unsafe {
                libc::process_vm_readv(self.pid, &local, 1, pieces.as_ptr(), pieces.len() as libc::c_ulong, 0)
            };
            if result >= 0 {
                return Ok((result as u64, wanted));
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EFAULT) => return Ok((0, wanted)),
                Some(libc::EINTR) => {}
                _ => return Err(error),
            }
        }
    }
}

/// Moves on by `bytes`.
fn advance(runs: &[Run], run: &mut usize, into: &mut u64, mut bytes: u64) {
    while bytes > 0
        && let Some(current) = runs.get(*run)
    {
        let left = current.range.end - current.range.start - *into;
        if bytes < left {
            *into += bytes;
            return;
        }
        bytes -= left;
        *run += 1;
        *into = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes() -> usize {
        page_size() as usize
    }

    /// Six pages of a process, each filled with its number from 1 on.
    struct Pages(*mut libc::c_void);

    impl Pages {
        fn new() -> Self {
            // SAFETY: a new mapping; no other memory changes.
            let base = unsafe {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                libc::mmap(
                    std::ptr::null_mut(),
                    6 * bytes(),
                    libc::PROT_READ | libc::PROT_WRITE,
                    flags,
                    -1,
                    0,
                )
            };
            assert_ne!(base, libc::MAP_FAILED);
            for index in 0..6 {
                // SAFETY: within the mapping.
                unsafe {
                    std::ptr::write_bytes(base.cast::<u8>().add(index * bytes()), index as u8 + 1, bytes())
                };
            }
            Self(base)
        }

        fn start(&self) -> u64 {
            self.0.addr() as u64
        }

        /// First bytes of pages 0 to 2, 3, and 4 and 5, copied in one go.
        fn copy(&self, shared: Shared) -> (Missing, Vec<u8>) {
            let start = self.start();
            let runs = [
                Run { range: 0..3 * page_size(), address: start },
                Run { range: 8 * page_size()..9 * page_size(), address: start + 3 * page_size() },
                Run { range: 10 * page_size()..12 * page_size(), address: start + 4 * page_size() },
            ];
            let mut buffer = vec![9; 6 * bytes()];
            let memory = Memory::open(std::process::id() as Pid, shared).unwrap();
            let missing = memory.copy(&runs, &mut buffer).unwrap();
            assert!(buffer.chunks(bytes()).all(|page| page.iter().all(|byte| *byte == page[0])));
            (missing, buffer.chunks(bytes()).map(|page| page[0]).collect())
        }

        /// By calls, by the file, and by both in turn.
        fn copies(&self) -> [(Missing, Vec<u8>); 3] {
            let page =
                |number: u64| self.start() + number * page_size()..self.start() + (number + 1) * page_size();
            [Shared::In(Vec::new()), Shared::All, Shared::In(vec![page(3)])].map(|shared| self.copy(shared))
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: what is left of the mapping; nothing refers to it.
            unsafe { libc::munmap(self.0, 6 * bytes()) };
        }
    }

    #[test]
    fn pages_that_cannot_be_read_are_zeros_and_counted() {
        let pages = Pages::new();
        // SAFETY: the third and fourth page of it; nothing refers to them.
        unsafe { libc::munmap(pages.0.byte_add(2 * bytes()), 2 * bytes()) };
        for (missing, firsts) in pages.copies() {
            assert_eq!(missing, Missing { pages: 2, first: pages.start() + 2 * page_size() });
            assert_eq!(firsts, [1, 2, 0, 0, 5, 6]);
        }
    }

    #[test]
    fn pages_without_leave_to_read_are_there() {
        let pages = Pages::new();
        // SAFETY: pages of the mapping that are not read from here on.
        unsafe { libc::mprotect(pages.0.byte_add(bytes()), 3 * bytes(), libc::PROT_NONE) };
        for (missing, firsts) in pages.copies() {
            assert_eq!(missing, Missing::default());
            assert_eq!(firsts, [1, 2, 3, 4, 5, 6]);
        }
    }
}
