//! Reading /proc.

use std::fs;
use std::io;
use std::path::PathBuf;

use crate::error::ProcessError;
use crate::units::Pid;

/// `PF_KTHREAD` of include/linux/sched.h, in the flags of /proc/PID/stat.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// The path of a file of a process.
pub(crate) fn path(pid: Pid, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}

/// Reads a file of a process. Distinguishes a process that is gone from one that may not be read.
pub(crate) fn read(pid: Pid, name: &str) -> Result<Vec<u8>, ProcessError> {
    let path = path(pid, name);
    fs::read(&path).map_err(|source| match source.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) if !alive(pid) => ProcessError::NoProcess(pid),
        Some(libc::EACCES | libc::EPERM) => denied(pid),
        _ => ProcessError::Proc { path, source },
    })
}

/// Reads a file of a process as text; bytes that are no UTF-8 are replaced.
pub(crate) fn read_text(pid: Pid, name: &str) -> Result<String, ProcessError> {
    Ok(String::from_utf8(read(pid, name)?)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

fn alive(pid: Pid) -> bool {
    path(pid, "stat").exists()
}

/// The error for a process that may not be read, with the reason if it is known.
pub(crate) fn denied(pid: Pid) -> ProcessError {
    let uid = Status::read(pid).ok().map(|status| status.uid);
    let mine = rustix::process::geteuid().as_raw();
    let reason = match uid {
        Some(uid) if uid != mine => format!(": it belongs to user {uid}, this is user {mine}"),
        Some(_) => {
            ": it is set to be undumpable, or a security module (Yama's ptrace_scope?) forbids it".into()
        }
        None => String::new(),
    };
    ProcessError::Denied { pid, reason }
}

/// The threads a process has at this moment.
pub(crate) fn threads(pid: Pid) -> Result<Vec<Pid>, ProcessError> {
    let directory = path(pid, "task");
    let failed = |source: io::Error| match source.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => ProcessError::NoProcess(pid),
        _ => ProcessError::Proc { path: directory.clone(), source },
    };
    let mut tids = Vec::new();
    for entry in fs::read_dir(&directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if let Some(tid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            tids.push(tid);
        }
    }
    Ok(tids)
}

/// What `/proc/PID/status` says, as far as it matters here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Status {
    /// "S (sleeping)".
    pub(crate) state: String,
    /// The process that a thread belongs to.
    pub(crate) tgid: Pid,
    /// Its tracer; 0 for none.
    pub(crate) tracer: Pid,
    /// Real user.
    pub(crate) uid: u32,
    /// Real group.
    pub(crate) gid: u32,
    /// Its ids, from this program's PID namespace to its own.
    pub(crate) ns_pids: Vec<Pid>,
    /// Its process group and session in the same namespaces; 0 where they are not in one.
    pub(crate) ns_groups: Vec<Pid>,
    pub(crate) ns_sessions: Vec<Pid>,
    /// Seccomp mode: 0 none, 1 strict, 2 filters.
    pub(crate) seccomp: u32,
    /// Whether it has user memory: kernel threads and zombies have none.
    pub(crate) has_memory: bool,
    pub(crate) parent: Pid,
    /// Bytes of private anonymous memory, in memory (Linux 4.5) and swapped out.
    pub(crate) anonymous: u64,
    /// Bytes of huge pages of hugetlbfs (Linux 4.4).
    pub(crate) huge: u64,
}

impl Status {
    pub(crate) fn read(pid: Pid) -> Result<Self, ProcessError> {
        Ok(Self::parse(&read_text(pid, "status")?))
    }

    pub(crate) fn parse(text: &str) -> Self {
        let mut status = Self::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let value = value.trim();
            let first = || value.split_whitespace().next().unwrap_or("");
            let ids = || value.split_whitespace().filter_map(|id| id.parse().ok()).collect();
            match key {
                "State" => status.state = value.to_owned(),
                "Tgid" => status.tgid = first().parse().unwrap_or(0),
                "PPid" => status.parent = first().parse().unwrap_or(0),
                "TracerPid" => status.tracer = first().parse().unwrap_or(0),
                "Uid" => status.uid = first().parse().unwrap_or(0),
                "Gid" => status.gid = first().parse().unwrap_or(0),
                "NSpid" => status.ns_pids = ids(),
                "NSpgid" => status.ns_groups = ids(),
                "NSsid" => status.ns_sessions = ids(),
                "Seccomp" => status.seccomp = first().parse().unwrap_or(0),
                "VmSize" => status.has_memory = true,
                "HugetlbPages" => status.huge = first().parse::<u64>().unwrap_or(0) << 10,
                "RssAnon" | "VmSwap" => status.anonymous += first().parse::<u64>().unwrap_or(0) << 10,
                _ => {}
            }
        }
        status
    }

    /// Whether it has ended.
    pub(crate) fn is_dead(&self) -> bool {
        self.state.starts_with(['Z', 'X'])
    }
}

/// What `/proc/PID/stat` says, as far as cores hold it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    /// The name, at most 15 bytes.
    pub(crate) name: Vec<u8>,
    /// The letter of its state.
    pub(crate) state: u8,
    pub(crate) parent: Pid,
    pub(crate) group: Pid,
    pub(crate) session: Pid,
    pub(crate) flags: u64,
    /// User, system, and children's user and system time in clock ticks.
    pub(crate) times: [u64; 4],
    pub(crate) nice: i64,
    /// When it started, in clock ticks since the machine did.
    pub(crate) start: u64,
    /// Pending signals 1 to 31, bit 0 for signal 1.
    pub(crate) pending: u64,
    /// How it is scheduled: `SCHED_OTHER` and so on (sched(7)).
    pub(crate) policy: i32,
}

impl Stat {
    pub(crate) fn read(pid: Pid, tid: Pid) -> Result<Self, ProcessError> {
        Ok(Self::parse(&read(pid, &format!("task/{tid}/stat"))?).unwrap_or_default())
    }

    /// The name stands in parentheses and may hold anything, parentheses too; the fields follow the last one.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let open = bytes.iter().position(|&byte| byte == b'(')?;
        let close = bytes.iter().rposition(|&byte| byte == b')')?;
        let name = bytes.get(open + 1..close)?.to_vec();
        let rest = std::str::from_utf8(bytes.get(close + 1..)?).ok()?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // Field 3 of proc(5) is the first here.
        let field = |number: usize| fields.get(number - 3).copied().unwrap_or("0");
        let unsigned = |number| field(number).parse().unwrap_or(0);
        Some(Self {
            name,
            state: field(3).bytes().next().unwrap_or(0),
            parent: field(4).parse().unwrap_or(0),
            group: field(5).parse().unwrap_or(0),
            session: field(6).parse().unwrap_or(0),
            flags: unsigned(9),
            times: [14, 15, 16, 17].map(unsigned),
            nice: field(19).parse().unwrap_or(0),
            start: unsigned(22),
            pending: unsigned(31),
            policy: field(41).parse().unwrap_or(0),
        })
    }
}

/// Fails where `core`, `checkpoint` and `restart` could not work, or would reach for other processes than those named.
pub(crate) fn check_system() -> Result<(), ProcessError> {
    check_machine()?;
    check_namespace()
}

/// Fails on machines whose registers and system calls `core`, `checkpoint` and `restart` do not know. Finished cores and
/// checkpoints are read anywhere.
fn check_machine() -> Result<(), ProcessError> {
    if cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        Ok(())
    } else {
        Err(ProcessError::Machine)
    }
}

/// Fails if /proc is not that of this program's PID namespace. Its numbers would then name other processes than the numbers
/// that system calls take.
pub(crate) fn check_namespace() -> Result<(), ProcessError> {
    const SELF: &str = "/proc/self";
    let me = rustix::process::getpid().as_raw_pid();
    let link = fs::read_link(SELF).ok().and_then(|link| link.to_str()?.parse().ok());
    // Only a /proc of processes that do not see this one has a link that leads nowhere.
    if link.is_none() && fs::symlink_metadata(SELF).is_err() {
        return Err(ProcessError::NoProc);
    }
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if is_numbered_by(me, link, &Status::parse(&text).ns_pids) {
        Ok(())
    } else {
        Err(ProcessError::OtherNamespace)
    }
}

/// Whether a /proc has this program's own number for it. `ns_pids` are its numbers from the namespace of /proc to its own, so
/// that there is one only in its own (Linux 4.1: commit e4bc33245124, "/proc/PID/status: show all sets of pid according to
/// ns"); the link alone could be equal by chance.
fn is_numbered_by(me: Pid, link: Option<Pid>, ns_pids: &[Pid]) -> bool {
    link == Some(me) && (ns_pids.is_empty() || *ns_pids == [me])
}

/// Verifies that a process can be saved. Returns its status.
pub(crate) fn examine(pid: Pid) -> Result<Status, ProcessError> {
    if pid <= 0 {
        return Err(ProcessError::NoProcess(pid));
    }
    check_system()?;
    let status = Status::read(pid)?;
    if status.tgid != pid && status.tgid > 0 {
        return Err(ProcessError::Refused(format!(
            "{pid} is a thread of process {process}; give {process} to save all of it",
            process = status.tgid
        )));
    }
    if status.tgid as u32 == std::process::id() {
        return Err(ProcessError::Myself(pid));
    }
    // The memory of a process whose first thread has ended is seen through the others.
    let living = threads(pid)?.into_iter().filter_map(|tid| Status::read(tid).ok()).find(|s| !s.is_dead());
    let Some(living) = living else { return Err(ProcessError::Zombie(pid)) };
    if !living.has_memory {
        return Err(match Stat::read(pid, pid)?.flags & KERNEL_THREAD {
            0 => ProcessError::Refused(format!("process {pid} is ending, and has no memory any more")),
            _ => ProcessError::KernelThread(pid),
        });
    }
    if living.tracer != 0 {
        return Err(traced(pid, living.tracer));
    }
    Ok(Status { seccomp: living.seccomp, ..status })
}

pub(crate) fn traced(pid: Pid, tracer: Pid) -> ProcessError {
    let name = read_text(tracer, "comm").map_or_else(|_| "?".into(), |name| name.trim_end().to_owned());
    ProcessError::Traced { pid, tracer, name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proc_of_another_namespace_is_told_from_the_own() {
        check_namespace().unwrap();
        assert!(is_numbered_by(7, Some(7), &[7]) && is_numbered_by(7, Some(7), &[]));
        for (link, ns_pids) in [(Some(900), &[900, 7][..]), (Some(7), &[7, 7]), (Some(900), &[]), (None, &[])]
        {
            assert!(!is_numbered_by(7, link, ns_pids), "{link:?} {ns_pids:?}");
        }
    }

    #[test]
    fn names_may_hold_parentheses_and_spaces() {
        let line =
            b"12 (a) b (c) S 1 2 3 4 5 4194560 7 8 9 10 111 112 113 114 20 -5 1 0 99 1 2 3 4 5 6 7 8 514 0\n";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.name.as_slice(), stat.state), (&b"a) b (c"[..], b'S'));
        assert_eq!((stat.parent, stat.group, stat.session), (1, 2, 3));
        assert_eq!((stat.flags, stat.times, stat.nice), (4194560, [111, 112, 113, 114], -5));
        assert_eq!(stat.pending, 514);
        assert_eq!(Stat::parse(b"no parentheses"), None);
    }

    #[test]
    fn status_tells_zombies_and_kernel_threads() {
        let zombie =
            Status::parse("Name:\tx\nState:\tZ (zombie)\nTgid:\t7\nTracerPid:\t0\nUid:\t5\t5\t5\t5\n");
        assert!(zombie.is_dead() && !zombie.has_memory);
        assert_eq!((zombie.tgid, zombie.uid), (7, 5));
        let live = Status::parse(
            "State:\tS (sleeping)\nTracerPid:\t9\nNSpid:\t70\t1\nNSpgid:\t60\t0\nNSsid:\t50\t0\nVmSize:\t 10 kB\nRssAnon:\t 3 kB\n\
             VmSwap:\t 2 kB\nSeccomp:\t2\n",
        );
        assert!(!live.is_dead() && live.has_memory);
        assert_eq!(live.anonymous, 5 << 10);
        assert_eq!((live.tracer, live.ns_pids.as_slice(), live.seccomp), (9, &[70, 1][..], 2));
        assert_eq!((live.ns_groups.as_slice(), live.ns_sessions.as_slice()), (&[60, 0][..], &[50, 0][..]));
    }

    #[test]
    fn this_process_is_no_target() {
        assert!(matches!(examine(std::process::id() as Pid), Err(ProcessError::Myself(_))));
        assert!(matches!(examine(0), Err(ProcessError::NoProcess(0))));
        assert!(matches!(examine(i32::MAX), Err(ProcessError::NoProcess(_))));
    }
}
