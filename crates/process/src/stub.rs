//! Code that a thread runs if its tracer dies while the thread makes a system call for it.
//!
//! The kernel detaches the tracees of a dead tracer as they are (`exit_ptrace()`, kernel/ptrace.c) and restores no
//! registers. So the injected system call is followed by code that does it. The code and the registers are in the zero
//! bytes between the end of the vDSO's image and the end of its last page, which no program uses. The write gives the
//! process its own copy of that page, as a breakpoint of a debugger does.

use std::io;

use crate::arch::{HOST, StubCode, word};
use crate::ptrace;
use crate::units::Pid;
use crate::vdso::Vdso;

const STUB: &StubCode = &HOST.stub;

/// Bytes of the code and its data.
fn size() -> usize {
    STUB.code.len() + STUB.data_size
}

/// The place of the code in a process.
#[derive(Clone, Copy)]
pub(crate) struct Stub {
    address: u64,
}

impl Stub {
    /// Writes the code to a process whose threads are all stopped, through the thread `tid`. Returns `None` if there is
    /// no room, the kernel forbids the write, the code cannot return to where the thread is, or a thread still runs code that
    /// a killed run left.
    pub(crate) fn place(vdso: &Vdso, tid: Pid, threads: impl Iterator<Item = Pid>) -> Option<Self> {
        let room = vdso.code.get(vdso.code.len().checked_sub(size())?..)?;
        let stub = Self { address: vdso.address + (vdso.code.len() - size()) as u64 };
        if !is_free(room) || stub.data(&ptrace::general_registers(tid).ok()?, 0).is_none() {
            return None;
        }
        if !is_zero(room) {
            let mut threads = threads.filter_map(|tid| ptrace::general_registers(tid).ok());
            if threads.any(|registers| (stub.address..).contains(&word(&registers, HOST.program_counter))) {
                return None;
            }
        }
        stub.write(tid, 0, STUB.code).ok()?;
        Some(stub)
    }

    /// The system call instruction with which the code begins.
    pub(crate) fn call(&self) -> u64 {
        self.address
    }

    /// Sets the state to restore. Returns the registers with which a thread resumes at the code that restores it.
    pub(crate) fn load(&self, tid: Pid, saved: &[u8], mask: u64) -> io::Result<Vec<u8>> {
        let data = self.data(saved, mask).ok_or(io::ErrorKind::Unsupported)?;
        self.write(tid, STUB.code.len() as u64, &data)?;
        let mut registers = saved.to_vec();
        (HOST.enter)(&mut registers, self.address + STUB.restore);
        Ok(registers)
    }

    fn data(&self, saved: &[u8], mask: u64) -> Option<Vec<u8>> {
        (STUB.data)(saved, mask, self.address + STUB.code.len() as u64)
    }

    /// Clears the code, in the process or a copy of it.
    pub(crate) fn clear(&self, tid: Pid) -> io::Result<()> {
        // From the end: see `is_free`.
        (0..size() / 8).rev().try_for_each(|word| ptrace::poke(tid, self.address + word as u64 * 8, 0))
    }

    fn write(&self, tid: Pid, offset: u64, bytes: &[u8]) -> io::Result<()> {
        for (word, at) in bytes.as_chunks::<8>().0.iter().zip((self.address + offset..).step_by(8)) {
            ptrace::poke(tid, at, u64::from_ne_bytes(*word))?;
        }
        Ok(())
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Whether bytes at the end of the vDSO are zeros, or what a run that was killed has left. There is data only while the
/// code is whole.
fn is_free(room: &[u8]) -> bool {
    let Some((code, data)) = room.split_at_checked(STUB.code.len()) else { return false };
    let mut words = code.chunks(8).zip(STUB.code.chunks(8));
    words.all(|(word, ours)| word == ours || is_zero(word)) && (code == STUB.code || is_zero(data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_runs_leave_is_free_and_all_else_is_not() {
        let mut room = vec![0; size()];
        assert!(is_free(&room));
        for word in 0..size() / 8 {
            // A killed write, and a killed clear.
            if let Some(code) = STUB.code.get(word * 8..word * 8 + 8) {
                room[word * 8..word * 8 + 8].copy_from_slice(code);
            } else {
                room[word * 8] = 1;
            }
            assert!(is_free(&room), "{word}");
        }
        for word in (0..size() / 8).rev() {
            room[word * 8..word * 8 + 8].fill(0);
            assert!(is_free(&room), "{word}");
        }
        for at in 0..size() {
            let mut room = vec![0; size()];
            room[at] = 0xff;
            assert!(!is_free(&room), "{at}");
        }
    }
}
