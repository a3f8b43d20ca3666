//! Memory whose pages do not say whose they are, for the scenario `owners`: ring buffers, sockets, io_uring, a guest of KVM, zram, and what
//! a module leaks. `tools/lab/oracle/owners.py` expects the sizes.

use crate::guest;
use crate::kernel::load_module;
use crate::system::{check, mount, set};
use crate::{Result, notify_host};
use lab_guest::plan::{SCENARIO_MODULE, message};
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

const TRACEFS: &str = "/trace";
/// Sizes of the ring buffers in KiB: the first instance's and another's. There is one CPU.
const RING: u32 = 50 << 10;
const INSTANCE: u32 = 4 << 10;
/// Bytes sent to a socket that nobody reads. Of each packet the kernel takes the first 16 KiB, or less, from a slab cache.
const SENT: usize = 12 << 20;
const PACKET: usize = 46 << 10;
/// Entries of a ring of io_uring: of 64 bytes, and twice as many of 16 bytes.
const ENTRIES: libc::c_ulong = 32768;
const ZRAM: usize = 6 << 20;

/// Takes it. What is returned keeps it.
pub fn take() -> Result<Vec<OwnedFd>> {
    ring_buffers()?;
    let mut held: Vec<OwnedFd> = sockets()?.into();
    held.push(io_uring()?);
    held.extend(guest::run()?);
    zram()?;
    if Path::new(SCENARIO_MODULE).exists() {
        load_module(Path::new(SCENARIO_MODULE), "scene=leak")?;
        notify_host(message::STEP, "leaked by a module");
    }
    Ok(held)
}

fn ring_buffers() -> Result<()> {
    mount("none", TRACEFS, "tracefs", "")?;
    set(&format!("{TRACEFS}/buffer_size_kb"), &RING.to_string())?;
    let instance = format!("{TRACEFS}/instances/scene");
    fs::create_dir(&instance).map_err(|e| format!("{instance}: {e}"))?;
    set(&format!("{instance}/buffer_size_kb"), &INSTANCE.to_string())
}

fn sockets() -> Result<[OwnedFd; 2]> {
    let (mut from, to) = UnixStream::pair().map_err(|e| format!("socketpair: {e}"))?;
    // The kernel doubles it.
    let room = SENT as libc::c_int;
    // SAFETY: an int and its size.
    let result = unsafe {
        libc::setsockopt(
            from.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUFFORCE,
            (&raw const room).cast(),
            size_of_val(&room) as libc::socklen_t,
        )
    };
    check(result.into(), "SO_SNDBUFFORCE")?;
    let packet = vec![0x5c; PACKET];
    for _ in 0..SENT / PACKET {
        from.write_all(&packet).map_err(|e| format!("writing to a socket: {e}"))?;
    }
    Ok([from.into(), to.into()])
}

fn io_uring() -> Result<OwnedFd> {
    const SETUP: libc::c_long = 425;
    // struct io_uring_params.
    let mut parameters = [0_u8; 120];
    // SAFETY: the kernel reads and writes as many bytes.
    let ring = unsafe { libc::syscall(SETUP, ENTRIES, parameters.as_mut_ptr()) };
    let ring = check(ring, "io_uring_setup")?;
    // SAFETY: the descriptor is new and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(ring as i32) })
}

/// Writes to a compressed disk what cannot be compressed.
fn zram() -> Result<()> {
    set("/sys/block/zram0/disksize", "33554432")?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let noise: Vec<u8> = std::iter::from_fn(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Some(state.to_le_bytes())
    })
    .flatten()
    .take(ZRAM)
    .collect();
    let write = || {
        let mut disk = File::options().write(true).open("/dev/zram0")?;
        disk.write_all(&noise)?;
        disk.sync_all()
    };
    write().map_err(|e| format!("/dev/zram0: {e}"))?;
    let used = fs::read_to_string("/sys/block/zram0/mm_stat").unwrap_or_default();
    // The third number: bytes of memory.
    notify_host(message::STEP, &format!("zram {}", used.split_whitespace().nth(2).unwrap_or_default()));
    Ok(())
}
