//! Stops all threads of a process and resumes them.

use std::time::{Duration, Instant};

use crate::error::ProcessError;
use crate::procfs::{self, Status};
use crate::ptrace::{self, Waited};
use crate::units::Pid;
use crate::urgent::Urgent;

/// How long threads may take to stop.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long to poll without sleeping: threads mostly stop within microseconds.
const SPIN: Duration = Duration::from_millis(1);

/// A stopped thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) tid: Pid,
    /// The pending signal, delivered when it resumes; 0 for none.
    pub(crate) signal: i32,
    /// Whether it stopped for [`ptrace::interrupt`] alone, so that no signal must be delivered.
    pub(crate) clean: bool,
}

/// A process whose threads are all stopped. Dropping it resumes them; so does the kernel if this program dies, since
/// a tracee without a tracer resumes (`exit_ptrace()`, kernel/ptrace.c) with its pending signal. Belongs to the thread that
/// created it: no other may resume them.
#[derive(Debug)]
pub(crate) struct Stopped {
    pid: Pid,
    threads: Vec<Thread>,
    since: Instant,
    held: bool,
    /// A tracer is a thread.
    _not_send: std::marker::PhantomData<*const ()>,
    /// The threads wait for this one.
    _urgent: Urgent,
}

impl Stopped {
    /// Stops all threads of a process, including those that it creates meanwhile.
    pub(crate) fn stop(pid: Pid) -> Result<Self, ProcessError> {
        let since = Instant::now();
        let (threads, _not_send, _urgent) = (Vec::new(), std::marker::PhantomData, Urgent::begin());
        let mut stopped = Self { pid, threads, since, held: true, _not_send, _urgent };
        let mut running: Vec<Pid> = Vec::new();
        let mut gone: Vec<Pid> = Vec::new();
        // A stopped thread creates no threads: the round that finds no new one is the last.
        loop {
            let mut news = false;
            for tid in procfs::threads(pid)? {
                let known = stopped.threads.iter().any(|thread| thread.tid == tid);
                if known || gone.contains(&tid) {
                    continue;
                }
                match stopped.seize(tid) {
                    Ok(true) => running.push(tid),
                    Ok(false) => continue,
                    Err(error) => {
                        // Threads that are about to stop can be resumed once they have.
                        stopped.wait_for(&mut running, &mut gone)?;
                        return Err(error);
                    }
                }
                news = true;
            }
            if !news {
                break;
            }
            stopped.wait_for(&mut running, &mut gone)?;
        }
        if stopped.threads.is_empty() {
            return Err(ProcessError::Ended(pid));
        }
        Ok(stopped)
    }

    /// Seizes and interrupts one thread. Returns false if there is nothing to stop.
    fn seize(&self, tid: Pid) -> Result<bool, ProcessError> {
        let failed = |action| move |source| ProcessError::Trace { action, tid, source };
        match ptrace::seize(tid) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(false),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                // A first thread that has ended before the others is a zombie and cannot be seized.
                return match Status::read(tid) {
                    Err(_) => Ok(false),
                    Ok(status) if status.is_dead() => Ok(false),
                    Ok(status) if status.tracer != 0 => Err(procfs::traced(self.pid, status.tracer)),
                    Ok(_) => Err(procfs::denied(self.pid)),
                };
            }
            Err(error) => return Err(failed("seize")(error)),
        }
        match ptrace::interrupt(tid) {
            Ok(()) => Ok(true),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(true),
            Err(error) => Err(failed("stop")(error)),
        }
    }

    /// Waits until those `running` have stopped or are `gone`.
    fn wait_for(&mut self, running: &mut Vec<Pid>, gone: &mut Vec<Pid>) -> Result<(), ProcessError> {
        let begun = Instant::now();
        while let Some(&tid) = running.last() {
            let waited = ptrace::wait(tid, false).map_err(|source| ProcessError::Trace {
                action: "wait for",
                tid,
                source,
            })?;
            match waited {
                Waited::Running => {
                    let waiting = begun.elapsed();
                    if waiting > STOP_TIMEOUT {
                        // It cannot be resumed before it has stopped; the kernel resumes it when this program ends.
                        let state = Status::read(tid).map(|status| status.state).unwrap_or_default();
                        let (pid, seconds) = (self.pid, STOP_TIMEOUT.as_secs());
                        return Err(ProcessError::Stuck { pid, tid, seconds, state });
                    } else if waiting > SPIN {
                        std::thread::sleep(Duration::from_micros(50));
                    } else {
                        std::thread::yield_now();
                    }
                    continue;
                }
                Waited::Trapped(signal) => {
                    self.threads.push(Thread { tid, signal: 0, clean: signal == libc::SIGTRAP });
                }
                Waited::Signal(signal) => self.threads.push(Thread { tid, signal, clean: false }),
                Waited::Event(_) => self.threads.push(Thread { tid, signal: 0, clean: false }),
                Waited::Gone => gone.push(tid),
            }
            running.pop();
        }
        Ok(())
    }

    /// The process.
    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// How long it has been stopped.
    pub(crate) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// Its stopped threads, the first thread of the process first if it still runs.
    pub(crate) fn threads(&mut self) -> &[Thread] {
        let pid = self.pid;
        self.threads.sort_by_key(|thread| (thread.tid != pid, thread.tid));
        &self.threads
    }

    /// Resumes all threads. Returns how long the process was stopped.
    pub(crate) fn resume(mut self) -> Duration {
        self.release();
        self.since.elapsed()
    }

    fn release(&mut self) {
        if std::mem::take(&mut self.held) {
            for thread in &self.threads {
                // Fails for a thread that was killed meanwhile. Processes that were
                // stopped before stop again by themselves (`__ptrace_unlink()`, kernel/ptrace.c).
                let _ = ptrace::detach(thread.tid, thread.signal);
            }
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.release();
    }
}
