//! Restarting from a checkpoint: every block is checked, then CRIU is given the images it asks for.

use std::env::consts::ARCH;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Builder};
use std::time::Instant;

use pagehaul_pool::{Ticket, Work, ordered};
use pagehaul_run::{Phase, Progress};
use rustix::event::PollFlags;
use serde::Serialize;

use super::chain::{Chain, Reader};
use super::container::{BLOCK, container_path};
use super::criu::{Criu, Images};
use super::ending::{self, Made, PipeWriter, ready};
use super::huge_pages::HugePages;
use super::image_directory;
use super::info::check_blocks;
use super::losses;
use super::options::Lost;
use super::own_options::{self, Action};
use super::work_directory::{WorkDirectory, accept_criu};
use super::{pids, timers, wire};
use crate::error::ProcessError;
use crate::prepare::living;
use crate::units::{Pid, page_size};

/// How processes are restarted.
#[derive(Debug, Clone, Default)]
pub struct RestartOptions {
    /// Threads that check and decompress.
    pub threads: usize,
    /// CRIU, where it isn't to be searched on PATH.
    pub criu: Option<PathBuf>,
    /// More arguments for CRIU.
    pub arguments: Vec<String>,
}

/// The report of a finished run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RestartReport {
    /// The first process.
    pub pid: Pid,
    /// CRIU's version.
    pub criu: String,
    pub image_bytes: u64,
    /// Periodic timers that had expired when they were saved. They fire again one interval after the restart.
    pub rearmed_timers: usize,
    /// What the processes lack, because CRIU does not restore it.
    pub lost: Vec<Lost>,
    /// Seconds to verify every block.
    pub verify_seconds: f64,
    /// Seconds for everything.
    pub seconds: f64,
}

/// Refuses a checkpoint of another machine, or of the same one with a kernel of other pages: CRIU does not look, counts in pages, and would
/// put memory at other addresses. Older checkpoints do not say.
fn check_machine(about: &serde_json::Value, machine: &str, page: u64) -> Result<(), ProcessError> {
    let (saved, saved_page) =
        (about["machine"].as_str().unwrap_or(machine), about["page_size"].as_u64().unwrap_or(page));
    if (saved, saved_page) == (machine, page) {
        return Ok(());
    }
    Err(ProcessError::Refused(format!(
        "the processes were saved on {saved} with pages of {} KiB, and this is {machine} with pages of {} KiB: restart them on a machine \
         like the first",
        saved_page >> 10,
        page >> 10
    )))
}

/// Restarts the processes of a checkpoint. Until this program ends, the first is its child; if they cannot be restarted, all
/// children that it got meanwhile are killed.
pub fn restart(
    path: &Path,
    options: &RestartOptions,
    progress: &Progress,
) -> Result<RestartReport, ProcessError> {
    let begun = Instant::now();
    own_options::check(Action::Restore, &options.arguments)?;
    crate::procfs::check_system()?;
    let chain = Chain::open(&container_path(path))?;
    check_machine(&chain.newest().index.about(), ARCH, page_size())?;
    let criu = Criu::find(options.criu.as_deref(), progress)?;
    criu.check_arguments(&options.arguments, progress)?;
    let image_bytes = chain.image_bytes();
    // Looked at once for the checksums, and again for CRIU.
    progress.expect(2 * image_bytes);
    progress.enter(Phase::Pack);
    if let Some(error) = check_blocks(&chain.needed_blocks(), options.threads, progress).into_iter().next() {
        return Err(error);
    }
    if progress.is_cancelled() {
        return Err(ProcessError::Refused("stopped before anything was restarted".into()));
    }
    let verify_seconds = begun.elapsed().as_secs_f64();
    pids::wait_until_free(&pids_of(&chain)?, progress)?;
    let huge_pages = HugePages::of(&chain)?;
    huge_pages.check()?;
    let timers = rearmed(&chain)?;
    let work = WorkDirectory::new()?;
    let resource = |action| move |source| ProcessError::Resource { action, source };
    let listener = if huge_pages.are_private {
        image_directory::write(&chain, timers.as_ref(), work.path(), options.threads, progress)?;
        None
    } else {
        Some(work.listen("streamer-serve.sock")?)
    };
    let pid_file = work.path().join("pid");
    let mut arguments = vec!["-d".to_owned(), "--pidfile".to_owned(), pid_file.display().to_string()];
    arguments.extend(options.arguments.iter().cloned());
    let made = Made::begin();
    let images = if listener.is_some() { Images::Streamed } else { Images::InDirectory };
    let mut child = criu.start("restore", images, work.path(), "restore.log", &arguments, None)?;
    let socket = listener.as_ref().and_then(|listener| accept_criu(listener, &mut child, progress));
    // CRIU would wait for an answer on a connection that is not taken.
    drop(listener);
    let served = match socket {
        Some(socket) => thread::scope(|scope| {
            let (criu, is_served) = (child.id(), Arc::new(AtomicBool::new(false)));
            let watched = Arc::clone(&is_served);
            let (made, builder) = (&made, Builder::new().name("watch".into()));
            // Without a thread, a CRIU that is killed from outside is noticed when its processes are.
            let watch = builder.spawn_scoped(scope, move || ending::watch_restoring(criu, made, &watched));
            let served = serve(socket, &chain, timers.as_ref(), options.threads, progress);
            is_served.store(true, Ordering::Release);
            if let Ok(watch) = watch {
                watch.thread().unpark();
            }
            served
        }),
        None => Ok(()),
    };
    let Some(ended) = ending::wait(&mut child, None, progress).map_err(resource("wait for CRIU"))? else {
        return Err(ending::end_restoring(&mut child, &made));
    };
    if !ended.success() {
        made.kill();
    }
    if !ended.success() && progress.is_cancelled() {
        return Err(ProcessError::Refused("stopped before anything was restarted".into()));
    }
    // EAGAIN: no thread could be started, which is why CRIU has failed.
    let no_thread = matches!(&served, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
    if !ended.success() && !no_thread {
        return Err(criu.failed("restart", work.path(), "restore.log", Ok(ended)));
    }
    served.map_err(resource("give CRIU its images"))?;
    let pid = started(&pid_file)?;
    Ok(RestartReport {
        pid,
        criu: criu.version,
        image_bytes,
        rearmed_timers: timers.map_or(0, |timers| timers.count),
        lost: losses::of(&chain.newest().index.about()),
        verify_seconds,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

/// The first process, whose number CRIU wrote to a file. Fails unless it runs.
fn started(pid_file: &Path) -> Result<Pid, ProcessError> {
    let text = fs::read_to_string(pid_file).unwrap_or_default();
    let pid = text.trim().parse().ok().filter(|pid: &Pid| *pid > 0);
    let pid = pid.ok_or(ProcessError::NothingStarted)?;
    match living(pid) {
        Ok(_) => Ok(pid),
        Err(ProcessError::NoProcess(_) | ProcessError::Zombie(_)) => Err(ProcessError::NotAlive(pid)),
        Err(error) => Err(error),
    }
}

/// The PIDs that a checkpoint's processes and threads had.
fn pids_of(chain: &Chain) -> Result<Vec<Pid>, ProcessError> {
    let content = chain.find(pids::IMAGE).map(|image| chain.content(image)).transpose()?;
    content.and_then(|bytes| pids::parse(&bytes)).ok_or_else(|| {
        let what = format!("its {} is missing or invalid: it is not a checkpoint of CRIU 4", pids::IMAGE);
        ProcessError::Damaged { path: chain.newest().path.clone(), what }
    })
}

/// The image of open files, changed so that expired periodic timers fire again.
pub(super) struct Rearmed {
    pub(super) files: Vec<u8>,
    count: usize,
}

/// None if there is no such timer, or the image is not as CRIU 4 writes it.
fn rearmed(chain: &Chain) -> Result<Option<Rearmed>, ProcessError> {
    let content = chain.find(timers::IMAGE).map(|image| chain.content(image)).transpose()?;
    let changed = content.and_then(|content| timers::rearm(&content));
    Ok(changed.filter(|(_, count)| *count > 0).map(|(files, count)| Rearmed { files, count }))
}

/// Answers CRIU until it has all it wants, or the run is cancelled: CRIU then gives up.
fn serve(
    mut socket: UnixStream,
    chain: &Chain,
    timers: Option<&Rearmed>,
    threads: usize,
    progress: &Progress,
) -> io::Result<()> {
    thread::scope(|scope| {
        while ready(&socket, PollFlags::IN, progress) {
            let Some(name) = wire::read_name(&mut socket)? else { break };
            let image = chain.find(&name);
            socket.write_all(&wire::exists(image.is_some()))?;
            let Some(image) = image else { continue };
            let pipe = wire::receive_pipe(&socket)?;
            let _ = rustix::pipe::fcntl_setpipe_size(&pipe, 1 << 20);
            let mut pipe = PipeWriter::new(File::from(pipe), progress);
            let changed = timers.filter(|_| name == timers::IMAGE);
            // On its own: CRIU may ask for another before it has read this.
            let give = move || match changed {
                // If CRIU has closed its end, it says why.
                Some(changed) => drop(pipe.write_all(&changed.files)),
                None => give(chain, image, pipe, threads, progress),
            };
            // Without a thread the pipe is closed, and CRIU gives up.
            Builder::new().name("image".into()).spawn_scoped(scope, give)?;
        }
        Ok(())
    })
}

/// The blocks of an image, put together.
struct Reading<'a> {
    chain: &'a Chain,
    image: usize,
    /// The image's size.
    bytes: u64,
    next: AtomicUsize,
}

#[derive(Default)]
struct Content {
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Work for Reading<'a> {
    type Buffer = Content;
    type Worker = Option<Reader<'a>>;
    type Error = ProcessError;

    fn next(&self, content: &mut Content) -> Option<Ticket> {
        let number = self.next.fetch_add(1, Ordering::Relaxed) as u64;
        content.start = number * BLOCK as u64;
        (content.start < self.bytes).then_some(Ticket::number(number))
    }

    fn run(
        &self,
        reader: &mut Option<Reader<'a>>,
        Content { start, bytes }: &mut Content,
    ) -> Result<(), ProcessError> {
        let reader = match reader {
            Some(reader) => reader,
            None => reader.insert(Reader::new(self.chain)?),
        };
        bytes.resize((self.bytes - *start).min(BLOCK as u64) as usize, 0);
        reader.read(self.image, *start, bytes)
    }
}

/// Writes an image to its pipe.
fn give(chain: &Chain, image: usize, mut pipe: PipeWriter<'_>, threads: usize, progress: &Progress) {
    // All were intact a moment ago: if one is not now, or CRIU has closed its end, the pipe ends here.
    let _ = write_image(chain, image, threads, |bytes| {
        let written = pipe.write_all(bytes);
        progress.advance(Phase::Pack, bytes.len() as u64);
        written
    });
}

/// Passes an image to `write` in pieces, until that fails. A piece that cannot be read is an error of its own.
pub(super) fn write_image(
    chain: &Chain,
    image: usize,
    threads: usize,
    mut write: impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<io::Result<()>, ProcessError> {
    let bytes = chain.images.get(image).map_or(0, |image| image.bytes);
    let work = Reading { chain, image, bytes, next: AtomicUsize::new(0) };
    // Most images are one block, for which this thread is enough.
    let blocks = bytes.div_ceil(BLOCK as u64) as usize;
    let threads = if blocks > 1 { threads.clamp(1, blocks) } else { 0 };
    let buffers = (0..2 * threads + 1).map(|_| Content::default());
    let mut ended = Ok(Ok(()));
    ordered(&work, "decompress", threads, buffers, |contents| {
        while let Some(content) = contents.recv() {
            ended = content.map(|content| write(&content.bytes));
            if !matches!(ended, Ok(Ok(()))) {
                return;
            }
        }
    });
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_of_machines_with_other_pages_are_refused() {
        let about = serde_json::json!({ "machine": "aarch64", "page_size": 16384 });
        check_machine(&about, "aarch64", 16384).unwrap();
        check_machine(&serde_json::json!({}), "x86_64", 4096).unwrap();
        let why = |machine, page| check_machine(&about, machine, page).unwrap_err().to_string();
        let expected = "the processes were saved on aarch64 with pages of 16 KiB, and this is aarch64 with pages of 4 KiB: restart them \
                        on a machine like the first";
        assert_eq!(why("aarch64", 4096), expected);
        assert!(why("x86_64", 16384).contains("and this is x86_64 with pages of 16 KiB"));
    }
}
