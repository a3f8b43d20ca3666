//! Confines a process that parses a file from elsewhere: a dump or trace may be crafted to exploit the parser.
//!
//! From [`Sandbox::enter`] on, the process can read the files that it was given, compute, and write its answer:
//!
//! - The inputs are open. Of other files, only those in `files.rs` can be opened (Landlock).
//! - Outputs, if there are any, can be written in their directories. Without outputs, nothing can be opened for writing.
//! - System calls are those of an allow list (`system_calls.rs`, seccomp): no programs, processes, sockets, signals to others,
//!   changes of owners or modes, or executable memory.
//! - It has no capabilities (`capabilities.rs`), no secrets in its environment (`environment.rs`), and no files that it inherited
//!   (`descriptors.rs`).
//!
//! An old kernel enforces what it knows. [`Sandbox::enter`] returns the [`Gap`]s.

mod capabilities;
mod descriptors;
mod environment;
mod files;
mod limits;
mod program;
mod system_calls;

use std::io;
use std::path::PathBuf;

pub use limits::limit_memory;

/// What a process may still do. By default no file can be opened: files that are open stay open.
#[derive(Debug, Default)]
pub struct Sandbox {
    inputs: Vec<PathBuf>,
    outputs: Vec<PathBuf>,
    trees: Vec<PathBuf>,
}

/// What this kernel cannot enforce.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Gap {
    /// Landlock is missing.
    #[error("this kernel has no Landlock (Linux 5.13): files that the user may open are not out of reach")]
    Files,
    /// Landlock knows no truncation.
    #[error(
        "this kernel's Landlock knows no truncation (Linux 6.2): the files that are read could be emptied"
    )]
    Truncation,
    /// Seccomp filters are missing.
    #[error("this kernel refuses seccomp filters ({0}): no system call is out of reach")]
    SystemCalls(String),
    /// The process has other threads, which Landlock (before Linux 7.0) and capabilities do not cover.
    #[error("the process had other threads: their files and capabilities are not restricted")]
    Threads,
    /// Capabilities could not be dropped.
    #[error("capabilities cannot be dropped: {0}")]
    Capabilities(rustix::io::Errno),
}

/// Why a process is not confined.
#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    /// The process that fetches URLs cannot be started.
    #[error("cannot start the process that fetches URLs: {0}")]
    Fetcher(io::Error),
    /// The process may open no more files. Without a rule for it, a file would be out of reach, as if the user had no right to it.
    #[error("cannot open {path} to allow access to it; raise the limit of open files (ulimit -n)", path = path.display())]
    Files {
        /// What was to be allowed.
        path: PathBuf,
        source: io::Error,
    },
}

impl Sandbox {
    /// A sandbox in which `inputs` can be read: files, directories and what is in them, URLs.
    pub fn reading<'a>(inputs: impl IntoIterator<Item = &'a PathBuf>) -> Self {
        Self { inputs: inputs.into_iter().cloned().collect(), ..Self::default() }
    }

    /// Also allows writing to `outputs`, and to new files next to them. `-` is standard output.
    #[must_use]
    pub fn writing<'a>(mut self, outputs: impl IntoIterator<Item = &'a PathBuf>) -> Self {
        self.outputs.extend(outputs.into_iter().filter(|path| path.as_os_str() != "-").cloned());
        self
    }

    /// Also allows creating directories and files below `directory`.
    #[must_use]
    pub fn writing_below(mut self, directory: PathBuf) -> Self {
        self.trees.push(directory);
        self
    }

    /// Confines the process, for good. Must precede the first thread: capabilities, and Landlock before Linux 7.0, bind their
    /// caller and later threads.
    ///
    /// Opens the inputs first, with the rights that the process still has, for
    /// [`PlainFile::open`](pagehaul_physmem::file::PlainFile::open) and its like. URLs are fetched by another process, which is not
    /// confined and parses nothing.
    ///
    /// # Errors
    /// Fails if that process cannot be started, or the process can open no more files. The caller then ends.
    pub fn enter(self) -> Result<Vec<Gap>, EnterError> {
        pagehaul_physmem::file::hold_open(&self.inputs);
        // rustix reads what the kernel passes to a new program once, by calls that are refused later.
        rustix::param::page_size();
        #[cfg(feature = "remote")]
        pagehaul_remote::fetch_in_another_process(&self.inputs).map_err(EnterError::Fetcher)?;
        environment::scrub();
        if !self.names_open_files() {
            descriptors::close_inherited();
        }
        let mut gaps = Vec::new();
        // Landlock and seccomp set it, too, where they exist.
        let _ = rustix::thread::set_no_new_privs(true);
        if descriptors::has_threads() {
            gaps.push(Gap::Threads);
        }
        let writes = !self.outputs.is_empty() || !self.trees.is_empty();
        // Before files: what an output needs is looked up.
        let kept = capabilities::needed(&self.inputs, self.outputs.iter().chain(&self.trees));
        gaps.extend(files::restrict(&self, writes)?);
        gaps.extend(capabilities::drop_all_but(kept));
        gaps.extend(system_calls::restrict(writes));
        Ok(gaps)
    }

    fn names_open_files(&self) -> bool {
        self.inputs.iter().chain(&self.outputs).any(|path| pagehaul_output::names_open_file(path))
    }
}
