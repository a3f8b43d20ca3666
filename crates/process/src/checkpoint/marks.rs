//! Keeping the marks of writes between two checkpoints.
//!
//! The marks live as long as the descriptors of userfaultfd. Between two checkpoints a holder has them: a process of this program
//! that waits for the next checkpoint, on a socket whose name has the number of the root process and the time at which it started.
//!
//! The next checkpoint takes them, and the holder ends. They are handed over once only: from then on, pages are marked as unchanged
//! that were copied by a checkpoint which may never be completed. Only a checkpoint that is on the disk has a new holder started, for
//! its own ID.

use std::fs;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg, sockopt::socket_peercred,
};
use rustix::process::{PidfdFlags, geteuid, pidfd_open, setsid};
use serde::{Deserialize, Serialize};

use super::tree::Process;
use super::work_directory::accept;
use crate::units::Pid;
use crate::{oom, procfs};

/// First argument of this program where it is started as the holder of marks. It has to call [`hold_marks`] then.
pub const MARKS_HELPER: &str = "hold-marks";
/// Descriptors at most: the kernel transfers no more at a time (`SCM_MAX_FD`).
const MOST: usize = 253;
/// Bytes of a description at most.
const LONGEST: u32 = 64 << 20;
/// How long the other end may take: it is a new process, perhaps on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a checkpoint waits for a holder that is there.
const PATIENCE_WITH_HOLDER: Duration = Duration::from_secs(5);

/// The marks of the processes of a tree, since a checkpoint.
pub(super) struct Marks {
    /// Its ID.
    pub(super) checkpoint: String,
    pub(super) processes: Vec<Marked>,
}

/// A process whose writes are marked.
pub(super) struct Marked {
    pub(super) pid: Pid,
    /// When it started, which distinguishes it from a later one with the same PID.
    pub(super) start: u64,
    /// The mappings that were tracked when the checkpoint was taken.
    pub(super) tracked: Vec<Range<u64>>,
    pub(super) descriptor: OwnedFd,
}

/// What is sent with the descriptors.
#[derive(Serialize, Deserialize)]
struct Message {
    checkpoint: String,
    root: (Pid, u64),
    processes: Vec<Described>,
}

/// A process, without its descriptor.
#[derive(Serialize, Deserialize)]
struct Described {
    pid: Pid,
    start: u64,
    tracked: Vec<(u64, u64)>,
}

impl Marks {
    /// Takes the marks of a tree from their holder, which ends. None if there is no holder.
    pub(super) fn take(root: &Process) -> Option<Self> {
        let socket = UnixStream::connect_addr(&address(root.identity()).ok()?).ok()?;
        let peer = socket_peercred(&socket).ok()?.uid;
        if !peer.is_root() && peer != geteuid() {
            return None;
        }
        receive(&socket, PATIENCE_WITH_HOLDER).ok().map(|(marks, _)| marks)
    }

    /// Has a new process hold the marks. It ends when the root process does.
    pub(super) fn hold(self, root: &Process) -> io::Result<()> {
        if self.processes.is_empty() || self.processes.len() > MOST {
            return Err(io::Error::other(format!(
                "the marks of {} processes cannot be kept: 1 to {MOST} can",
                self.processes.len()
            )));
        }
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(std::env::current_exe()?);
        // The number shows in ps whose marks they are.
        command.args([MARKS_HELPER, &root.identity().0.to_string()]).current_dir("/").env_clear();
        command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::null());
        // It lives on, and ending it would free next to nothing.
        oom::end_no_sooner(&mut command);
        // SAFETY: two system calls, which may be made between fork and exec. It is to outlive the terminal.
        unsafe {
            command.pre_exec(|| {
                close_on_exec()?;
                match setsid() {
                    Ok(_) | Err(Errno::PERM) => Ok(()),
                    Err(error) => Err(error.into()),
                }
            })
        };
        let mut child = command.spawn()?;
        // Our copy of its end, by which it would seem alive.
        drop(command);
        let sent = send(&ours, &self, root.identity()).and_then(|()| {
            ours.set_read_timeout(Some(PATIENCE))?;
            (&ours).read_exact(&mut [0])
        });
        if sent.is_err() {
            let _ = child.kill();
            let _ = child.wait();
        }
        sent
    }
}

/// Has `execve` close all descriptors above standard error. What the caller left open, such as a lock or a pipe, would stay open as
/// long as the holder lives. Linux 5.11 has the flag, and marks need 6.7.
fn close_on_exec() -> io::Result<()> {
    // SAFETY: changes a flag of descriptors only, and no memory.
    match unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The process that holds marks of the tree of `root`, found by its command line.
pub(super) fn holder(root: Pid) -> Option<Pid> {
    let end = format!("\0{MARKS_HELPER}\0{root}\0");
    let pids =
        fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.into_iter()
        .find(|&pid: &Pid| procfs::read(pid, "cmdline").is_ok_and(|line| line.ends_with(end.as_bytes())))
}

/// The name of the holder's socket.
fn address((pid, start): (Pid, u64)) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("pagehaul-marks-{pid}-{start}"))
}

/// The holder: gets the marks on standard input, and gives them to the next checkpoint.
pub fn hold_marks() -> io::Result<()> {
    let input = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let (mut marks, root) = receive(&input, PATIENCE)?;
    let listener = UnixListener::bind_addr(&address(root)?)?;
    listener.set_nonblocking(true)?;
    let open = |(pid, _): (Pid, u64)| -> io::Result<OwnedFd> {
        let pid = rustix::process::Pid::from_raw(pid).ok_or(Errno::SRCH)?;
        Ok(pidfd_open(pid, PidfdFlags::empty())?)
    };
    let process = open(root)?;
    // The number might have become another's before the descriptor was open.
    if !Process::is(root) {
        return Ok(());
    }
    (&input).write_all(&[1])?;
    drop(input);
    loop {
        let mut events = [PollFd::new(&process, PollFlags::IN), PollFd::new(&listener, PollFlags::IN)];
        match poll(&mut events, None) {
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        if !events[0].revents().is_empty() {
            return Ok(());
        }
        let Some(socket) = accept(&listener)? else { continue };
        // The next holder has the same name.
        drop(listener);
        marks.processes.retain(|process| Process::is((process.pid, process.start)));
        return send(&socket, &marks, root);
    }
}

fn send(socket: &UnixStream, marks: &Marks, root: (Pid, u64)) -> io::Result<()> {
    let ranges = |marked: &Marked| marked.tracked.iter().map(|range| (range.start, range.end)).collect();
    let processes = marks.processes.iter().map(|marked| Described {
        pid: marked.pid,
        start: marked.start,
        tracked: ranges(marked),
    });
    let message = Message { checkpoint: marks.checkpoint.clone(), root, processes: processes.collect() };
    let text = serde_json::to_vec(&message)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut buffer = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> =
        marks.processes.iter().map(|marked| marked.descriptor.as_fd()).collect();
    if !descriptors.is_empty() && !buffer.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    socket.set_write_timeout(Some(PATIENCE))?;
    let length = (text.len() as u32).to_le_bytes();
    let sent = sendmsg(socket, &[IoSlice::new(&length)], &mut buffer, SendFlags::NOSIGNAL)?;
    if sent != length.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    (&mut &*socket).write_all(&text)
}

/// Receives marks, and the number of the root process with the time it started.
fn receive(socket: &UnixStream, patience: Duration) -> io::Result<(Marks, (Pid, u64))> {
    socket.set_read_timeout(Some(patience))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut buffer = RecvAncillaryBuffer::new(&mut space);
    let mut length = [0; 4];
    let received =
        recvmsg(socket, &mut [IoSliceMut::new(&mut length)], &mut buffer, RecvFlags::CMSG_CLOEXEC)?;
    let mut descriptors = Vec::new();
    for message in buffer.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let length = u32::from_le_bytes(length);
    if received.bytes != 4 || length > LONGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut text = vec![0; length as usize];
    (&mut &*socket).read_exact(&mut text)?;
    let Message { checkpoint, root, processes } = serde_json::from_slice(&text)?;
    if processes.len() != descriptors.len() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let processes = processes.into_iter().zip(descriptors).map(|(process, descriptor)| Marked {
        pid: process.pid,
        start: process.start,
        tracked: process.tracked.into_iter().map(|(start, end)| start..end).collect(),
        descriptor,
    });
    Ok((Marks { checkpoint, processes: processes.collect() }, root))
}
