use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::tracefs::{self, Tracefs};
use super::{CpuPipe, tracefs::refused};
use crate::error::TraceError;
use crate::format::{EventFormat, Formats};
use crate::kernel_files::lost_events;
use crate::ring::SubBufferLayout;

/// Options of a private tracing instance.
#[derive(Debug, Clone)]
pub struct InstanceOptions {
    /// Buffer size per CPU in KiB.
    pub buffer_kb: u32,
    /// Trace clock: `mono` is CLOCK_MONOTONIC, the same on all CPUs.
    pub clock: String,
}

impl Default for InstanceOptions {
    fn default() -> Self {
        Self { buffer_kb: 4096, clock: "mono".into() }
    }
}

/// A private tracing instance, a directory under `instances/` with its own buffers and settings. Removed when
/// dropped.
///
/// On a signal the process has to drop it, so signals must end the loop that reads. If a process is killed,
/// the next one to create an instance removes what it left.
#[derive(Debug)]
pub struct Instance {
    tracefs: Tracefs,
    path: PathBuf,
    /// The directory, locked: the sign of life that processes of other PID namespaces see, too.
    _lock: File,
}

const PREFIX: &str = "pagehaul-";

impl Tracefs {
    /// Creates a private instance, which is removed when dropped. Also removes instances of processes that
    /// were killed.
    ///
    /// # Errors
    /// [`TraceError`] if the kernel refuses.
    pub fn create_instance(&self, options: &InstanceOptions) -> Result<Instance, TraceError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let instances = self.root().join("instances");
        // No other process takes an instance for an orphan before it is locked.
        let _creating = lock(&instances, FlockOperation::LockExclusive);
        remove_orphans(&instances);
        let name = format!("{PREFIX}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = instances.join(name);
        fs::create_dir(&path).map_err(|error| refused(&path, "create the tracing instance", error))?;
        let lock = lock(&path, FlockOperation::NonBlockingLockExclusive)
            .inspect_err(|_| remove(&path))
            .map_err(|error| refused(&path, "lock", error))?;
        // From here on, drop removes the instance.
        let instance = Instance { tracefs: self.clone(), path, _lock: lock };
        instance.write("tracing_on", "0")?;
        instance.write("trace_clock", &options.clock)?;
        instance.write("buffer_size_kb", &options.buffer_kb.to_string())?;
        Ok(instance)
    }
}

impl Tracefs {
    /// Returns whether the pagehaul process `pid` that set up tracing here may be alive, in any PID namespace.
    pub fn owner_may_live(&self, pid: u32) -> bool {
        may_live(&self.root().join("instances"), pid)
    }
}

impl Instance {
    /// Returns the tracefs of the instance.
    pub fn tracefs(&self) -> &Tracefs {
        &self.tracefs
    }

    /// Returns the directory of the instance.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a file of the instance.
    ///
    /// # Errors
    /// [`TraceError`] if the read fails.
    pub fn read(&self, file: &str) -> Result<String, TraceError> {
        tracefs::read(&self.path.join(file))
    }

    /// Writes a setting of the instance, as `echo TEXT > FILE` does.
    ///
    /// # Errors
    /// [`TraceError`] if the write fails.
    pub fn write(&self, file: &str, text: &str) -> Result<(), TraceError> {
        tracefs::write(&self.path.join(file), text, true)
    }

    /// Enables an event.
    ///
    /// # Errors
    /// [`TraceError::NoSuchEvent`] if the kernel has no such event.
    pub fn enable(&self, system: &str, event: &str) -> Result<(), TraceError> {
        if !self.tracefs.has_event(system, event) {
            return Err(TraceError::NoSuchEvent { system: system.into(), event: event.into() });
        }
        self.write(&format!("events/{system}/{event}/enable"), "1")
    }

    /// Returns the format of an event.
    ///
    /// # Errors
    /// [`TraceError`] if there is no such event, or its format does not parse.
    pub(super) fn format(&self, system: &str, event: &str) -> Result<EventFormat, TraceError> {
        EventFormat::parse(system, &self.format_text(system, event)?)
    }

    /// Returns the text of an event's `format` file.
    ///
    /// # Errors
    /// [`TraceError`] if the read fails.
    pub(super) fn format_text(&self, system: &str, event: &str) -> Result<String, TraceError> {
        self.read(&format!("events/{system}/{event}/format"))
    }

    /// Returns system and name of each enabled event.
    ///
    /// # Errors
    /// [`TraceError`] if the read fails.
    pub(super) fn enabled(&self) -> Result<Vec<(String, String)>, TraceError> {
        let list = self.read("set_event")?;
        let names = list.lines().filter_map(|line| line.split_once(':'));
        Ok(names.map(|(system, event)| (system.to_owned(), event.to_owned())).collect())
    }

    /// Returns the formats of the enabled events.
    ///
    /// # Errors
    /// [`TraceError`] if a format cannot be read.
    pub(super) fn formats(&self) -> Result<Formats, TraceError> {
        let mut formats = Formats::default();
        for (system, event) in self.enabled()? {
            formats.add(self.format(&system, &event)?);
        }
        // Written by tracers and triggers (function_graph, stacktrace), and not in the list of enabled
        // events.
        for event in ["funcgraph_exit", "kernel_stack"] {
            if self.tracefs.has_event("ftrace", event) {
                formats.add(EventFormat::parse(
                    "ftrace",
                    &self.tracefs.read(&format!("events/ftrace/{event}/format"))?,
                )?);
            }
        }
        Ok(formats)
    }

    /// Returns the layout of sub-buffers.
    ///
    /// # Errors
    /// [`TraceError`] if `header_page` cannot be read or parsed.
    pub(super) fn layout(&self) -> Result<SubBufferLayout, TraceError> {
        SubBufferLayout::parse(&self.header_page()?, crate::abi::Abi::host().big_endian)
    }

    /// Returns the text of `events/header_page`: the instance's, if it has one, because sub-buffer sizes can
    /// differ.
    ///
    /// # Errors
    /// [`TraceError`] if the read fails.
    pub(super) fn header_page(&self) -> Result<String, TraceError> {
        self.read("events/header_page").or_else(|_| self.tracefs.read("events/header_page"))
    }

    /// Returns the CPUs with a buffer, ascending.
    ///
    /// # Errors
    /// [`TraceError`] if the directory cannot be read.
    pub(super) fn cpus(&self) -> Result<Vec<u32>, TraceError> {
        let path = self.path.join("per_cpu");
        let entries = path.read_dir().map_err(|error| refused(&path, "read", error))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut cpus: Vec<u32> = names.filter_map(|name| name.strip_prefix("cpu")?.parse().ok()).collect();
        cpus.sort_unstable();
        Ok(cpus)
    }

    /// Opens a CPU's `trace_pipe_raw` for non-blocking reads.
    ///
    /// # Errors
    /// [`TraceError`] if the open fails.
    pub(super) fn pipe(&self, cpu: u32, sub_buffer_size: u32) -> Result<CpuPipe, TraceError> {
        CpuPipe::open(&self.path.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw")), sub_buffer_size)
    }

    /// Returns the number of events that a CPU overwrote or dropped since the instance was created.
    ///
    /// # Errors
    /// [`TraceError`] if the read fails.
    pub(super) fn lost(&self, cpu: u32) -> Result<u64, TraceError> {
        Ok(lost_events(&self.read(&format!("per_cpu/cpu{cpu}/stats"))?))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Stops and removes an instance. Failures are ignored: the next process tries again.
fn remove(path: &Path) {
    let _ = tracefs::write(&path.join("tracing_on"), "0", true);
    let _ = tracefs::write(&path.join("events/enable"), "0", true);
    let _ = while_busy(Duration::from_millis(10), || fs::remove_dir(path));
}

/// Tries again while the kernel refuses to remove an instance because a file of it is open: in a thread that ends, or in a
/// command between fork and exec.
fn while_busy(pause: Duration, mut attempt: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    const TRIES: u32 = 100;
    for _ in 1..TRIES {
        match attempt() {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::sleep(pause),
            done => return done,
        }
    }
    attempt()
}

/// Opens a directory and locks it.
fn lock(path: &Path, operation: FlockOperation) -> io::Result<File> {
    let directory = File::open(path)?;
    flock(&directory, operation)?;
    Ok(directory)
}

/// Returns whether the process that created instances or probes of `pid` may be alive: if it is in this PID namespace, or
/// holds the lock of one of its instances.
fn may_live(instances: &Path, pid: u32) -> bool {
    if Path::new("/proc").join(pid.to_string()).exists() {
        return true;
    }
    let Ok(entries) = instances.read_dir() else { return true };
    entries
        .flatten()
        .filter(|entry| owner(&entry.file_name()) == Some(pid))
        .any(|entry| lock(&entry.path(), FlockOperation::NonBlockingLockExclusive).is_err())
}

/// Returns the PID in the name of an instance.
fn owner(name: &OsStr) -> Option<u32> {
    name.to_str()?.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

/// Removes the instances of processes that no longer exist.
fn remove_orphans(instances: &Path) {
    let Ok(entries) = instances.read_dir() else { return };
    for entry in entries.flatten() {
        if owner(&entry.file_name()).is_some_and(|pid| !may_live(instances, pid)) {
            remove(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A PID that no process of this namespace has.
    const ELSEWHERE: u32 = u32::MAX - 7;

    #[test]
    fn a_busy_instance_is_removed_once_it_is_not() {
        let kind = io::ErrorKind::ResourceBusy;
        // Attempts that find it busy, the result of the one after, attempts in all.
        for (busy, last, attempts) in [(0, Ok(()), 1), (3, Ok(()), 4), (3, Err(()), 4), (1000, Ok(()), 100)] {
            let mut count = 0;
            let result = while_busy(Duration::ZERO, || {
                count += 1;
                if count <= busy {
                    Err(kind.into())
                } else {
                    last.map_err(|()| io::ErrorKind::NotFound.into())
                }
            });
            let expected = if busy == 1000 { Err(kind) } else { last.map_err(|()| io::ErrorKind::NotFound) };
            assert_eq!((result.map_err(|error| error.kind()), count), (expected, attempts));
        }
    }

    #[test]
    fn instances_of_another_pid_namespace_are_left_alone() {
        let instances = tempfile::tempdir().unwrap();
        let [live, dead] =
            [ELSEWHERE, ELSEWHERE + 1].map(|pid| instances.path().join(format!("{PREFIX}{pid}-0")));
        fs::create_dir(&live).unwrap();
        fs::create_dir(&dead).unwrap();
        let recorder = lock(&live, FlockOperation::NonBlockingLockExclusive).unwrap();
        remove_orphans(instances.path());
        assert!(live.exists() && !dead.exists());
        assert!(may_live(instances.path(), ELSEWHERE) && may_live(instances.path(), std::process::id()));
        drop(recorder);
        remove_orphans(instances.path());
        assert!(!live.exists(), "its process was killed");
    }
}
