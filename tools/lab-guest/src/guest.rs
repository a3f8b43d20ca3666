//! A guest of KVM for the scenario `owners`, on machines whose CPU has virtualization: QEMU emulates that of AMD.

use crate::system::check;
use crate::{Result, notify_host};
use lab_guest::plan::message;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

const DEVICE: &str = "/dev/kvm";
/// `KVM_CREATE_VM`, `KVM_CREATE_VCPU`, `KVM_SET_USER_MEMORY_REGION` and `KVM_RUN` of linux/kvm.h.
const CREATE_VM: u64 = 0xae01;
const CREATE_VCPU: u64 = 0xae41;
const SET_MEMORY: u64 = 0x4020_ae46;
const RUN: u64 = 0xae80;
/// Where a processor starts: the last 64 KiB below 4 GiB, and in them. Memory that it writes to is in the first.
const RESET: u64 = 0xffff_0000;
const ENTRY: usize = 0xfff0;
const SIZE: usize = 0x1_0000;
/// `mov [0x500], al` and `hlt`.
const CODE: [u8; 4] = [0xa2, 0x00, 0x05, 0xf4];

/// Runs a guest that writes to one page and halts. What is returned keeps it. There is none without KVM.
pub fn run() -> Result<Vec<OwnedFd>> {
    if !cfg!(target_arch = "x86_64") || !Path::new(DEVICE).exists() {
        return Ok(Vec::new());
    }
    let kvm = File::options().read(true).write(true).open(DEVICE).map_err(|e| format!("{DEVICE}: {e}"))?;
    let machine = owned(control(kvm.as_raw_fd(), CREATE_VM, 0, "KVM_CREATE_VM")?);
    for (slot, start) in [(0_u64, RESET), (1, 0)] {
        let memory = memory()?;
        // struct kvm_userspace_memory_region: slot and flags, guest address, size, address.
        let region = [slot, start, SIZE as u64, memory as u64];
        control(machine.as_raw_fd(), SET_MEMORY, region.as_ptr() as u64, "KVM_SET_USER_MEMORY_REGION")?;
    }
    let processor = owned(control(machine.as_raw_fd(), CREATE_VCPU, 0, "KVM_CREATE_VCPU")?);
    control(processor.as_raw_fd(), RUN, 0, "KVM_RUN")?;
    notify_host(message::STEP, "ran a guest of KVM");
    Ok(vec![kvm.into(), machine, processor])
}

/// Memory of a guest, which has the code where a processor starts.
fn memory() -> Result<*mut u8> {
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping of no file.
    let memory = unsafe { libc::mmap(std::ptr::null_mut(), SIZE, access, kind, -1, 0) };
    check(memory as i64, "mmap")?;
    // SAFETY: the mapping has SIZE bytes, and nothing else knows it.
    unsafe { memory.cast::<u8>().add(ENTRY).copy_from_nonoverlapping(CODE.as_ptr(), CODE.len()) };
    Ok(memory.cast())
}

fn control(file: RawFd, request: u64, argument: u64, what: &str) -> Result<i64> {
    // SAFETY: a number, or the address of a structure that outlives the call.
    check(unsafe { libc::syscall(libc::SYS_ioctl, file, request, argument) }, what)
}

fn owned(descriptor: i64) -> OwnedFd {
    // SAFETY: the descriptor is new and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(descriptor as RawFd) }
}
