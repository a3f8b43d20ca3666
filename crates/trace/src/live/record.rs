use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::machine::{cgroup_ids, machine_info, read_counters};
use super::references::References;
use super::{CpuPipe, Instance};
use crate::comms::Comms;
use crate::error::TraceError;
use crate::info::Run;
use crate::pht::{BlockEncoder, PhtWriter};
use crate::ring::SubBufferLayout;
use crate::symbols::Symbols;

/// Options of a recording.
#[derive(Debug, Clone)]
pub struct RecorderOptions {
    /// zstd level.
    pub level: i32,
    /// Command line to store in the recording.
    pub command: Vec<String>,
    /// Exclude the recorder's own events, for traces in which each read would cause further events. Needs
    /// `set_event_notrace_pid`.
    pub without_self: bool,
}

impl Default for RecorderOptions {
    fn default() -> Self {
        Self { level: 1, command: Vec::new(), without_self: false }
    }
}

/// Figures of a finished recording.
#[derive(Debug, Clone, Default)]
pub struct RecordingSummary {
    /// Events written.
    pub events: u64,
    /// Uncompressed bytes of sub-buffers.
    pub raw_bytes: u64,
    /// Size of the file in bytes.
    pub file_bytes: u64,
    /// Lost events, all CPUs.
    pub lost: u64,
    /// CPU time of the recording threads in nanoseconds.
    pub cpu_ns: u64,
}

/// Records the events of an instance to a file, on threads of its own.
///
/// The recorder must not distort what it measures: it locks its memory, and flushes and drops written pages
/// from the page cache in batches.
pub struct Recorder {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Result<Part, TraceError>>>,
    path: PathBuf,
    /// Last field, so that the pipes are closed before the instance is removed.
    instance: Instance,
}

struct Shared {
    stop: AtomicBool,
    /// A thread failed; the recording cannot continue.
    failed: AtomicBool,
    out: Mutex<Out>,
}

struct Out {
    writer: Option<PhtWriter<File>>,
    /// Bytes whose page cache has been dropped.
    dropped: u64,
}

/// Results of one thread.
struct Part {
    seen: References,
    raw_bytes: u64,
    cpu_ns: u64,
}

/// CPUs per thread: a sub-buffer takes microseconds, so that one thread keeps up with many idle CPUs.
const CPUS_PER_THREAD: usize = 16;
/// Sub-buffers per block.
const BLOCK_PAGES: usize = 64;
/// Bytes written between two flushes of the page cache.
const WRITE_BEHIND: u64 = 8 << 20;
/// Polling intervals at low and high event rates.
const IDLE: Duration = Duration::from_millis(50);
const BUSY: Duration = Duration::from_millis(5);

impl Recorder {
    /// Starts a recording to `file`, which messages call `path`: writes the machine's description and counters,
    /// then turns tracing on. Enable the events in `instance` first.
    ///
    /// # Errors
    /// [`TraceError`] if the instance cannot be read or the file cannot be written.
    pub fn start(
        instance: Instance,
        (file, path): (File, &Path),
        options: &RecorderOptions,
    ) -> Result<Self, TraceError> {
        let mut writer = PhtWriter::new(file, path, options.level)?;
        writer.machine(&machine_info(&instance, &options.command)?)?;
        writer.header_page(&instance.header_page()?)?;
        for (system, event) in instance.enabled()? {
            writer.format(&system, &instance.format_text(&system, &event)?)?;
        }
        let (formats, layout) = (instance.formats()?, instance.layout()?);
        let mut pipes = Vec::new();
        for cpu in instance.cpus()? {
            pipes.push((cpu, instance.pipe(cpu, layout.sub_buffer_size)?));
        }
        lock_memory();
        writer.counters_before(&read_counters())?;
        let out = Mutex::new(Out { writer: Some(writer), dropped: 0 });
        let shared = Arc::new(Shared { stop: AtomicBool::new(false), failed: AtomicBool::new(false), out });
        let mut threads = Vec::new();
        while !pipes.is_empty() {
            let part: Vec<_> = pipes.drain(..pipes.len().min(CPUS_PER_THREAD)).collect();
            let (shared, seen) = (shared.clone(), References::new(&formats, layout));
            let encoder = BlockEncoder::new(path, options.level)?;
            let thread = std::thread::Builder::new().name("record".into()).spawn(move || {
                let result = read(&shared, part, seen, layout, encoder);
                shared.failed.fetch_or(result.is_err(), Ordering::Relaxed);
                result
            });
            threads.push(thread.map_err(TraceError::io(path, "start the thread that records"))?);
        }
        if options.without_self {
            let tasks = Path::new("/proc/self/task").read_dir().into_iter().flatten().flatten();
            let tasks: Vec<_> = tasks.filter_map(|task| task.file_name().into_string().ok()).collect();
            // Older kernels lack the file: the report then includes the recorder's events.
            let _ = instance.write("set_event_notrace_pid", &tasks.join(" "));
        }
        instance.write("tracing_on", "1")?;
        Ok(Self { shared, threads, path: path.to_owned(), instance })
    }

    /// Returns whether a thread failed; [`Recorder::finish`] returns its error.
    pub fn failed(&self) -> bool {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Adds a run of the command.
    ///
    /// # Errors
    /// [`TraceError`] if the write fails.
    pub fn run(&self, run: &Run) -> Result<(), TraceError> {
        let mut out = self.shared.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.writer.as_mut().map_or(Ok(()), |writer| writer.run(run))
    }

    /// Turns tracing off, drains the buffers and completes the file.
    ///
    /// # Errors
    /// The first [`TraceError`]; readers then report the file as truncated.
    pub fn finish(self) -> Result<RecordingSummary, TraceError> {
        let stopped = self.instance.write("tracing_on", "0");
        let end = read_counters();
        self.shared.stop.store(true, Ordering::Relaxed);
        let mut summary = RecordingSummary::default();
        let (mut addresses, mut ids, mut tasks) = (Default::default(), Default::default(), BTreeMap::new());
        let mut failure = stopped.err();
        for thread in self.threads {
            match thread.join() {
                Ok(Ok(mut part)) => {
                    summary.events += part.seen.events;
                    summary.raw_bytes += part.raw_bytes;
                    summary.cpu_ns += part.cpu_ns;
                    std::collections::BTreeSet::append(&mut addresses, &mut part.seen.addresses);
                    std::collections::BTreeSet::append(&mut ids, &mut part.seen.cgroup_ids);
                    tasks.append(&mut part.seen.tasks);
                }
                Ok(Err(error)) => failure = failure.or(Some(error)),
                Err(_) => {
                    failure = failure.or(Some(TraceError::thread_panicked(&self.path)));
                }
            }
        }
        let writer = self.shared.out.lock().unwrap_or_else(PoisonError::into_inner).writer.take();
        let (None, Some(mut writer)) = (&failure, writer) else {
            return Err(failure.unwrap_or_else(|| TraceError::thread_panicked(&self.path)));
        };
        writer.counters_after(&end)?;
        writer.comms(&comms(&self.instance, &tasks)?)?;
        tasks.retain(|_, path| !path.is_empty());
        writer.cgroups(&tasks, &cgroup_ids(&|id| ids.contains(&id)))?;
        if !addresses.is_empty() {
            writer.symbols(&Symbols::of_kernel().select(&addresses))?;
        }
        let mut lost = BTreeMap::new();
        for cpu in self.instance.cpus()? {
            if let Ok(count @ 1..) = self.instance.lost(cpu) {
                lost.insert(cpu, count);
            }
        }
        summary.lost = lost.values().sum();
        let size = writer.written();
        let file = writer.finish(&lost)?;
        summary.file_bytes = file.metadata().map_or(size, |metadata| metadata.len());
        Ok(summary)
    }
}

/// Returns `saved_cmdlines`, and the names of running tasks that are no longer in it.
fn comms(instance: &Instance, tasks: &BTreeMap<i32, String>) -> Result<Comms, TraceError> {
    let mut comms = Comms::parse(&instance.tracefs().read("saved_cmdlines")?);
    for &pid in tasks.keys() {
        if let Ok(name) = std::fs::read_to_string(format!("/proc/{pid}/comm")) {
            comms.insert_missing(pid, name.trim_end());
        }
    }
    Ok(comms)
}

/// Reads some CPUs until `stop` is set and their buffers are empty.
fn read(
    shared: &Shared,
    mut pipes: Vec<(u32, CpuPipe)>,
    mut seen: References,
    layout: SubBufferLayout,
    mut encoder: BlockEncoder,
) -> Result<Part, TraceError> {
    let (mut page, mut block) = (Vec::new(), Vec::new());
    let mut raw_bytes = 0;
    loop {
        // Loaded before reading: events from before the stop are then read after it.
        let last = shared.stop.load(Ordering::Relaxed);
        let mut most = 0;
        for (cpu, pipe) in &mut pipes {
            let mut count = 0;
            loop {
                let more = pipe.read(&mut page)?;
                if more {
                    seen.page(&page);
                    page.resize(layout.sub_buffer_size as usize, 0);
                    block.extend_from_slice(&page);
                    count += 1;
                }
                if block.len() >= BLOCK_PAGES * layout.sub_buffer_size as usize
                    || (!more && !block.is_empty())
                {
                    raw_bytes += block.len() as u64;
                    let packed = encoder.pages(*cpu, &block)?;
                    shared.out.lock().unwrap_or_else(PoisonError::into_inner).append(packed)?;
                    block.clear();
                }
                if !more {
                    break;
                }
            }
            most = most.max(count);
        }
        if last {
            let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            let cpu_ns = (cpu.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(cpu.tv_nsec as u64);
            return Ok(Part { seen, raw_bytes, cpu_ns });
        }
        match most {
            0..BLOCK_PAGES => std::thread::sleep(IDLE),
            _ if most < 4 * BLOCK_PAGES => std::thread::sleep(BUSY),
            _ => {}
        }
    }
}

impl Out {
    fn append(&mut self, block: &[u8]) -> Result<(), TraceError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.append(block)?;
        let written = writer.written();
        if written - self.dropped >= WRITE_BEHIND {
            // Starts writeback, and drops clean pages. From offset 0, so that pages whose writeback the last
            // call started go now. Advice only: failures do not matter.
            let len = std::num::NonZeroU64::new(written);
            let _ = rustix::fs::fadvise(writer.get_ref(), 0, len, rustix::fs::Advice::DontNeed);
            self.dropped = written;
        }
        Ok(())
    }
}

/// Locks this program's memory: a recorder that waits for its own page faults loses events. Pages are locked
/// as they are touched. Ignored where RLIMIT_MEMLOCK does not allow it.
fn lock_memory() {
    use rustix::mm::{MlockAllFlags, mlockall};
    let _ = mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT);
}
