//! Saves the raw vmcore to its disk: byte 0 of the vmcore is byte 0 of the disk.

use crate::Result;
use crate::system::disk;
use lab_guest::plan;
use lab_guest::results::Saved;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::Instant;

const CHUNK: usize = 4 << 20;
/// O_DIRECT needs memory, offsets and lengths that are multiples of the sector size.
const ALIGN: usize = 4096;
/// Blocks of this size that hold only zeros are not written: the disk is a sparse file.
const BLOCK: usize = 64 << 10;

/// Copies `length` bytes of /proc/vmcore to the vmcore disk, except blocks of zeros.
pub fn save(length: u64) -> Result<Saved> {
    let start = Instant::now();
    let vmcore = File::open("/proc/vmcore").map_err(|e| format!("/proc/vmcore: {e}"))?;
    let device = disk(plan::disk::VMCORE)?;
    let target = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(&device)
        .map_err(|e| format!("{}: {e}", device.display()))?;
    let mut space = vec![0_u8; CHUNK + ALIGN];
    let skip = space.as_ptr().align_offset(ALIGN);
    let buffer = space.get_mut(skip..skip + CHUNK).ok_or("no aligned buffer")?;
    let mut saved = Saved { mapped: true, ..Saved::default() };
    let mut offset = 0;
    while offset < length {
        let count = usize::try_from(length - offset).unwrap_or(CHUNK).min(CHUNK);
        let chunk = buffer.get_mut(..count).unwrap_or_default();
        if saved.mapped {
            // Some kernels refuse mmap: read from here.
            saved.mapped = copy_mapped(&vmcore, offset, chunk).is_ok();
        }
        if !saved.mapped {
            vmcore.read_exact_at(chunk, offset).map_err(|e| format!("/proc/vmcore at {offset}: {e}"))?;
        }
        let padded = count.next_multiple_of(ALIGN);
        buffer.get_mut(count..padded).unwrap_or_default().fill(0);
        let mut at = offset;
        for piece in buffer.get(..padded).unwrap_or_default().chunks(BLOCK) {
            if piece.iter().any(|byte| *byte != 0) {
                target.write_all_at(piece, at).map_err(|e| format!("{} at {at}: {e}", device.display()))?;
                saved.written += piece.len() as u64;
            }
            at += piece.len() as u64;
        }
        offset += count as u64;
    }
    target.sync_all().map_err(|e| format!("{}: {e}", device.display()))?;
    saved.seconds = start.elapsed().as_secs_f64();
    Ok(saved)
}

fn copy_mapped(vmcore: &File, offset: u64, into: &mut [u8]) -> io::Result<()> {
    let length = into.len();
    let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
    // SAFETY: a new read-only mapping at an address of the kernel's choice.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            vmcore.as_raw_fd(),
            offset,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping covers `length` bytes, nothing writes to the crashed kernel's memory, and it is unmapped
    // after its last use.
    unsafe {
        std::ptr::copy_nonoverlapping(address.cast::<u8>(), into.as_mut_ptr(), length);
        libc::munmap(address, length);
    }
    Ok(())
}
