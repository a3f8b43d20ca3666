//! Waiting for CRIU, and what is done about one that does not end.
//!
//! CRIU is killed only once its parasite code is in no process: a process that runs that code dies with its tracer. Without
//! it, the kernel detaches the processes, and they go on.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pagehaul_run::Progress;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{
    PidfdFlags, Signal, WaitId, WaitIdOptions, getpid, pidfd_open, set_child_subreaper, waitid,
};

use super::tree::{self, Process};
use crate::error::ProcessError;
use crate::procfs;
use crate::units::Pid;

/// How long CRIU may take to end after its images are out or it was given up: it only has to let the processes go on.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// The same after the run was cancelled.
const GRACE: Duration = Duration::from_secs(5);
/// How long a process that was killed may take to end.
const KILLED: Duration = Duration::from_secs(1);
/// How often a wait looks whether the run was cancelled.
pub(crate) const POLL: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// What CRIU calls the mapping of its parasite code (compel/src/lib/infect.c), and the mode of that mapping where there is no
/// memfd.
const PARASITE: [&str; 2] = ["CRIUMFD", " rwxs "];

/// Waits until CRIU has ended. None if it has not by the time `limit`, or [`GRACE`] after the run was cancelled.
pub(crate) fn wait(
    child: &mut Child,
    limit: Option<Duration>,
    progress: &Progress,
) -> io::Result<Option<ExitStatus>> {
    let (begun, mut cancelled) = (Instant::now(), None);
    let descriptor = pidfd_open(rustix::process::Pid::from_child(child), PidfdFlags::empty());
    loop {
        match child.try_wait() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(None) => {}
            ended => return ended,
        }
        if progress.is_cancelled() {
            cancelled.get_or_insert_with(Instant::now);
        }
        if limit.is_some_and(|limit| begun.elapsed() > limit)
            || cancelled.is_some_and(|at| at.elapsed() > GRACE)
        {
            return Ok(None);
        }
        // Without a descriptor (before Linux 5.3), CRIU's end is polled.
        let polled = descriptor.as_ref().map(|fd| poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&POLL)));
        if !matches!(polled, Ok(Ok(_))) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Blocks until `end` can be read, or written, or has failed. Returns false once the run is cancelled.
pub(crate) fn ready(end: impl AsFd, flags: PollFlags, progress: &Progress) -> bool {
    loop {
        if progress.is_cancelled() {
            return false;
        }
        match poll(&mut [PollFd::new(&end, flags)], Some(&POLL)) {
            Ok(0) | Err(Errno::INTR) => {}
            // What is wrong, the next call says.
            _ => return true,
        }
    }
}

/// Writes all bytes to a pipe, unless the run is cancelled: CRIU may never read them.
pub(crate) struct PipeWriter<'a> {
    pipe: File,
    progress: &'a Progress,
}

impl<'a> PipeWriter<'a> {
    pub(crate) fn new(pipe: File, progress: &'a Progress) -> Self {
        // If it fails, a write blocks as long as CRIU does.
        let _ = rustix::fs::fcntl_setfl(&pipe, OFlags::NONBLOCK);
        Self { pipe, progress }
    }

    pub(crate) fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if !ready(&self.pipe, PollFlags::OUT, self.progress) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            match self.pipe.write(bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Ends a CRIU that has not ended while it saves the process `root` and its descendants, if that does them no harm. Returns
/// what was done, as a part of a sentence.
pub(crate) fn end_saving(child: &mut Child, root: Pid) -> String {
    let criu = child.id();
    if has_parasite(root) {
        return format!(
            "CRIU (process {criu}) does not end, and is left alone: its code is in process {root} or a descendant, which would \
             die if it were killed"
        );
    }
    // It waits for helpers that it could not end: they stop themselves, when it finds out what the kernel can do.
    let helpers = tree::list(criu as Pid).unwrap_or_default();
    let _ = child.kill();
    for helper in helpers.iter().filter(|helper| helper.pid as u32 != criu) {
        // It fails if the helper has ended.
        let _ = helper.signal(Signal::KILL);
    }
    let _ = wait(child, Some(KILLED), &Progress::default());
    format!("CRIU (process {criu}) did not end and was killed; process {root} goes on")
}

/// Whether CRIU's code may be in a process of a tree. One that cannot be read counts.
fn has_parasite(root: Pid) -> bool {
    match tree::list(root) {
        Ok(processes) => processes.iter().any(|process| match procfs::read_text(process.pid, "maps") {
            Ok(maps) => PARASITE.iter().any(|mark| maps.contains(mark)),
            Err(_) => !process.is_dead(),
        }),
        Err(ProcessError::NoProcess(_)) => false,
        Err(_) => true,
    }
}

/// What a restart makes: all descendants of this program that it did not have before. Processes whose CRIU has ended become this
/// program's children, until it ends.
pub(crate) struct Made {
    before: Vec<Process>,
}

impl Made {
    pub(crate) fn begin() -> Self {
        // If it fails, processes of a CRIU that was killed are not found.
        let _ = set_child_subreaper(Some(getpid()));
        Self { before: descendants() }
    }

    /// Kills all of it: a half restored process waits forever for its CRIU.
    pub(crate) fn kill(&self) {
        let made = || descendants().into_iter().filter(|process| !self.before.contains(process));
        let begun = Instant::now();
        loop {
            let alive: Vec<Process> = made().filter(|process| !process.is_dead()).collect();
            for process in &alive {
                // It fails if the process has ended.
                let _ = process.signal(Signal::KILL);
            }
            if alive.is_empty() || begun.elapsed() > KILLED {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Kills what a CRIU has made that fails while it is served: half restored processes keep its socket and pipes open.
pub(crate) fn watch_restoring(criu: u32, made: &Made, is_served: &AtomicBool) {
    let Some(criu) = rustix::process::Pid::from_raw(criu as Pid) else { return };
    // The status stays for the wait that follows.
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    while !is_served.load(Ordering::Acquire) {
        if let Ok(Some(ended)) = waitid(WaitId::Pid(criu), look) {
            if ended.exit_status() != Some(0) {
                made.kill();
            }
            return;
        }
        thread::park_timeout(Duration::from_millis(20));
    }
}

fn descendants() -> Vec<Process> {
    let me = std::process::id() as Pid;
    tree::list(me).unwrap_or_default().into_iter().filter(|process| process.pid != me).collect()
}

/// Ends a CRIU that has not ended while it restores, and the processes that it has made.
pub(crate) fn end_restoring(child: &mut Child, made: &Made) -> ProcessError {
    let criu = child.id();
    let _ = child.kill();
    made.kill();
    let _ = wait(child, Some(KILLED), &Progress::default());
    // While it ended, its children were in no list for a moment.
    made.kill();
    ProcessError::Refused(format!(
        "stopped; CRIU (process {criu}) did not end, and was killed with what it had restarted"
    ))
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::process::{Command, Stdio};

    use super::*;

    fn never() -> Child {
        Command::new("tail").args(["-f", "/dev/null"]).stdout(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn criu_that_does_not_end_is_killed_after_the_limit() {
        let mut child = never();
        let limit = Duration::from_millis(20);
        assert_eq!(wait(&mut child, Some(limit), &Progress::default()).unwrap(), None);
        let mut subject = never();
        let what = end_saving(&mut child, subject.id() as Pid);
        assert!(what.contains("was killed; process"), "{what}");
        assert!(child.try_wait().unwrap().is_some() && subject.try_wait().unwrap().is_none());
        subject.kill().unwrap();
        subject.wait().unwrap();
        // Of a process that has ended.
        let mut child = never();
        assert!(end_saving(&mut child, subject.id() as Pid).contains("was killed"));
    }

    #[test]
    fn processes_that_run_its_code_are_found() {
        let me = std::process::id() as Pid;
        assert!(!has_parasite(me));
        let file = rustix::fs::memfd_create("CRIUMFD", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let (read, shared) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::SHARED);
        // SAFETY: a new mapping, which nothing reads.
        let mapping =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), 4096, read, shared, &file, 0) }.unwrap();
        let mut child = never();
        let what = end_saving(&mut child, me);
        assert!(what.contains("is left alone: its code is in process"), "{what}");
        assert!(child.try_wait().unwrap().is_none());
        // SAFETY: the mapping of above.
        unsafe { rustix::mm::munmap(mapping, 4096) }.unwrap();
        assert!(end_saving(&mut child, me).contains("was killed"));
    }

    #[test]
    fn pipes_that_nothing_reads_do_not_block_a_run_that_is_cancelled() {
        let (read, write) = io::pipe().unwrap();
        let progress = Progress::default();
        let mut writer = PipeWriter::new(File::from(OwnedFd::from(write)), &progress);
        writer.write_all(&[7; 1000]).unwrap();
        thread::scope(|scope| {
            let writing = scope.spawn(|| writer.write_all(&vec![7; 4 << 20]));
            progress.cancel_token().cancel();
            assert!(writing.join().unwrap().is_err());
        });
        assert!(!ready(&read, PollFlags::IN, &progress));
    }
}
