//! Answering CRIU's questions in the kernel's place.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use pagehaul_run::Progress;

use super::PreCopy;
use super::seccomp::{Answer, Call, Notifications};
use super::smaps::{self, Answered};
use crate::fork::descriptor_of;
use crate::pagemap::{PageRegion, ScanArguments};
use crate::units::Pid;
use crate::urgent::Urgent;

/// A thread that answers as long as CRIU runs.
pub(crate) struct Watch {
    state: Arc<Mutex<State>>,
}

struct State {
    copy: PreCopy,
    /// Whether CRIU has begun to freeze the processes.
    is_freezing: bool,
}

impl Watch {
    pub(crate) fn start(copy: PreCopy, notifications: Notifications) -> io::Result<Self> {
        let state = Arc::new(Mutex::new(State { copy, is_freezing: false }));
        let watch = Self { state: Arc::clone(&state) };
        Builder::new().name("watch".into()).spawn(move || serve(&state, &notifications))?;
        Ok(watch)
    }

    /// The copies, when CRIU has all it asked for.
    pub(crate) fn copy(&self) -> impl std::ops::DerefMut<Target = PreCopy> + '_ {
        Locked(lock(&self.state))
    }
}

struct Locked<'a>(MutexGuard<'a, State>);

impl std::ops::Deref for Locked<'_> {
    type Target = PreCopy;

    fn deref(&self) -> &PreCopy {
        &self.0.copy
    }
}

impl std::ops::DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut PreCopy {
        &mut self.0.copy
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(state: &Mutex<State>, notifications: &Notifications) {
    let mut urgent = None;
    // If it fails, the descriptor is closed, CRIU's call fails, and it lets the processes go on.
    while let Ok(Some(call)) = notifications.next() {
        let mut state = lock(state);
        let answer = state.answer(&call);
        if state.is_freezing {
            urgent.get_or_insert_with(Urgent::begin);
        }
        drop(state);
        // It fails if CRIU was killed.
        let _ = notifications.answer(&call, &answer);
    }
}

impl State {
    fn answer(&mut self, call: &Call) -> Answer {
        if call.number == libc::SYS_ptrace {
            // It is about to freeze them: the last moment to copy while they run. What fails is copied in the freeze.
            if !std::mem::replace(&mut self.is_freezing, true) {
                let _ = self.copy.rounds(None, &Progress::default());
            }
            return Answer::GoOn;
        }
        if call.number == libc::SYS_openat {
            return self.open(call).map_or(Answer::GoOn, Answer::Opens);
        }
        match self.scan(call) {
            Ok(Some(count)) => Answer::Returns(count),
            Ok(None) => Answer::GoOn,
            Err(error) => Answer::Fails(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }

    /// Answers the opening of a frozen process's smaps. None for any other file, which the kernel opens.
    fn open(&mut self, call: &Call) -> Option<OwnedFd> {
        let [descriptor, address, ..] = call.arguments;
        let mut name = [0u8; smaps::NAME.to_bytes_with_nul().len()];
        let smaps = self.copy.smaps.as_ref().filter(|_| self.is_freezing)?;
        transfer(call.pid, address, &mut name, libc::process_vm_readv).ok()?;
        if name != smaps::NAME.to_bytes_with_nul() {
            return None;
        }
        let directory = descriptor_of(call.pid, descriptor as i32).ok()?;
        let pid = link(&directory).ok()?.to_str()?.strip_prefix("/proc/")?.parse().ok()?;
        match smaps.of(pid, &directory) {
            Ok(Answered { file, flagged }) => {
                self.copy.flagged.insert(pid, flagged);
                Some(file)
            }
            Err(why) => {
                self.copy.walked.push(format!("process {pid}: {why}"));
                None
            }
        }
    }

    /// Answers a scan of the page tables of a process whose memory is copied. None for any other.
    fn scan(&mut self, call: &Call) -> io::Result<Option<i64>> {
        if !self.is_freezing {
            return Ok(None);
        }
        let [descriptor, _, address, ..] = call.arguments;
        let file = File::from(descriptor_of(call.pid, descriptor as i32)?);
        let link = link(&file)?;
        let pid = link.to_str().and_then(|link| link.strip_prefix("/proc/")?.strip_suffix("/pagemap"));
        let pid: Option<Pid> = pid.and_then(|pid| pid.parse().ok());
        let Some(process) = self.copy.processes.iter_mut().find(|process| Some(process.pid) == pid) else {
            return Ok(None);
        };
        let mut asked = [ScanArguments::default()];
        transfer(call.pid, address, &mut asked, libc::process_vm_readv)?;
        let [mut asked] = asked;
        if asked.size != size_of::<ScanArguments>() as u64
            || asked.flags != 0
            || asked.max_pages != 0
            || asked.start >= asked.end
            || asked.regions_len == 0
        {
            // Not the question that CRIU 4 asks.
            return Ok(None);
        }
        let (mut regions, end) = process.answer(file, &asked, self.copy.threads)?;
        transfer::<PageRegion>(call.pid, asked.regions, &mut regions, libc::process_vm_writev)?;
        asked.walk_end = end;
        transfer(call.pid, address, &mut [asked], libc::process_vm_writev)?;
        Ok(Some(regions.len() as i64))
    }
}

/// The path of an open file.
fn link(file: &impl AsRawFd) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

type Transfer = unsafe extern "C" fn(
    libc::pid_t,
    *const libc::iovec,
    libc::c_ulong,
    *const libc::iovec,
    libc::c_ulong,
    libc::c_ulong,
) -> isize;

/// Copies structs of numbers from or to a process.
fn transfer<T>(pid: Pid, address: u64, structs: &mut [T], by: Transfer) -> io::Result<()> {
    let bytes = size_of_val(structs);
    if bytes == 0 {
        return Ok(());
    }
    let ours = libc::iovec { iov_base: structs.as_mut_ptr().cast(), iov_len: bytes };
    let theirs = libc::iovec { iov_base: std::ptr::without_provenance_mut(address as usize), iov_len: bytes };
    // SAFETY: `ours` is exclusively borrowed memory, which any bits are valid for; the kernel checks the other address.
    match unsafe { by(pid, &raw const ours, 1, &raw const theirs, 1, 0) } {
        count if count == bytes as isize => Ok(()),
        count if count < 0 => Err(io::Error::last_os_error()),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}
