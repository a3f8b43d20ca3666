//! What CRIU needs to save these processes, and does not have here: found before anything is stopped.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pagehaul_run::Progress;
use rustix::io::Errno;
use rustix::net::sockopt::socket_passcred;

use super::criu::Criu;
use super::programs::is_on_path;
use super::tree::Process;
use super::work_directory::WorkDirectory;
use crate::error::ProcessError;
use crate::procfs::Stat;
use crate::units::Pid;
use crate::{mapping, procfs};

/// The option by which CRIU is told how to keep packets away from connections while they are saved.
const LOCK: &str = "--network-lock";
/// Configuration files of CRIU, which may have that option.
const CONFIGURATION: &str = "/etc/criu/default.conf";
const OWN_CONFIGURATION: &str = ".criu/default.conf";

/// The option by which CRIU is told of a frozen control group, whose processes look as if they could not be interrupted.
const FREEZES: &str = "--freeze-cgroup";
/// How long a thread that cannot be interrupted may wait for one thing.
const STUCK: Duration = Duration::from_secs(1);

/// Arguments that CRIU needs besides, and what to say of that.
#[derive(Debug, Default)]
pub(super) struct Provided {
    pub(super) arguments: Vec<String>,
    pub(super) notes: Vec<String>,
}

/// Refuses processes that CRIU would freeze and then fail to save, for reasons that can be seen before.
pub(super) fn check(
    tree: &[Process],
    criu: &Criu,
    arguments: &[String],
    progress: &Progress,
) -> Result<Provided, ProcessError> {
    let mut provided = Provided::default();
    provided.notes.extend(criu.complaint(progress).map(|what| format!("`criu check` complains: {what}")));
    let Some(root) = tree.first().map(|process| process.pid) else { return Ok(provided) };
    own_tree(tree, root)?;
    scheduling(tree)?;
    if !arguments.iter().any(|argument| argument.starts_with(FREEZES)) {
        uninterruptible(tree, progress)?;
    }
    system_v(tree, root)?;
    inet_sockets(tree, criu, progress)?;
    network_lock(tree, root, criu, arguments, &mut provided, progress)?;
    Ok(provided)
}

/// CRIU refuses a tree with its own process, and what else it finds in pagehaul would be named first.
fn own_tree(tree: &[Process], root: Pid) -> Result<(), ProcessError> {
    let own = std::process::id();
    match tree.iter().any(|process| process.pid.unsigned_abs() == own) {
        true => Err(ProcessError::Refused(format!(
            "pagehaul itself (process {own}) is among the descendants of process {root}; start it outside of them"
        ))),
        false => Ok(()),
    }
}

/// CRIU saves threads with a deadline, and then refuses to restart them (`validate_sched_parm()`, criu/cr-restore.c, up to 4.2).
fn scheduling(tree: &[Process]) -> Result<(), ProcessError> {
    // `SCHED_DEADLINE` and `SCHED_EXT` of include/uapi/linux/sched.h.
    const UNKNOWN: [(i32, &str); 2] = [(6, "SCHED_DEADLINE"), (7, "SCHED_EXT")];
    for process in tree {
        for thread in procfs::threads(process.pid).unwrap_or_default() {
            let policy = Stat::read(process.pid, thread).map_or(0, |stat| stat.policy);
            if let Some((_, name)) = UNKNOWN.iter().find(|(unknown, _)| *unknown == policy) {
                return Err(ProcessError::Refused(format!(
                    "thread {thread} of process {} is scheduled by {name}, with which CRIU saves it and then cannot restart \
                     it; give it another policy before (chrt --other --pid 0 {thread})",
                    process.pid
                )));
            }
        }
    }
    Ok(())
}

/// CRIU waits 10 s for a thread that cannot be interrupted, with all others frozen, and gives up.
fn uninterruptible(tree: &[Process], progress: &Progress) -> Result<(), ProcessError> {
    let begun = Instant::now();
    let mut waiting: Vec<Waiting> = tree.iter().flat_map(|process| Waiting::all(process.pid)).collect();
    while !waiting.is_empty() {
        if begun.elapsed() > STUCK {
            return Err(ProcessError::Refused(waiting[0].sentence()));
        }
        if progress.is_cancelled() {
            return Ok(());
        }
        std::thread::sleep(STUCK / 100);
        waiting.retain(Waiting::still_waits);
    }
    Ok(())
}

/// A thread that waits in the kernel and cannot be interrupted.
#[derive(Debug, PartialEq, Eq)]
struct Waiting {
    pid: Pid,
    thread: Pid,
    /// How often it had given up its CPU: a thread that waits for one thing after another gives it up each time.
    switches: String,
}

impl Waiting {
    fn all(pid: Pid) -> Vec<Self> {
        let threads = procfs::threads(pid).unwrap_or_default();
        threads.into_iter().filter_map(|thread| Self::read(pid, thread)).collect()
    }

    fn read(pid: Pid, thread: Pid) -> Option<Self> {
        let status = procfs::read_text(pid, &format!("task/{thread}/status")).ok()?;
        let waits = status.lines().any(|line| line.starts_with("State:\tD"));
        let switches = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        waits.then(|| Self { pid, thread, switches: switches.trim().to_owned() })
    }

    fn still_waits(&self) -> bool {
        Self::read(self.pid, self.thread).as_ref() == Some(self)
    }

    fn sentence(&self) -> String {
        let Self { pid, thread, .. } = self;
        format!(
            "thread {thread} of process {pid} has been waiting in the kernel for {} s and cannot be interrupted, as for a \
             vforked child that calls exec or ends: CRIU could not freeze it; try again later",
            STUCK.as_secs()
        )
    }
}

/// CRIU saves System V objects with an IPC namespace, not those of its own (`check_sysvipc_map_dump()`, criu/cr-dump.c).
fn system_v(tree: &[Process], root: Pid) -> Result<(), ProcessError> {
    if !shares_namespace(root, "ipc") {
        return Ok(());
    }
    let has_segment = |process: &&Process| {
        let mappings = mapping::read_plain(process.pid, process.pid).unwrap_or_default();
        mappings.iter().any(|mapping| mapping.name.starts_with(b"/SYSV"))
    };
    match tree.iter().find(has_segment) {
        Some(process) => Err(ProcessError::Refused(format!(
            "process {} has System V shared memory, which CRIU saves only of processes with an IPC namespace of their own; \
             start them in one (unshare --ipc, or PrivateIPC=yes in the unit of systemd)",
            process.pid
        ))),
        None => Ok(()),
    }
}

/// Linux 6.16 has no SO_PASSCRED for inet sockets (commit 7d8d93fdde50, "net: Restrict SO_PASS{CRED,PIDFD,SEC} to
/// AF_{UNIX,NETLINK,BLUETOOTH}"), which CRIU before 4.2 reads of every socket (its commit 4b7398595).
fn inet_sockets(tree: &[Process], criu: &Criu, progress: &Progress) -> Result<(), ProcessError> {
    if criu.is_at_least((4, 2)) {
        return Ok(());
    }
    let Ok(socket) = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) else { return Ok(()) };
    if socket_passcred(&socket) != Err(Errno::OPNOTSUPP) {
        return Ok(());
    }
    let Some(process) = tree.iter().find(|process| sockets(process.pid).any(|socket| socket.is_inet()))
    else {
        return Ok(());
    };
    // A distribution may have taken the correction into an older version: it is tried with another process.
    if try_with(criu, socket.into(), progress).unwrap_or(true) {
        return Ok(());
    }
    Err(ProcessError::Refused(format!(
        "process {} has inet sockets, which CRIU {} cannot save on Linux 6.16 and newer; CRIU 4.2 and newer can",
        process.pid, criu.version
    )))
}

/// Whether CRIU can save a process that has a socket.
fn try_with(criu: &Criu, socket: OwnedFd, progress: &Progress) -> Result<bool, ProcessError> {
    let failed = |source: io::Error| ProcessError::Resource { action: "try CRIU", source };
    let work = WorkDirectory::new()?;
    let mut command = Command::new("sleep");
    command.arg("60").stdin(Stdio::from(socket)).stdout(Stdio::null()).stderr(Stdio::null());
    // CRIU saves sessions as a whole.
    let new_session = || match rustix::process::setsid() {
        Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    };
    // SAFETY: it makes one system call, which is allowed between fork and exec.
    let mut process = unsafe { command.pre_exec(new_session) }.spawn().map_err(failed)?;
    let saved = criu.can_save(process.id(), work.path(), progress);
    let _ = process.kill();
    let _ = process.wait();
    saved.map_err(|error| failed(io::Error::other(error)))
}

/// CRIU locks the network of processes that have their own, and TCP connections that are to be kept, by iptables unless it is
/// told to use nftables, for which it needs no program.
fn network_lock(
    tree: &[Process],
    root: Pid,
    criu: &Criu,
    arguments: &[String],
    provided: &mut Provided,
    progress: &Progress,
) -> Result<(), ProcessError> {
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    let (needs, why) = if !shares_namespace(root, "net") {
        (&["ip", "iptables-restore"][..], format!("process {root} has a network namespace of its own"))
    } else if has("--tcp-established")
        && let Some(process) = tree.iter().find(|process| is_connected(process.pid))
    {
        (&["iptables"][..], format!("process {} has TCP connections", process.pid))
    } else {
        return Ok(());
    };
    // The first that is missing: nothing replaces `ip`.
    let Some(missing) = needs.iter().copied().find(|program| !is_on_path(program)) else { return Ok(()) };
    let method = lock_method(arguments);
    let is_by_tables = missing != "ip";
    if is_by_tables && method.as_deref().is_some_and(|method| method != "iptables") {
        return Ok(());
    }
    if is_by_tables && method.is_none() && criu.has_feature("network_lock_nftables", progress) {
        provided.arguments = vec![LOCK.into(), "nftables".into()];
        let note = format!("CRIU locked the network by nftables: {why}, and {missing} is not on PATH");
        provided.notes.push(note);
        return Ok(());
    }
    let or = if is_by_tables { ", or use -- --network-lock nftables if this CRIU can" } else { "" };
    Err(ProcessError::Refused(format!("{why}, for which CRIU needs {missing} on PATH; install it{or}")))
}

/// The method that arguments or CRIU's configuration files choose.
fn lock_method(arguments: &[String]) -> Option<String> {
    let given = arguments.iter().enumerate().rev().find_map(|(index, argument)| {
        match argument.strip_prefix(LOCK)? {
            "" => arguments.get(index + 1).cloned(),
            value => value.strip_prefix('=').map(str::to_owned),
        }
    });
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(OWN_CONFIGURATION));
    let files =
        [Some(PathBuf::from(CONFIGURATION)), home, std::env::var_os("CRIU_CONFIG_FILE").map(PathBuf::from)];
    let in_file = |path: &PathBuf| {
        let text = fs::read_to_string(path).ok()?;
        let line = text.lines().find_map(|line| line.trim().strip_prefix(LOCK.trim_start_matches('-')))?;
        Some(line.trim().to_owned())
    };
    given.or_else(|| files.iter().flatten().find_map(in_file))
}

/// Whether a process is in the same namespace of a kind as this program. If that cannot be seen, it counts as if it were.
fn shares_namespace(pid: Pid, kind: &str) -> bool {
    let of = |path: PathBuf| fs::read_link(path).ok();
    let (theirs, ours) =
        (of(procfs::path(pid, &format!("ns/{kind}"))), of(format!("/proc/self/ns/{kind}").into()));
    theirs.is_none() || ours.is_none() || theirs == ours
}

/// An open socket of a process.
struct Socket {
    inode: u64,
    /// "TCP", "UNIX-STREAM" and so on (Linux 3.4: sockets have it as the attribute system.sockprotoname).
    protocol: Vec<u8>,
}

impl Socket {
    fn is_inet(&self) -> bool {
        [&b"TCP"[..], b"UDP", b"RAW", b"PING", b"MPTCP"].iter().any(|name| self.protocol.starts_with(name))
    }
}

fn sockets(pid: Pid) -> impl Iterator<Item = Socket> {
    let entries = fs::read_dir(procfs::path(pid, "fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let link = fs::read_link(entry.path()).ok()?;
        let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()?;
        Some(Socket { inode, protocol: protocol(&entry.path()) })
    })
}

fn protocol(path: &Path) -> Vec<u8> {
    let mut name = [0; 64];
    let length = rustix::fs::getxattr(path, "system.sockprotoname", &mut name[..]).unwrap_or(0);
    name.get(..length).unwrap_or_default().to_vec()
}

/// Whether a process has a TCP connection that CRIU would keep.
fn is_connected(pid: Pid) -> bool {
    // States of include/net/tcp_states.h that have no connection: closed, listening.
    const WITHOUT: [&str; 2] = ["07", "0A"];
    let mut connected = Vec::new();
    for table in ["net/tcp", "net/tcp6"] {
        let text = procfs::read_text(pid, table).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if let (Some(state), Some(inode)) = (fields.get(3), fields.get(9))
                && !WITHOUT.contains(state)
            {
                connected.extend(inode.parse::<u64>());
            }
        }
    }
    !connected.is_empty() && sockets(pid).any(|socket| connected.contains(&socket.inode))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn sockets_and_connections_of_a_process_are_found() {
        let me = std::process::id() as Pid;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        assert!(sockets(me).any(|socket| socket.is_inet()));
        let _connection = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(is_connected(me));
        assert!(shares_namespace(me, "net") && is_on_path("sh") && !is_on_path("no-such-program"));
    }

    #[test]
    fn the_last_method_of_locking_counts() {
        let method =
            |words: &[&str]| lock_method(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(method(&["--network-lock", "nftables"]).as_deref(), Some("nftables"));
        assert_eq!(method(&["--network-lock=iptables", "--network-lock=skip"]).as_deref(), Some("skip"));
    }
}
