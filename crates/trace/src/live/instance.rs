use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::tracefs::{self, Tracefs};
use super::{CpuPipe, tracefs::refused};
use crate::ring::SubBufferLayout;
use crate::{EventFormat, Formats, TraceError};

/// How a private instance is set up.
#[derive(Debug, Clone)]
pub struct InstanceOptions {
    /// KiB of buffer for each CPU.
    pub buffer_kb: u32,
    /// The clock of time stamps: `mono` is CLOCK_MONOTONIC, the same on all CPUs.
    pub clock: String,
}

impl Default for InstanceOptions {
    fn default() -> Self {
        Self { buffer_kb: 4096, clock: "mono".into() }
    }
}

/// A folder of its own under `instances/`: buffers and settings that nobody else's tracing sees. Removed when dropped.
///
/// On a signal the process has to drop it: have the signal end the loop that reads. A process that is killed leaves its
/// instance; the next one to make an instance removes it.
#[derive(Debug)]
pub struct Instance {
    tracefs: Tracefs,
    path: PathBuf,
}

const PREFIX: &str = "pagehaul-";

impl Instance {
    pub(super) fn create(tracefs: &Tracefs, options: &InstanceOptions) -> Result<Self, TraceError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let instances = tracefs.root().join("instances");
        remove_orphans(&instances);
        let name = format!("{PREFIX}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = instances.join(name);
        fs::create_dir(&path).map_err(|error| refused(&path, "make the tracing instance", error))?;
        // From here on, dropping removes it.
        let instance = Self { tracefs: tracefs.clone(), path };
        instance.write("tracing_on", "0")?;
        instance.write("trace_clock", &options.clock)?;
        instance.write("buffer_size_kb", &options.buffer_kb.to_string())?;
        Ok(instance)
    }

    /// The tracefs it is in.
    pub fn tracefs(&self) -> &Tracefs {
        &self.tracefs
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The text of a file of the instance.
    ///
    /// # Errors
    /// [`TraceError`] if it cannot be read.
    pub fn read(&self, file: &str) -> Result<String, TraceError> {
        tracefs::read(&self.path.join(file))
    }

    /// Writes a setting of the instance, as `echo TEXT > FILE` does.
    ///
    /// # Errors
    /// [`TraceError`] if it cannot be written.
    pub fn write(&self, file: &str, text: &str) -> Result<(), TraceError> {
        tracefs::write(&self.path.join(file), text, true)
    }

    /// Has an event recorded.
    ///
    /// # Errors
    /// [`TraceError::NoSuchEvent`] if this kernel has none of this name.
    pub fn enable(&self, system: &str, event: &str) -> Result<(), TraceError> {
        if !self.tracefs.has_event(system, event) {
            return Err(TraceError::NoSuchEvent {
                system: system.into(),
                event: event.into(),
                hint: "its release is older or newer than the event, or it was built without it",
            });
        }
        self.write(&format!("events/{system}/{event}/enable"), "1")
    }

    /// The format of an event.
    ///
    /// # Errors
    /// [`TraceError`] if there is none, or it cannot be understood.
    pub fn format(&self, system: &str, event: &str) -> Result<EventFormat, TraceError> {
        EventFormat::parse(system, &self.format_text(system, event)?)
    }

    /// The text of an event's `format` file.
    ///
    /// # Errors
    /// [`TraceError`] if it cannot be read.
    pub fn format_text(&self, system: &str, event: &str) -> Result<String, TraceError> {
        self.read(&format!("events/{system}/{event}/format"))
    }

    /// `SYSTEM:EVENT` names of the events that are switched on.
    ///
    /// # Errors
    /// [`TraceError`] if the kernel does not say.
    pub fn enabled(&self) -> Result<Vec<(String, String)>, TraceError> {
        let list = self.read("set_event")?;
        let names = list.lines().filter_map(|line| line.split_once(':'));
        Ok(names.map(|(system, event)| (system.to_owned(), event.to_owned())).collect())
    }

    /// The formats of the events that are switched on.
    ///
    /// # Errors
    /// [`TraceError`] if one cannot be read.
    pub fn formats(&self) -> Result<Formats, TraceError> {
        let mut formats = Formats::default();
        for (system, event) in self.enabled()? {
            formats.add(self.format(&system, &event)?);
        }
        // What tracers and triggers write (function_graph, stacktrace), no list of events switched on names.
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

    /// The layout of sub-buffers.
    ///
    /// # Errors
    /// [`TraceError`] if `header_page` cannot be read or understood.
    pub fn layout(&self) -> Result<SubBufferLayout, TraceError> {
        SubBufferLayout::parse(&self.header_page()?, crate::Abi::host().big_endian)
    }

    /// The text of `events/header_page`: the instance's own where it has one (sub-buffers may have a size of their own).
    ///
    /// # Errors
    /// [`TraceError`] if it cannot be read.
    pub fn header_page(&self) -> Result<String, TraceError> {
        self.read("events/header_page").or_else(|_| self.tracefs.read("events/header_page"))
    }

    /// The CPUs that have a buffer, ascending.
    ///
    /// # Errors
    /// [`TraceError`] if the folder cannot be read.
    pub fn cpus(&self) -> Result<Vec<u32>, TraceError> {
        let path = self.path.join("per_cpu");
        let entries = path.read_dir().map_err(|error| refused(&path, "read", error))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut cpus: Vec<u32> = names.filter_map(|name| name.strip_prefix("cpu")?.parse().ok()).collect();
        cpus.sort_unstable();
        Ok(cpus)
    }

    /// Opens a CPU's binary buffer for reading without waiting.
    ///
    /// # Errors
    /// [`TraceError`] if the kernel refuses.
    pub fn pipe(&self, cpu: u32, sub_buffer_size: u32) -> Result<CpuPipe, TraceError> {
        CpuPipe::open(&self.path.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw")), sub_buffer_size)
    }

    /// Events the kernel overwrote or dropped on a CPU since the instance was made.
    ///
    /// # Errors
    /// [`TraceError`] if the kernel does not say.
    pub fn lost(&self, cpu: u32) -> Result<u64, TraceError> {
        let stats = self.read(&format!("per_cpu/cpu{cpu}/stats"))?;
        let value = |name: &str| {
            let line = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|value| value.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        Ok(value("overrun") + value("commit overrun") + value("dropped events"))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Stops and removes an instance. Nothing can be done about failure: the next process tries again.
fn remove(path: &Path) {
    let _ = tracefs::write(&path.join("tracing_on"), "0", true);
    let _ = tracefs::write(&path.join("events/enable"), "0", true);
    let _ = fs::remove_dir(path);
}

/// Removes the instances of processes that no longer exist.
fn remove_orphans(instances: &Path) {
    let Ok(entries) = instances.read_dir() else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let pid =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-')?.0.parse::<u32>().ok());
        if let Some(pid) = pid
            && !Path::new("/proc").join(pid.to_string()).exists()
        {
            remove(&entry.path());
        }
    }
}
