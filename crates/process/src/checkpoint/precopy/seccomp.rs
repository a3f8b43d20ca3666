//! Watching CRIU's system calls by seccomp's user notifications (Linux 5.5): the kernel asks pagehaul, which answers in its
//! place or lets it go on. CRIU itself stays as it is.

use std::io::{self, IoSlice};
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W, seccomp_data, sock_filter,
};
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
/// `SECCOMP_IOCTL_NOTIF_ADDFD` (Linux 5.9); that it also answers came with 5.14.
const ADD: libc::c_ulong = 0x4018_2103;

/// Flags with which a file is not only read: those of openat(2) that CRIU uses for other than files of /proc.
const NOT_FOR_READING: u32 =
    (libc::O_ACCMODE | libc::O_CREAT | libc::O_PATH | libc::O_DIRECTORY).cast_unsigned();

/// The filter: asks before PAGEMAP_SCAN, before `root` is seized, and, if `opens`, before a file in a directory is opened for
/// reading.
fn filter(root: Pid, opens: bool) -> Vec<sock_filter> {
    let statement = |code: u32, k: u32, jt: u8, jf: u8| sock_filter { code: code as u16, jt, jf, k };
    let load = |offset: usize| statement(BPF_LD | BPF_W | BPF_ABS, offset as u32, 0, 0);
    let equals = |value: u32, jt: u8, jf: u8| statement(BPF_JMP | BPF_JEQ | BPF_K, value, jt, jf);
    // The lower halves of the arguments, which come first.
    let argument = |index: usize| load(offset_of!(seccomp_data, args) + index * 8);
    let open = if opens { libc::SYS_openat as u32 } else { u32::MAX };
    vec![
        load(offset_of!(seccomp_data, arch)),
        equals(LITTLE_64 | u32::from(HOST.elf_machine), 0, 15),
        load(offset_of!(seccomp_data, nr)),
        equals(libc::SYS_ioctl as u32, 4, 0),
        equals(open, 5, 0),
        equals(libc::SYS_ptrace as u32, 0, 11),
        argument(0),
        equals(SEIZE, 7, 9),
        // ioctl
        argument(1),
        equals(PAGEMAP_SCAN as u32, 8, 7),
        // openat
        argument(0),
        equals(libc::AT_FDCWD.cast_unsigned(), 5, 0),
        argument(2),
        statement(BPF_ALU | BPF_AND | BPF_K, NOT_FOR_READING, 0, 0),
        equals(0, 3, 2),
        // ptrace
        argument(1),
        equals(root.cast_unsigned(), 1, 0),
        statement(BPF_RET | BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
        statement(BPF_RET | BPF_K, libc::SECCOMP_RET_USER_NOTIF, 0, 0),
    ]
}

/// What a program that is to be watched does between fork and exec.
pub(crate) struct Watched {
    filter: Vec<sock_filter>,
    socket: UnixStream,
}

/// Where the program sends the descriptor for its notifications.
pub(crate) struct Watching(UnixStream);

/// Prepares the watching of a program that is going to seize `root`, and of what it `opens`.
pub(crate) fn watch(root: Pid, opens: bool) -> io::Result<(Watched, Watching)> {
    let (socket, ours) = UnixStream::pair()?;
    Ok((Watched { filter: filter(root, opens), socket }, Watching(ours)))
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
        // The program has ended the connection without one, or has not started.
        let refused = || io::Error::other("a filter for them needs CAP_SYS_ADMIN");
        wire::receive_pipe(&self.0).map(Notifications).map_err(|_| refused())
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
    /// It returns a descriptor of this file.
    Opens(OwnedFd),
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
            Answer::Opens(ref file) => return self.add(call, file),
        };
        let mut response = libc::seccomp_notif_resp { id: call.id, val, error, flags };
        // SAFETY: the kernel reads one response.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), SEND as _, &raw mut response) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Ends a call with a descriptor of a file, or, if the kernel cannot, lets it go on.
    fn add(&self, call: &Call, file: &OwnedFd) -> io::Result<()> {
        let mut added = libc::seccomp_notif_addfd {
            id: call.id,
            flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
            srcfd: file.as_raw_fd().cast_unsigned(),
            newfd: 0,
            newfd_flags: 0,
        };
        // SAFETY: the kernel reads one request.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), ADD as _, &raw mut added) } {
            0.. => Ok(()),
            _ => self.answer(call, &Answer::GoOn),
        }
    }
}
