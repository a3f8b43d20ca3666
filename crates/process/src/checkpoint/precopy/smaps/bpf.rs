//! The few commands of bpf(2) that run an iterator.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::units::Pid;

/// `BPF_PROG_LOAD`, `BPF_LINK_CREATE` and `BPF_ITER_CREATE` of include/uapi/linux/bpf.h.
const LOAD: libc::c_int = 5;
const LINK: libc::c_int = 28;
const ITERATE: libc::c_int = 33;
/// `BPF_PROG_TYPE_TRACING` and `BPF_TRACE_ITER`.
const TRACING: u32 = 26;
const ITERATOR: u32 = 28;
/// Bytes of the part of `union bpf_attr` for programs that is used here, and where its parts are.
const ATTRIBUTES: usize = 120;

/// One instruction, `struct bpf_insn`.
pub(super) type Instruction = [u8; 8];

/// Makes an instruction.
pub(super) fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    let [o0, o1] = offset.to_le_bytes();
    let [i0, i1, i2, i3] = immediate.to_le_bytes();
    [code, from << 4 | to, o0, o1, i0, i1, i2, i3]
}

/// Loads a program that is called for each object of the iterator `target`, a function's type in the kernel's BTF. `license` is
/// the program's, by which the kernel decides which helpers it may call.
pub(super) fn load(program: &[Instruction], license: &CStr, target: u32) -> io::Result<OwnedFd> {
    let mut attributes = [0; ATTRIBUTES];
    put(&mut attributes, 0, TRACING);
    put(&mut attributes, 4, program.len() as u32);
    put_address(&mut attributes, 8, program.as_ptr());
    put_address(&mut attributes, 16, license.as_ptr());
    put(&mut attributes, 68, ITERATOR);
    put(&mut attributes, 108, target);
    // SAFETY: program and license are where the attributes say, and live through the call.
    unsafe { call(LOAD, &mut attributes) }
}

/// An iterator over what one process has, which is read like a file.
pub(super) fn iterate(program: BorrowedFd<'_>, pid: Pid) -> io::Result<OwnedFd> {
    // `union bpf_iter_link_info`: the task's number.
    let mut which = [0; 16];
    put(&mut which, 0, pid.cast_unsigned());
    let mut attributes = [0; 32];
    put(&mut attributes, 0, program.as_raw_fd().cast_unsigned());
    put(&mut attributes, 8, ITERATOR);
    put_address(&mut attributes, 16, which.as_ptr());
    put(&mut attributes, 24, which.len() as u32);
    // SAFETY: the kernel reads what the attributes point at, which lives through the call.
    let link = unsafe { call(LINK, &mut attributes) }?;
    let mut attributes = [0; 8];
    put(&mut attributes, 0, link.as_raw_fd().cast_unsigned());
    // SAFETY: the attributes have no address.
    unsafe { call(ITERATE, &mut attributes) }
}

fn put<const N: usize>(attributes: &mut [u8; N], at: usize, value: u32) {
    if let Some(room) = attributes.get_mut(at..at + 4) {
        room.copy_from_slice(&value.to_ne_bytes());
    }
}

fn put_address<T, const N: usize>(attributes: &mut [u8; N], at: usize, address: *const T) {
    if let Some(room) = attributes.get_mut(at..at + 8) {
        room.copy_from_slice(&(address.expose_provenance() as u64).to_ne_bytes());
    }
}

/// # Safety
/// What the attributes point at has to be as the command expects it.
unsafe fn call(command: libc::c_int, attributes: &mut [u8]) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads as many bytes of the attributes as there are, and by the caller's promise what they point at.
    let descriptor =
        unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_mut_ptr(), attributes.len()) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just made and is owned by nothing else.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}
