//! Taking a checkpoint: CRIU's images come through pipes, are kept in memory, and compressed and written behind it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Builder};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use pagehaul_codec::FrameCompressor;
use pagehaul_output::{CreateOptions, Naming, NewFile, Special};
use pagehaul_pool::spawn_up_to;
use pagehaul_run::{Phase, Progress};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::Serialize;

use super::container::{self, BLOCK, Block, HEADER, Image, Index};
use super::criu::{self, Criu};
use super::hold::{Hold, Script};
use super::tree::{self, Process};
use super::work_directory::{WorkDirectory, accept_criu};
use super::{place, wire};
use crate::arena::{Arena, Slice};
use crate::procfs::{self, Pid};
use crate::{ProcessError, limits};

/// Bytes of a pipe where the system allows it: fewer turns between CRIU and us.
const PIPE: usize = 1 << 20;

/// How a checkpoint is taken.
#[derive(Debug, Clone, Default)]
pub struct CheckpointOptions {
    /// Let the processes go on afterwards instead of ending them.
    pub leave_running: bool,
    /// zstd's level.
    pub level: i32,
    /// Threads that compress.
    pub threads: usize,
    /// Bytes of memory the images may take before they are compressed. None: half of what is available.
    pub max_memory: Option<u64>,
    /// Replace an existing file.
    pub overwrite: bool,
    /// CRIU, where it isn't to be searched on PATH.
    pub criu: Option<PathBuf>,
    /// More arguments for CRIU.
    pub arguments: Vec<String>,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckpointReport {
    /// The process, and its tree's size.
    pub pid: Pid,
    /// Processes in it.
    pub processes: usize,
    /// The container.
    pub output: String,
    /// CRIU's version.
    pub criu: String,
    /// Images CRIU wrote.
    pub images: usize,
    /// Bytes of them.
    pub image_bytes: u64,
    /// Bytes of the container.
    pub output_bytes: u64,
    /// Seconds the processes were frozen, as CRIU has it: until they went on, or were killed.
    pub frozen_seconds: f64,
    /// Seconds until CRIU had sent all images.
    pub criu_seconds: f64,
    /// Seconds for everything.
    pub seconds: f64,
    /// Whether memory was too short, so that CRIU had to wait for the compression.
    pub buffer_was_short: bool,
    /// Whether the processes go on.
    pub left_running: bool,
}

/// What a container says of where it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct About {
    pid: Pid,
    processes: usize,
    name: String,
    criu: String,
    pagehaul: &'static str,
    /// Seconds since 1970.
    time: u64,
}

/// Blocks by their image and their number in it.
type Blocks = BTreeMap<(usize, usize), Block>;

/// Data of an image on its way.
struct Piece {
    image: usize,
    number: usize,
    data: Data,
    length: usize,
}

/// Pages wait in the arena, and so does all but the beginning of other images, which are small mostly.
enum Data {
    Pages(Slice),
    Other(Vec<u8>),
}

/// A compressed piece.
struct Packed {
    image: usize,
    number: usize,
    bytes: usize,
    frame: Vec<u8>,
}

/// Saves a process and its descendants. If anything fails, they go on; they are killed only once the container is on the
/// disk.
pub fn checkpoint(
    pid: Pid,
    path: &Path,
    options: &CheckpointOptions,
    progress: &Progress,
) -> Result<CheckpointReport, ProcessError> {
    let begun = Instant::now();
    procfs::examine(pid)?;
    let criu = Criu::find(options.criu.as_deref())?;
    criu.check_arguments(&options.arguments)?;
    if !options.leave_running && !tree::can_signal() {
        return Err(ProcessError::Refused(
            "this kernel cannot signal processes by descriptors (pidfd_open), which Linux 5.3 and newer can; use \
             --leave-running"
                .into(),
        ));
    }
    let path = place(path);
    let create = CreateOptions {
        naming: Naming::WhenComplete,
        overwrite: options.overwrite,
        special: Special::No,
        private: true,
        sources: &[],
    };
    let mut output = NewFile::create(&path, create)?;
    let file = Arc::clone(output.file());
    let run = Run { pid, options, progress, criu, path: &path, file: &file };
    run.take(&mut output, begun)
}

struct Run<'a> {
    pid: Pid,
    options: &'a CheckpointOptions,
    progress: &'a Progress,
    criu: Criu,
    path: &'a Path,
    file: &'a File,
}

/// All images of a dump.
struct Images {
    images: Vec<Image>,
    /// Where their blocks end.
    end: u64,
    /// Seconds until the last one had come.
    seconds: f64,
}

impl Run<'_> {
    fn take(&self, output: &mut NewFile, begun: Instant) -> Result<CheckpointReport, ProcessError> {
        let before = tree::list(self.pid)?;
        let expected = tree::resident(&before);
        self.progress.expect(expected);
        let most = self.options.max_memory.unwrap_or_else(limits::half_of_available);
        // At least some blocks per thread, so that nobody waits for another's only one.
        let least = (self.options.threads as u64 + 2) * 4 * BLOCK as u64;
        let capacity = (expected + expected / 16 + least).min(most.max(least));
        let resource = |action| move |source| ProcessError::Resource { action, source };
        let arena = Arena::new(capacity as usize).map_err(resource("take memory for the images"))?;
        arena.populate(capacity as usize, self.options.threads);
        let work = WorkDirectory::new()?;
        let listener = work.listen("streamer-capture.sock")?;
        self.file.write_all_at(&container::header(true), 0).map_err(|source| self.output_error(source))?;
        self.progress.enter(Phase::Copy);
        let script = (!self.options.leave_running).then(|| Script::new(&work)).transpose()?;
        let mut arguments = vec!["-t".to_owned(), self.pid.to_string()];
        arguments.extend(self.options.arguments.iter().cloned());
        arguments.extend(match &script {
            // The last script is run first, so that a failure of others comes too late to matter.
            Some(script) => {
                let path = script.path.display().to_string();
                vec!["--leave-stopped".into(), "--action-script".into(), path]
            }
            None => vec!["--leave-running".into()],
        });
        let child = self.criu.start("dump", work.path(), "dump.log", &arguments)?;
        let mut guard =
            Guard { child, pid: self.pid, hold: None, before: script.is_some().then_some(before) };
        let Images { images, end, seconds: criu_seconds } =
            self.stream(&mut guard, listener, script, &arena, work.path())?;
        let image_bytes =
            images.iter().flat_map(|image| &image.blocks).map(|block| u64::from(block.bytes)).sum();
        let count = images.len();
        self.progress.enter(Phase::Finish);
        // Frozen, so that no process is missing from the list.
        let frozen = tree::list(self.pid)?;
        let processes = frozen.len();
        let output_bytes = self.finish(images, end, processes).map_err(|source| self.output_error(source))?;
        output.commit()?;
        if let Some(hold) = guard.hold.take() {
            // While CRIU traces them: they never get to run again, whatever becomes of this program.
            tree::kill(&frozen);
            hold.commit();
            guard.before = None;
            // It may complain that they are gone.
            let _ = guard.child.wait();
            tree::wait_for_end(&frozen);
        }
        Ok(CheckpointReport {
            pid: self.pid,
            processes,
            output: self.path.display().to_string(),
            criu: self.criu.version.clone(),
            images: count,
            image_bytes,
            output_bytes,
            frozen_seconds: criu::frozen_time(work.path()).unwrap_or(0) as f64 / 1e6,
            criu_seconds,
            seconds: begun.elapsed().as_secs_f64(),
            buffer_was_short: arena.was_starved(),
            left_running: self.options.leave_running,
        })
    }

    /// Takes all images. With a script, CRIU then holds the processes; otherwise it has ended.
    fn stream(
        &self,
        guard: &mut Guard,
        listener: UnixListener,
        script: Option<Script>,
        arena: &Arc<Arena>,
        work: &Path,
    ) -> Result<Images, ProcessError> {
        let (began, is_to_hold) = (Instant::now(), script.is_some());
        let failed = || self.criu.failed("save", work, "dump.log");
        let Some(socket) = accept_criu(&listener, &mut guard.child, self.progress) else {
            return Err(if self.progress.is_cancelled() {
                ProcessError::Cancelled(self.pid)
            } else {
                failed()
            });
        };
        let (send, pieces) = unbounded::<Piece>();
        let (done, packed) = bounded::<io::Result<Packed>>(2 * self.options.threads + 2);
        let names: Mutex<Vec<String>> = Mutex::default();
        let mut received = Ok(None);
        let no_thread = |source| ProcessError::Resource { action: "start a thread", source };
        let (blocks, criu_ok, seconds) = thread::scope(|scope| {
            // Without these CRIU's socket is closed, and it gives up.
            let write = || self.write(packed, arena);
            let writer = Builder::new().name("write".into()).spawn_scoped(scope, write).map_err(no_thread)?;
            let packer = || {
                let (pieces, done) = (pieces.clone(), done.clone());
                move || pack(self.options.level, arena, &pieces, &done, self.progress)
            };
            Builder::new().name("pack".into()).spawn_scoped(scope, packer()).map_err(no_thread)?;
            spawn_up_to(scope, "pack", self.options.threads.saturating_sub(1), packer);
            drop((pieces, done));
            thread::scope(|readers| {
                received = receive(socket, script, &names, |image, pages, pipe| {
                    let send = send.clone();
                    let drain = move || drain(image, pages, File::from(pipe), arena, &send, self.progress);
                    Builder::new().name("image".into()).spawn_scoped(readers, drain).map(drop)
                });
                if received.is_err() {
                    arena.close();
                }
            });
            drop(send);
            let criu_ok = match received {
                Ok(Some(_)) => true,
                _ => guard.child.wait().is_ok_and(|status| status.success()),
            };
            let seconds = began.elapsed().as_secs_f64();
            self.progress.enter(Phase::Pack);
            arena.drain();
            let blocks = writer.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
            Ok::<_, ProcessError>((blocks, criu_ok, seconds))
        })?;
        if self.progress.is_cancelled() {
            return Err(ProcessError::Cancelled(self.pid));
        }
        let (blocks, end) = blocks.map_err(|source| self.output_error(source))?;
        guard.hold =
            received.map_err(|source| ProcessError::Resource { action: "take CRIU's images", source })?;
        if !criu_ok || is_to_hold && guard.hold.is_none() {
            return Err(failed());
        }
        let names = names.into_inner().unwrap_or_default();
        let images = names.into_iter().enumerate().map(|(image, name)| {
            let blocks = blocks.range((image, 0)..(image + 1, 0)).map(|(_, block)| *block).collect();
            Image { name, blocks }
        });
        Ok(Images { images: images.collect(), end, seconds })
    }

    /// Writes blocks as they come. Gives them by image and number, and where they end.
    fn write(&self, packed: Receiver<io::Result<Packed>>, arena: &Arena) -> io::Result<(Blocks, u64)> {
        let mut blocks = Blocks::new();
        let mut offset = HEADER;
        for packed in packed {
            let written = packed.and_then(|packed| {
                self.file.write_all_at(&packed.frame, offset)?;
                Ok(packed)
            });
            let packed = match written {
                Ok(packed) => packed,
                Err(error) => {
                    // Whoever waits for room is not to wait any more.
                    arena.close();
                    return Err(error);
                }
            };
            let block = Block {
                offset,
                stored: packed.frame.len() as u32,
                bytes: packed.bytes as u32,
                checksum: container::checksum(&packed.frame),
            };
            blocks.insert((packed.image, packed.number), block);
            offset += packed.frame.len() as u64;
            self.progress.advance(Phase::Pack, packed.bytes as u64);
        }
        Ok((blocks, offset))
    }

    /// Index, footer, disk, and then the header without its mark. Gives the size of the container.
    fn finish(&self, images: Vec<Image>, end: u64, processes: usize) -> io::Result<u64> {
        let name = procfs::read_text(self.pid, "comm").unwrap_or_default().trim_end().to_owned();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let about = About {
            pid: self.pid,
            processes,
            name,
            criu: self.criu.version.clone(),
            pagehaul: env!("CARGO_PKG_VERSION"),
            time: now.map_or(0, |now| now.as_secs()),
        };
        let about = serde_json::to_string(&about).map_err(io::Error::other)?;
        let tail = container::tail(&Index { about, images }, end);
        self.file.write_all_at(&tail, end)?;
        self.file.sync_data()?;
        self.file.write_all_at(&container::header(false), 0)?;
        self.file.sync_data()?;
        Ok(end + tail.len() as u64)
    }

    fn output_error(&self, source: io::Error) -> ProcessError {
        ProcessError::Output { path: self.path.to_owned(), action: "write to", source }
    }
}

/// Takes CRIU's files one after the other; several may be open at a time. Ends when CRIU has run the action script, or
/// closed its socket. CRIU gives up when this closes it, with the pipes that are on their way.
fn receive(
    mut socket: UnixStream,
    script: Option<Script>,
    names: &Mutex<Vec<String>>,
    mut open: impl FnMut(usize, bool, OwnedFd) -> io::Result<()>,
) -> io::Result<Option<Hold>> {
    loop {
        if let Some(script) = &script {
            let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
            let mut sockets =
                [PollFd::new(&socket, PollFlags::IN), PollFd::new(&script.listener, PollFlags::IN)];
            match poll(&mut sockets, None) {
                Err(Errno::INTR) => continue,
                polled => polled?,
            };
            // CRIU has announced every file before it runs the script.
            if !ready(&sockets[0]) {
                match script.started()? {
                    Some(hold) => return Ok(Some(hold)),
                    None => continue,
                }
            }
        }
        let Some(name) = wire::read_name(&mut socket)? else { return Ok(None) };
        let pipe = wire::receive_pipe(&socket)?;
        // Where the limit for users is lower it stays as it is.
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe, PIPE);
        let pages = name.starts_with("pages-");
        let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
        names.push(name);
        open(names.len() - 1, pages, pipe)?;
    }
}

/// Makes sure that CRIU ends and the processes go on, whatever happens. CRIU is never killed: it has code of its own in
/// the processes until it is done. With its sockets and pipes closed it gives up and restores everything.
struct Guard {
    child: std::process::Child,
    pid: Pid,
    hold: Option<Hold>,
    /// The processes before CRIU was started, if it was told to leave them stopped.
    before: Option<Vec<Process>>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.hold = None;
        let _ = self.child.wait();
        // They are stopped only if the action script was killed.
        if let Some(before) = &self.before
            && let Ok(tree) = tree::list(self.pid)
        {
            tree::resume(&tree, before);
        }
    }
}

/// Reads one image from its pipe to its end.
fn drain(
    image: usize,
    pages: bool,
    mut pipe: File,
    arena: &Arc<Arena>,
    send: &Sender<Piece>,
    progress: &Progress,
) {
    for number in 0.. {
        // What is small does not wait for room; what turns out not to be, as files of a tmpfs, counts as pages do.
        let mut data = if pages || number > 0 {
            match arena.take(BLOCK) {
                Some(slice) => Data::Pages(slice),
                None => return,
            }
        } else {
            Data::Other(vec![0; BLOCK])
        };
        let buffer: &mut [u8] = match &mut data {
            Data::Pages(slice) => slice,
            Data::Other(bytes) => bytes,
        };
        let mut length = 0;
        while let Some(rest) = buffer.get_mut(length..).filter(|rest| !rest.is_empty()) {
            match pipe.read(rest) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        progress.advance(Phase::Copy, length as u64);
        if let Data::Other(bytes) = &mut data {
            bytes.truncate(length);
            bytes.shrink_to_fit();
        }
        if length == 0 || progress.is_cancelled() || send.send(Piece { image, number, data, length }).is_err()
        {
            return;
        }
    }
}

/// One compressing thread: waits until everything is there or memory is short, since while processes are frozen every
/// CPU is better spent on taking their memory.
fn pack(
    level: i32,
    arena: &Arena,
    pieces: &Receiver<Piece>,
    done: &Sender<io::Result<Packed>>,
    progress: &Progress,
) {
    arena.wait_until_needed();
    let mut compressor = match FrameCompressor::new(level) {
        Ok(compressor) => compressor,
        Err(error) => {
            let _ = done.send(Err(io::Error::other(error)));
            return;
        }
    };
    for piece in pieces {
        if progress.is_cancelled() {
            return;
        }
        let bytes: &[u8] = match &piece.data {
            Data::Pages(slice) => slice,
            Data::Other(bytes) => bytes,
        };
        let mut frame = Vec::new();
        let content = bytes.get(..piece.length).unwrap_or_default();
        let result = compressor.compress(content, &mut frame).map_err(io::Error::other);
        let packed = Packed { image: piece.image, number: piece.number, bytes: piece.length, frame };
        if done.send(result.map(|()| packed)).is_err() {
            return;
        }
    }
}
