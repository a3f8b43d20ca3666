//! Options that several commands share: one spelling, one meaning and one sentence each.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread;
#[cfg(feature = "stalls")]
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use pagehaul_encryption::Unlocking;
use pagehaul_physmem::MapPolicy;
use pagehaul_physmem::file::open_regular;
#[cfg(any(feature = "stalls", feature = "process"))]
use pagehaul_present::number::parse_bytes;
#[cfg(feature = "stalls")]
use pagehaul_present::time::parse_duration;
use pagehaul_vmcore::{Layout, Source};
use serde::Serialize;

use crate::printed::{self, Manner};
use crate::sandbox::{self, Sandbox};

/// The memory of the running kernel.
pub(crate) const LIVE: &str = "/proc/kcore";

/// The dump that a command reads.
#[derive(Debug, Args)]
pub(crate) struct Dumps {
    /// The dump, or the parts of a split set: files, or URLs (http://, https://, s3://BUCKET/KEY)
    #[arg(required = true, value_name = "DUMP")]
    pub(crate) dumps: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) identity: Identity,
    #[command(flatten)]
    pub(crate) layout: ImageLayout,
}

/// `--layout`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ImageLayout {
    /// The dump is a raw image of memory, and its bytes belong where this says: `flat`, offsets in the file are physical addresses;
    /// `pc`, `q35`, `firecracker` or `cloud-hypervisor`, the memory file of such a virtual machine of x86_64; or ranges in hexadecimal
    /// START-END@OFFSET, separated by commas, of which END, the last byte, may be missing; or `state.json` of a Cloud Hypervisor snapshot,
    /// by its path. Other dumps say it themselves
    #[arg(long, value_name = "LAYOUT", value_parser = layout)]
    layout: Option<GivenLayout>,
}

/// What `--layout` names.
#[derive(Debug, Clone)]
struct GivenLayout {
    text: String,
    /// A file's contents, which are parsed once this process is confined.
    state: Option<Vec<u8>>,
}

/// Takes a layout; reads the file that one names.
fn layout(text: &str) -> Result<GivenLayout, String> {
    let mut given = GivenLayout { text: text.to_owned(), state: None };
    if text.ends_with(".json") {
        let file = open_regular(Path::new(text)).map_err(|error| error.to_string())?;
        let mut state = Vec::new();
        file.take(pagehaul_images::MAX_STATE).read_to_end(&mut state).map_err(|error| error.to_string())?;
        given.state = Some(state);
    } else {
        text.parse::<Layout>().map_err(|error| error.to_string())?;
    }
    Ok(given)
}

impl GivenLayout {
    fn layout(&self) -> anyhow::Result<Layout> {
        match &self.state {
            Some(state) => pagehaul_images::layout_of_snapshot(state).with_context(|| self.text.clone()),
            None => Ok(self.text.parse()?),
        }
    }
}

impl ImageLayout {
    /// Opens a dump, and finds its kernel in memory if it does not describe it. Prints how on standard error.
    pub(crate) fn open(&self, dumps: &[PathBuf]) -> anyhow::Result<Source> {
        let source = self.open_quietly(dumps, MapPolicy::default())?;
        source.remarks().iter().for_each(|remark| tell!("pagehaul: {remark}"));
        Ok(source)
    }

    /// As [`open`](Self::open), for commands that others read, or that do not print names.
    pub(crate) fn open_quietly(&self, dumps: &[PathBuf], policy: MapPolicy) -> anyhow::Result<Source> {
        let layout = self.layout.as_ref().map(GivenLayout::layout).transpose()?;
        Ok(pagehaul_images::open_all(dumps, layout.as_ref(), policy)?)
    }

    /// Returns the options of another run of this program on the same dump.
    pub(crate) fn to_arguments(&self) -> Vec<String> {
        self.layout.iter().map(|layout| format!("--layout={}", layout.text)).collect()
    }
}

/// `--identity`.
#[derive(Debug, Args)]
pub(crate) struct Identity {
    /// Secret key of an encrypted file: a file of `age-keygen`, or a private ed25519 key of SSH without a passphrase; `-`, and the pipe of
    /// `<(pass show key)`, are read once [default: the file that the environment variable PAGEHAUL_IDENTITY names]
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
}

impl Identity {
    /// The file, if it is named.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.identity.as_deref()
    }

    /// Whether it comes from standard input.
    #[cfg(feature = "mount")]
    pub(crate) fn reads_stdin(&self) -> bool {
        self.identity.as_deref().is_some_and(|identity| {
            ["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"].iter().any(|name| identity == Path::new(name))
        })
    }

    /// What opens encrypted files.
    pub(crate) fn unlocking(&self) -> anyhow::Result<Unlocking> {
        Ok(Unlocking::new(self.identity.as_deref())?)
    }

    /// Keeps what opens the encrypted ones of `files`. Has to precede the sandbox.
    pub(crate) fn hold(&self, files: &[PathBuf]) -> anyhow::Result<()> {
        Ok(pagehaul_encryption::hold(self.identity.as_deref(), files)?)
    }
}

/// `--verbose`, of commands that read dumps.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Verbose {
    /// Print on standard error how much of a dump on a server was fetched, and what this kernel's sandbox lacks
    #[arg(short, long)]
    verbose: bool,
}

impl Verbose {
    /// Whether it is given.
    pub(crate) fn is_set(self) -> bool {
        self.verbose
    }
}

impl Dumps {
    /// Opens the dump. Nothing but its files can be opened afterwards.
    pub(crate) fn open(&self) -> anyhow::Result<Source> {
        self.identity.hold(&self.dumps)?;
        sandbox::enter(Sandbox::reading(&self.dumps))?;
        self.layout.open(&self.dumps)
    }

    /// As [`open`](Self::open), and prints nothing.
    pub(crate) fn open_quietly(&self) -> anyhow::Result<Source> {
        self.identity.hold(&self.dumps)?;
        sandbox::enter(Sandbox::reading(&self.dumps))?;
        self.layout.open_quietly(&self.dumps, MapPolicy::default())
    }
}

/// Parses a process ID.
#[cfg(feature = "process")]
pub(crate) fn pid(text: &str) -> Result<pagehaul_process::Pid, String> {
    text.parse().map_err(|_| "expected the number of a process; `pgrep NAME` prints it".into())
}

/// `--threads`.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Threads {
    /// Worker threads [default: all CPUs available to this process]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl Threads {
    /// How many threads to use.
    pub(crate) fn count(self) -> usize {
        self.threads.map_or_else(|| thread::available_parallelism().map_or(1, Into::into), usize::from)
    }
}

/// `--force`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Overwrite {
    /// Replace OUTPUT if it exists
    #[arg(long)]
    pub(crate) force: bool,
}

/// `--json`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Json {
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

impl Json {
    /// Prints `value` as JSON, or the text that `render` makes of it.
    pub(crate) fn print<T: Serialize>(
        self,
        value: &T,
        render: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        if self.json { printed::json(value) } else { printed::report(&render(value)) }
    }
}

/// `--html`.
#[cfg(any(feature = "census", feature = "stalls"))]
#[derive(Debug, Args)]
pub(crate) struct Html {
    /// Write one self-contained web page to FILE instead of text
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) html: Option<PathBuf>,
    /// Replace FILE if it exists
    #[arg(long, requires = "html")]
    force: bool,
}

#[cfg(any(feature = "census", feature = "stalls"))]
impl Html {
    /// Refuses a file that the page cannot be written to.
    pub(crate) fn check<'a>(&self, sources: impl IntoIterator<Item = &'a Path>) -> anyhow::Result<()> {
        self.html.as_ref().map_or(Ok(()), |path| crate::files::check(path, sources, self.force))
    }

    /// Writes the page, if it is wanted instead of text. Returns whether it is.
    pub(crate) fn write<'a, Page: AsRef<[u8]>>(
        &self,
        page: impl FnOnce() -> anyhow::Result<Page>,
        sources: impl IntoIterator<Item = &'a Path>,
    ) -> anyhow::Result<bool> {
        let Some(path) = &self.html else { return Ok(false) };
        crate::files::write(path, page()?, sources, self.force).map(|()| true)
    }
}

/// `--plot`.
#[cfg(feature = "bench")]
#[derive(Debug, Args)]
pub(crate) struct Plot {
    /// Also write charts to FILE as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Replace FILE if it exists
    #[arg(long, requires = "plot")]
    force: bool,
}

#[cfg(feature = "bench")]
impl Plot {
    /// The file that charts are written to.
    pub(crate) fn path(&self) -> Option<&PathBuf> {
        self.plot.as_ref()
    }

    /// Refuses a file that charts cannot be written to, before minutes are spent.
    pub(crate) fn check<'a>(&self, sources: impl IntoIterator<Item = &'a Path>) -> anyhow::Result<()> {
        self.plot.as_ref().map_or(Ok(()), |path| crate::files::check(path, sources, self.force))
    }

    /// Writes the charts, if they are wanted.
    pub(crate) fn write<'a>(
        &self,
        charts: impl FnOnce() -> String,
        sources: impl IntoIterator<Item = &'a Path>,
    ) -> anyhow::Result<()> {
        self.plot.as_ref().map_or(Ok(()), |path| crate::files::write(path, charts(), sources, self.force))
    }
}

/// `--quiet`.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Quiet {
    /// Print errors only
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// `--json` and `--quiet`, of commands that report what they did.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Reporting {
    #[command(flatten)]
    json: Json,
    #[command(flatten)]
    quiet: Quiet,
}

impl Reporting {
    pub(crate) fn is_json(self) -> bool {
        self.json.json
    }

    pub(crate) fn is_quiet(self) -> bool {
        self.quiet.quiet
    }

    /// How to print a report. `output_taken`: the output goes to standard output.
    pub(crate) fn manner(self, output_taken: bool) -> Manner {
        Manner { json: self.is_json(), quiet: self.is_quiet(), output_taken }
    }
}

/// `--max-memory`, of commands that stop processes while they copy them.
#[cfg(feature = "process")]
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct MaxMemory {
    /// Most memory for copies. If it is too small, `checkpoint` compresses and writes copies before it stops the processes, and
    /// `core` keeps them stopped until the rest is written [default: half of the available memory]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(crate) max_memory: Option<u64>,
}

/// `--root`.
#[cfg(feature = "kdump-setup")]
#[derive(Debug, Args)]
pub(crate) struct RootDirectory {
    /// Read a copy of a machine's files (/etc, /proc, /sys, /var ...) below DIR
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
}

#[cfg(feature = "kdump-setup")]
impl RootDirectory {
    /// Opens the directory.
    pub(crate) fn open(&self) -> anyhow::Result<pagehaul_kdump_setup::Root> {
        let opened = pagehaul_kdump_setup::Root::open(&self.root);
        opened.with_context(|| format!("cannot open the directory {}", self.root.display()))
    }

    /// Whether the files are those of this machine.
    pub(crate) fn is_this_machine(&self) -> bool {
        self.root == Path::new("/")
    }
}

/// `--capture-cpus`.
#[cfg(feature = "kdump-setup")]
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct CaptureCpus {
    /// CPUs that the capture kernel is to use [default: as many as pay off; for `kdump check` and `kdump test`, as configured]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=8192))]
    pub(crate) capture_cpus: Option<u32>,
}

/// Options of commands that trace the running kernel.
#[cfg(feature = "stalls")]
#[derive(Debug, Args)]
pub(crate) struct LiveTrace {
    /// Stop after TIME (500ms, 10s, 5m) [default: when COMMAND ends, or on Ctrl-C]
    #[arg(long, value_name = "TIME", value_parser = positive_duration)]
    pub(crate) duration: Option<Duration>,
    /// Size of the kernel's buffer per CPU: larger ones lose fewer events [default: 4M; of `reclaim record`, 8M]
    #[arg(long, value_name = "SIZE", value_parser = trace_buffer_kb)]
    buffer_size: Option<u32>,
    #[command(flatten)]
    pub(crate) overwrite: Overwrite,
    /// Trace while COMMAND runs (all processes, not only COMMAND)
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

#[cfg(feature = "stalls")]
impl LiveTrace {
    /// KiB of the kernel's buffer.
    pub(crate) fn buffer_kb(&self, default: u32) -> u32 {
        self.buffer_size.unwrap_or(default)
    }
}

/// Parses a time of more than 0.
#[cfg(feature = "stalls")]
pub(crate) fn positive_duration(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        Duration::ZERO => Err("expected more than 0".into()),
        duration => Ok(duration),
    }
}

/// Parses the size of a kernel trace buffer, and returns it in KiB, which tracefs takes.
#[cfg(feature = "stalls")]
fn trace_buffer_kb(text: &str) -> Result<u32, String> {
    let bytes = parse_bytes(text)?;
    u32::try_from(bytes >> 10)
        .ok()
        .filter(|kb| (16..=4 << 20).contains(kb) && bytes.is_multiple_of(1 << 10))
        .ok_or_else(|| "expected a size from 16K to 4G such as 512K, 8M".to_owned())
}
