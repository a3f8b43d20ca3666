use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::error::TraceError;

/// Conventional mount points: debugfs on kernels before 4.1 and systems that still mount it there.
const MOUNT_POINTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A mounted tracefs.
#[derive(Debug, Clone)]
pub struct Tracefs {
    root: PathBuf,
}

impl Tracefs {
    /// Finds the mounted tracefs.
    ///
    /// # Errors
    /// [`TraceError::Unavailable`] if it is not mounted, or access is denied.
    pub fn find() -> Result<Self, TraceError> {
        let mut refused = None;
        for place in MOUNT_POINTS {
            let root = Path::new(place);
            match root.join("events").read_dir() {
                Ok(_) => return Ok(Self { root: root.to_owned() }),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refused = Some(root),
                Err(_) => {}
            }
        }
        Err(match refused {
            Some(root) => denied(&root.join("events")),
            None => TraceError::Unavailable(
                "tracefs is not mounted: `mount -t tracefs tracefs /sys/kernel/tracing` as root (if that fails, this kernel was \
                 built without CONFIG_TRACING)"
                    .into(),
            ),
        })
    }

    /// Uses `root` as tracefs: for tests and unusual mount points.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Returns the mount point.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Reads a file below the root.
    ///
    /// # Errors
    /// [`TraceError`] if the read fails.
    pub fn read(&self, file: &str) -> Result<String, TraceError> {
        read(&self.root.join(file))
    }

    /// Appends to a file below the root, as `echo TEXT >> FILE` does.
    ///
    /// # Errors
    /// [`TraceError`] if the write fails.
    pub fn append(&self, file: &str, text: &str) -> Result<(), TraceError> {
        write(&self.root.join(file), text, false)
    }

    /// Returns whether the kernel has the event.
    pub fn has_event(&self, system: &str, event: &str) -> bool {
        self.root.join("events").join(system).join(event).join("format").exists()
    }

    /// Returns the events of an event system, sorted; empty if there is no such system.
    pub fn events(&self, system: &str) -> Vec<String> {
        let Ok(entries) = self.root.join("events").join(system).read_dir() else { return Vec::new() };
        let entries = entries.flatten().filter(|entry| entry.path().join("format").exists());
        let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}

/// Reads a kernel file with a large first read: `header_page` and `header_event` return their text only to
/// the first read, whatever its size (`show_header` in kernel/trace/trace_events.c).
pub(super) fn read(path: &Path) -> Result<String, TraceError> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; 1 << 16];
    let mut file = File::open(path).map_err(|error| refused(path, "open", error))?;
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(refused(path, "read", error)),
        }
    }
}

/// Writes to a kernel file in a single call, which the kernel parses as one command.
pub(super) fn write(path: &Path, text: &str, truncate: bool) -> Result<(), TraceError> {
    let file = std::fs::OpenOptions::new().write(true).truncate(truncate).append(!truncate).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| refused(path, "write", error))
}

/// Wraps the error of a kernel file, and explains permission errors.
pub(super) fn refused(path: &Path, action: &'static str, source: io::Error) -> TraceError {
    if source.kind() == io::ErrorKind::PermissionDenied {
        denied(path)
    } else {
        TraceError::Io { path: path.to_owned(), action, source }
    }
}

/// Explains why access is denied.
fn denied(path: &Path) -> TraceError {
    let mode = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    let what = if mode.contains("[confidentiality]") {
        "kernel lockdown (confidentiality) forbids tracing: boot with lockdown=integrity or without lockdown"
    } else if rustix::process::geteuid().is_root() {
        "a container or security policy forbids tracing: run pagehaul on the host"
    } else {
        "tracing needs root: use sudo, or read a recorded trace"
    };
    TraceError::Unavailable(format!("cannot use {}: {what}", path.display()))
}
