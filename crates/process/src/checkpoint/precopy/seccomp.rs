//! Watching CRIU's system calls by seccomp's user notifications (Linux 5.5): the kernel asks pagehaul, which answers in its
//! place or lets it go on. CRIU itself stays as it is.

use std::io::{self, IoSlice};
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, seccomp_data, sock_filter};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::arch::HOST;
use crate::checkpoint::wire;
use crate::pagemap::PAGEMAP_SCAN;
use crate::units::Pid;

/// `PTRACE_SEIZE` (include/uapi/linux/ptrace.h).
const SEIZE: u32 = 0x4206;
/// `__AUDIT_ARCH_64BIT | __AUDIT_ARCH_LE` (include/uapi/linux/audit.h).
const LITTLE_64: u32 = 0xc000_0000;
/// `SECCOMP_IOCTL_NOTIF_RECV` and `SECCOMP_IOCTL_NOTIF_SEND`.
const RECEIVE: libc::c_ulong = 0xc050_2100;
const SEND: libc::c_ulong = 0xc018_2101;

/// The filter: asks before PAGEMAP_SCAN, and before a process is seized.
type Filter = [sock_filter; 13];

/// The filter that asks before `root` is seized.
fn filter(root: Pid) -> Filter {
    let statement = |code: u32, k: u32, jt: u8, jf: u8| sock_filter { code: code as u16, jt, jf, k };
    let load = |offset: usize| statement(BPF_LD | BPF_W | BPF_ABS, offset as u32, 0, 0);
    let equals = |value: u32, jt: u8, jf: u8| statement(BPF_JMP | BPF_JEQ | BPF_K, value, jt, jf);
    // The lower halves of the arguments, which come first.
    let argument = |index: usize| load(offset_of!(seccomp_data, args) + index * 8);
    [
        load(offset_of!(seccomp_data, arch)),
        equals(LITTLE_64 | u32::from(HOST.elf_machine), 0, 9),
        load(offset_of!(seccomp_data, nr)),
        equals(libc::SYS_ioctl as u32, 3, 0),
        equals(libc::SYS_ptrace as u32, 0, 6),
        argument(0),
        equals(SEIZE, 2, 4),
        // ioctl
        argument(1),
        equals(PAGEMAP_SCAN as u32, 3, 2),
        // ptrace
        argument(1),
        equals(root.cast_unsigned(), 1, 0),
        statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
        statement(BPF_RET | BPF_K, libc::SECCOMP_RET_USER_NOTIF, 0, 0),
    ]
}

/// What a program that is to be watched does between fork and exec.
pub(crate) struct Watched {
    filter: Filter,
    socket: UnixStream,
}

/// Where the program sends the descriptor for its notifications.
pub(crate) struct Watching(UnixStream);

/// Prepares the watching of a program that is going to seize `root`.
pub(crate) fn watch(root: Pid) -> io::Result<(Watched, Watching)> {
    let (socket, ours) = UnixStream::pair()?;
    Ok((Watched { filter: filter(root), socket }, Watching(ours)))
}

impl Watched {
    /// Installs the filter in the calling process, and sends the descriptor. Allocates nothing, so that it may be called
    /// between fork and exec. If the system allows no filter, the program runs without it.
    pub(crate) fn install(&self) {
        let program = libc::sock_fprog {
            len: self.filter.len() as libc::c_ushort,
            filter: self.filter.as_ptr().cast_mut(),
        };
        // SAFETY: the kernel reads the program, whose length is that of the filter.
        let descriptor = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
                &raw const program,
            )
        };
        if descriptor >= 0 {
            // SAFETY: it was just made and is owned by nothing else.
            let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor as i32) };
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut buffer = SendAncillaryBuffer::new(&mut space);
            let descriptors = [descriptor.as_fd()];
            if buffer.push(SendAncillaryMessage::ScmRights(&descriptors)) {
                let _ = sendmsg(&self.socket, &[IoSlice::new(&[0])], &mut buffer, SendFlags::NOSIGNAL);
            }
        }
    }
}

impl Watching {
    /// Takes the notifications of the program, which has started. Fails if the system allows no filter.
    pub(crate) fn notifications(self) -> io::Result<Notifications> {
        wire::receive_pipe(&self.0).map(Notifications)
    }
}

/// A system call that waits for an answer.
pub(crate) struct Call {
    id: u64,
    pub(crate) pid: Pid,
    pub(crate) number: libc::c_long,
    pub(crate) arguments: [u64; 6],
}

/// How a system call ends.
pub(crate) enum Answer {
    /// The kernel makes it.
    GoOn,
    /// It returns this number.
    Returns(i64),
    Fails(i32),
}

/// The notifications of a watched program and its children.
pub(crate) struct Notifications(OwnedFd);

impl Notifications {
    /// Waits for the next system call. None once the program and its children have ended.
    pub(crate) fn next(&self) -> io::Result<Option<Call>> {
        loop {
            let mut sockets = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut sockets, None) {
                Err(Errno::INTR) => continue,
                polled => polled?,
            };
            if !sockets[0].revents().contains(PollFlags::IN) {
                return Ok(None);
            }
            // SAFETY: all zeros is a valid struct, and what the kernel demands.
            let mut notification: libc::seccomp_notif = unsafe { MaybeUninit::zeroed().assume_init() };
            // SAFETY: the kernel writes one notification.
            if unsafe { libc::ioctl(self.0.as_raw_fd(), RECEIVE as _, &raw mut notification) } == 0 {
                let libc::seccomp_notif { id, pid, data, .. } = notification;
                let (number, arguments) = (libc::c_long::from(data.nr), data.args);
                return Ok(Some(Call { id, pid: pid as Pid, number, arguments }));
            }
            match io::Error::last_os_error() {
                // ENOENT: a signal has interrupted the call.
                error if matches!(error.raw_os_error(), Some(libc::EINTR | libc::ENOENT)) => {}
                error => return Err(error),
            }
        }
    }

    /// Ends a call. Fails if the program was killed or interrupted meanwhile, which it then makes again.
    pub(crate) fn answer(&self, call: &Call, answer: &Answer) -> io::Result<()> {
        let (val, error, flags) = match *answer {
            Answer::GoOn => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
            Answer::Returns(value) => (value, 0, 0),
            Answer::Fails(number) => (0, -number, 0),
        };
        let mut response = libc::seccomp_notif_resp { id: call.id, val, error, flags };
        // SAFETY: the kernel reads one response.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), SEND as _, &raw mut response) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
