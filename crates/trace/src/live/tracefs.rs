use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::{Instance, InstanceOptions};
use crate::TraceError;

/// Where tracefs is by convention; under debugfs on kernels before 4.1 and systems that still mount it there.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The kernel's tracing files.
#[derive(Debug, Clone)]
pub struct Tracefs {
    root: PathBuf,
}

impl Tracefs {
    /// Finds the mounted tracefs.
    ///
    /// # Errors
    /// [`TraceError::Unavailable`] with one sentence: not mounted, no permission, or locked down.
    pub fn find() -> Result<Self, TraceError> {
        let mut refused = None;
        for place in PLACES {
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

    /// Takes `root` for the tracing files, wherever it is: for tests and unusual mounts.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The folder of the tracing files.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes a private instance, which is removed when it is dropped, and clears away those left behind by processes that
    /// were killed.
    ///
    /// # Errors
    /// [`TraceError`] if the kernel refuses.
    pub fn create_instance(&self, options: &InstanceOptions) -> Result<Instance, TraceError> {
        Instance::create(self, options)
    }

    /// The text of a file below the root.
    ///
    /// # Errors
    /// [`TraceError`] if it cannot be read.
    pub fn read(&self, file: &str) -> Result<String, TraceError> {
        read(&self.root.join(file))
    }

    /// Writes to a file below the root, as `echo TEXT >> FILE` does.
    ///
    /// # Errors
    /// [`TraceError`] if it cannot be written.
    pub fn append(&self, file: &str, text: &str) -> Result<(), TraceError> {
        write(&self.root.join(file), text, false)
    }

    /// Whether this kernel has the event.
    pub fn has_event(&self, system: &str, event: &str) -> bool {
        self.root.join("events").join(system).join(event).join("format").exists()
    }

    /// Names of the events of a subsystem, sorted; none if there is no such subsystem.
    pub fn events(&self, system: &str) -> Vec<String> {
        let Ok(entries) = self.root.join("events").join(system).read_dir() else { return Vec::new() };
        let entries = entries.flatten().filter(|entry| entry.path().join("format").exists());
        let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }
}

/// Reads a file of the kernel's. The first read asks for much: `header_page` and `header_event` give everything at once and
/// nothing to a second read, whatever the first one took (`show_header` in kernel/trace/trace_events.c).
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

/// Writes to a file of the kernel's in one call, which is how the kernel takes commands.
pub(super) fn write(path: &Path, text: &str, truncate: bool) -> Result<(), TraceError> {
    let file = std::fs::OpenOptions::new().write(true).truncate(truncate).append(!truncate).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| refused(path, "write", error))
}

/// The error of a file of the kernel's: a refusal is explained.
pub(super) fn refused(path: &Path, action: &'static str, source: io::Error) -> TraceError {
    if source.kind() == io::ErrorKind::PermissionDenied {
        denied(path)
    } else {
        TraceError::Io { path: path.to_owned(), action, source }
    }
}

/// Why root or the kernel keeps us out.
fn denied(path: &Path) -> TraceError {
    let mode = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    let what = if mode.contains("[confidentiality]") {
        "the kernel is locked down for confidentiality: tracing needs lockdown=integrity or none on the kernel command line"
    } else if rustix::process::geteuid().is_root() {
        "root may not: this container or security policy keeps tracing back; run it on the host"
    } else {
        "tracing needs root: run it with sudo, or read a recorded trace"
    };
    TraceError::Unavailable(format!("cannot use {}: {what}", path.display()))
}
