//! Copying pages out of a process.

use std::io;

use crate::PAGE;
use crate::cutter::Run;
use crate::procfs::Pid;

/// Most pieces in one call (`UIO_MAXIOV`, include/uapi/linux/uio.h).
const MOST_PIECES: usize = 1024;

/// What could not be copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Pages.
    pub(crate) pages: u64,
    /// Address of the first of them.
    pub(crate) first: u64,
}

/// Copies runs of pages to `buffer`, one after the other. Pages that cannot be read (beyond the end of a file, taken
/// away meanwhile, guard pages) read as zeros and are counted. An error means that the process is gone or may not be
/// read.
pub(crate) fn copy(pid: Pid, runs: &[Run], buffer: &mut [u8]) -> io::Result<Missing> {
    let mut missing = Missing::default();
    let mut done = 0;
    // The run being copied, and how far into it.
    let (mut run, mut into) = (0, 0);
    while run < runs.len() {
        let rest = buffer.get_mut(done..).unwrap_or_default();
        let pieces: Vec<libc::iovec> = runs[run..]
            .iter()
            .take(MOST_PIECES)
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
        let local = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        // SAFETY: `local` is memory of ours that nobody else has; the other addresses are the other process's, and the
        // kernel checks them.
        let result = unsafe {
            libc::process_vm_readv(pid, &local, 1, pieces.as_ptr(), pieces.len() as libc::c_ulong, 0)
        };
        let copied = if result >= 0 {
            result as u64
        } else {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EFAULT) => 0,
                Some(libc::EINTR) => continue,
                _ => return Err(error),
            }
        };
        let wanted: u64 = pieces.iter().map(|piece| piece.iov_len as u64).sum();
        // A page is copied whole or not at all.
        let copied = copied.min(wanted) / PAGE * PAGE;
        done += copied as usize;
        advance(runs, &mut run, &mut into, copied);
        if copied < wanted
            && let Some(at) = runs.get(run)
        {
            if missing.pages == 0 {
                missing.first = at.address + into;
            }
            missing.pages += 1;
            if let Some(page) = buffer.get_mut(done..done + PAGE as usize) {
                page.fill(0);
            }
            done += PAGE as usize;
            advance(runs, &mut run, &mut into, PAGE);
        }
    }
    Ok(missing)
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

    #[test]
    fn pages_that_cannot_be_read_are_zeros_and_counted() {
        let page = PAGE as usize;
        // SAFETY: a new mapping, in nobody's way.
        let base = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), 6 * page, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(base, libc::MAP_FAILED);
        for index in 0..6 {
            // SAFETY: within the mapping.
            unsafe { std::ptr::write_bytes(base.cast::<u8>().add(index * page), index as u8 + 1, page) };
        }
        // SAFETY: the third and fourth page of it; nothing refers to them.
        unsafe { libc::munmap(base.byte_add(2 * page), 2 * page) };
        let start = base.addr() as u64;
        let runs = [
            Run { range: 0..3 * PAGE, address: start },
            Run { range: 8 * PAGE..9 * PAGE, address: start + 3 * PAGE },
            Run { range: 10 * PAGE..12 * PAGE, address: start + 4 * PAGE },
        ];
        let mut buffer = vec![9; 6 * page];
        let missing = copy(std::process::id() as Pid, &runs, &mut buffer).unwrap();
        assert_eq!(missing, Missing { pages: 2, first: start + 2 * PAGE });
        let firsts: Vec<u8> = buffer.chunks(page).map(|page| page[0]).collect();
        assert_eq!(firsts, [1, 2, 0, 0, 5, 6]);
        // SAFETY: what is left of the mapping.
        unsafe { libc::munmap(base, 6 * page) };
    }
}
