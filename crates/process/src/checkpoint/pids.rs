//! The PIDs that a restart needs, and the processes that have them.
//!
//! A number is taken not only by a process or thread: as long as a process group or session of that number has a member,
//! zombies included, the kernel does not give it away (`__change_pid()`, kernel/pid.c).

use std::fs;
use std::time::{Duration, Instant};

use pagehaul_run::Progress;

use super::protobuf::{message, number_field};
use crate::error::ProcessError;
use crate::procfs::{self, Stat};
use crate::units::Pid;

/// CRIU's image of the process tree.
pub(crate) const IMAGE: &str = "pstree.img";
/// Its first bytes: CRIU's mark of images, and this one's (criu/include/magic.h).
const MAGIC: [u8; 8] = [0x19, 0x43, 0x56, 0x54, 0x30, 0x30, 0x27, 0x50];
/// Fields of an entry: the process, its threads (images/pstree.proto).
const PROCESS: u64 = 1;
const THREADS: u64 = 5;
/// How long zombies may take to be waited for: some programs wait for theirs every few seconds.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two checks.
const AGAIN: Duration = Duration::from_millis(10);
/// `PF_EXITING` of include/linux/sched.h, in field 9 of /proc/PID/stat.
const EXITING: u64 = 4;

/// The PIDs of all processes and threads in a tree's image. None if it makes no sense.
pub(crate) fn parse(image: &[u8]) -> Option<Vec<Pid>> {
    let mut rest = image.strip_prefix(&MAGIC)?;
    let mut pids = Vec::new();
    while !rest.is_empty() {
        let (mut entry, after) = message(rest)?;
        rest = after;
        let (mut process, mut threads) = (None, Vec::new());
        while !entry.is_empty() {
            let (number, value, after) = number_field(entry)?;
            entry = after;
            match number {
                PROCESS => process = Some(Pid::try_from(value).ok()?),
                THREADS => threads.push(value),
                _ => {}
            }
        }
        let process = process?;
        // CRIU writes uninitialised memory for the thread of a zombie. Those of the living have the process's number first.
        if !threads.iter().any(|thread| i64::try_from(*thread) == Ok(i64::from(process))) {
            threads.clear();
        }
        let threads: Result<Vec<Pid>, _> = threads.into_iter().map(Pid::try_from).collect();
        for pid in std::iter::once(process).chain(threads.ok()?) {
            if !pids.contains(&pid) {
                pids.push(pid);
            }
        }
    }
    Some(pids)
}

/// Blocks until these PIDs are free, as long as the processes that have them are exiting. An error names the first PID that
/// stays in use, and the process.
pub(crate) fn wait_until_free(pids: &[Pid], progress: &Progress) -> Result<(), ProcessError> {
    // A tree with its own PID namespace is restored in a new one, where all numbers are free.
    if pids.contains(&1) {
        return Ok(());
    }
    let begun = Instant::now();
    while let Some(holder) = find_holder(pids) {
        if !holder.is_leaving || begun.elapsed() > PATIENCE || progress.is_cancelled() {
            return Err(ProcessError::Refused(holder.sentence()));
        }
        std::thread::sleep(AGAIN);
    }
    Ok(())
}

/// A process that has a number.
#[derive(Debug)]
struct Holder {
    number: Pid,
    /// "", "the process group of ", "the session of ".
    what: &'static str,
    pid: Pid,
    name: String,
    parent: Pid,
    /// Whether it has ended, or is about to.
    is_leaving: bool,
}

impl Holder {
    fn sentence(&self) -> String {
        let Self { number, what, pid, name, parent, is_leaving } = self;
        let holder =
            format!("PID {number}, which the checkpoint needs, is in use as {what}process {pid} ({name})");
        if *is_leaving {
            format!(
                "{holder}, which has ended, but its parent {parent} has not waited for it; try again once it has"
            )
        } else {
            format!("{holder}; end that first")
        }
    }
}

fn find_holder(pids: &[Pid]) -> Option<Holder> {
    // Threads have directories too, though they are not listed. Groups and sessions are found by reading all processes.
    let direct = pids.iter().find_map(|&pid| holder(pid, |_| Some((pid, ""))));
    direct.or_else(|| {
        let all = fs::read_dir("/proc").ok()?.flatten();
        all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find_map(|pid| {
            holder(pid, |stat| {
                let uses = [(stat.group, "the process group of "), (stat.session, "the session of ")];
                uses.into_iter().find(|(number, _)| pids.contains(number))
            })
        })
    })
}

/// The process or thread `pid` as a holder, if `use_of` says what number it holds, and as what.
fn holder(pid: Pid, use_of: impl Fn(&Stat) -> Option<(Pid, &'static str)>) -> Option<Holder> {
    let stat = Stat::parse(&fs::read(procfs::path(pid, "stat")).ok()?)?;
    let (number, what) = use_of(&stat)?;
    let is_leaving = matches!(stat.state, b'Z' | b'X') || stat.flags & EXITING != 0;
    let name = String::from_utf8_lossy(&stat.name).into_owned();
    Some(Holder { number, what, pid, name, parent: stat.parent, is_leaving })
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Command, Stdio};

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn processes_and_threads_are_found_in_a_tree() {
        let mut image = MAGIC.to_vec();
        // 200 with threads 200 and 300, and its child 201.
        for entry in [
            &[8, 200, 1, 16, 1, 24, 200, 1, 32, 200, 1, 40, 200, 1, 40, 172, 2][..],
            &[8, 201, 1, 16, 200, 1, 24, 9, 32, 9, 40, 201, 1][..],
        ] {
            image.extend((entry.len() as u32).to_le_bytes());
            image.extend(entry);
        }
        assert_eq!(parse(&image), Some(vec![200, 300, 201]));
        assert_eq!(parse(&image[..image.len() - 1]), None);
        assert_eq!(parse(b"something else"), None);
    }

    /// As CRIU 4.1.1 writes a zombie (202), whose thread is a number that no process can have.
    #[test]
    fn zombies_have_no_threads() {
        let mut image = MAGIC.to_vec();
        for entry in [
            &[8, 200, 1, 16, 0, 24, 200, 1, 32, 200, 1, 40, 200, 1][..],
            &[8, 202, 1, 16, 200, 1, 24, 200, 1, 32, 200, 1, 40, 0xb0, 0xa8, 0xc3, 0xe5, 0x0f][..],
        ] {
            image.extend((entry.len() as u32).to_le_bytes());
            image.extend(entry);
        }
        assert_eq!(parse(&image), Some(vec![200, 202]));
    }

    #[test]
    fn a_number_is_taken_by_processes_threads_groups_and_sessions() {
        let progress = Progress::default();
        let said = |pid| wait_until_free(&[pid], &progress).unwrap_err().to_string();
        let me = std::process::id() as Pid;
        assert!(
            said(me).contains(&format!("PID {me}, which the checkpoint needs, is in use as process {me}"))
        );
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        assert!(said(thread).contains("is in use as process"));
        // A process whose group's leader is gone: the leader's number stays taken as long as the other lives.
        let mut leader = Command::new("sh")
            .args(["-c", "exec 3<&0; cat <&3 &"])
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let number = leader.id() as Pid;
        let input = leader.stdin.take();
        leader.wait().unwrap();
        assert!(!procfs::path(number, "stat").exists());
        let error = said(number);
        assert!(error.contains("is in use as the process group of process"), "{error}");
        assert!(error.contains("; end that first"), "{error}");
        drop(input);
    }

    #[test]
    fn zombies_are_waited_for() {
        let progress = Progress::default();
        let mut child = Command::new("true").spawn().unwrap();
        let pid = child.id() as Pid;
        while !Stat::read(pid, pid).is_ok_and(|stat| stat.state == b'Z') {
            std::thread::yield_now();
        }
        let waiter = std::thread::spawn(move || child.wait().unwrap());
        wait_until_free(&[pid], &progress).unwrap();
        assert!(!procfs::path(pid, "stat").exists());
        assert!(waiter.join().unwrap().success());
    }

    #[test]
    fn trees_of_their_own_namespace_are_not_looked_for() {
        wait_until_free(&[1, std::process::id() as Pid], &Progress::default()).unwrap();
    }

    proptest! {
        #[test]
        fn any_tree_is_no_reason_to_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = parse(&[&MAGIC[..], &bytes].concat());
        }
    }
}
