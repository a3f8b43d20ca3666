//! Switching the kernel's perf events on before processes are frozen.
//!
//! CRIU ends its code in a process by a hardware breakpoint, which is an event. For the first event of a task the kernel switches events
//! on, and waits for an RCU grace period then (`account_event()`, kernel/events/core.c; commit 9107c89e269d, Linux 4.5): 10 to 16 ms, in
//! which the processes are frozen.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// `PERF_TYPE_SOFTWARE` and `PERF_COUNT_SW_DUMMY` of include/uapi/linux/perf_event.h: it counts nothing.
const SOFTWARE: u64 = 1;
const DUMMY: u64 = 9;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;
/// `PERF_ATTR_SIZE_VER0`: type and size, config, and what is left zero.
const WORDS: usize = 8;

/// An event of this thread. While it is open, events are on.
pub(super) fn switch_on() -> io::Result<OwnedFd> {
    let mut attributes = [0u64; WORDS];
    attributes[0] = SOFTWARE | (size_of_val(&attributes) as u64) << 32;
    attributes[1] = DUMMY;
    let (this_thread, any_cpu, no_group) = (0, -1, -1);
    // SAFETY: the attributes are as long as they say, and the kernel only reads them.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            attributes.as_ptr(),
            this_thread,
            any_cpu,
            no_group,
            CLOSE_ON_EXEC,
        )
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just made, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_takes_the_event_or_forbids_all() {
        let forbids = |error: &io::Error| {
            matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::ENOSYS | libc::ENOENT))
        };
        assert!(switch_on().as_ref().err().is_none_or(forbids));
    }
}
