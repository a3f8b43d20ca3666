//! Saving a process tree: CRIU's images come through pipes, stay in memory, and are compressed and written from there.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use crossbeam_channel::unbounded;
use pagehaul_output::{CreateOptions, Naming, NewFile, Special};
use pagehaul_pool::Workers;
use pagehaul_run::{Phase, Progress};
use rustix::io::Errno;

use super::base::{self, Base};
use super::compress::{Compressed, Compressing, Packed};
use super::container::{BLOCK, Image, Index, Origin, Run as ImageRun, container_path};
use super::criu::{self, Criu};
use super::ending;
use super::hold::{Hold, Script};
use super::huge_pages;
use super::images::{Drain, blocks, receive};
use super::kept::{Completed, Kept};
use super::losses;
use super::marks::Marks;
use super::options::{BaseReport, CheckpointOptions, CheckpointReport, Lost, PreCopyReport};
use super::own_options::{self, Action};
use super::page_list;
use super::perf;
use super::precopy::{Incremental, PreCopy, Spill, Spilled, Watch, seccomp};
use super::requirements::{self, Provided};
use super::tree::{self, Process};
use super::work_directory::{WorkDirectory, accept_criu};
use super::writer::Writer;
use crate::arena::Arena;
use crate::error::ProcessError;
use crate::error::no_thread;
use crate::units::{Pid, page_size};
use crate::urgent::Urgent;
use crate::{limits, oom, procfs};

/// Time that CRIU has to stop the processes. Its own, 10 seconds, begins before the last rounds of copying, for which it waits.
pub(super) const CRIU_TIMEOUT: Duration = Duration::from_secs(30);

/// Saves a process and its descendants. If anything fails, they go on; they are killed only once the container is on the
/// disk.
pub fn checkpoint(
    pid: Pid,
    path: &Path,
    options: &CheckpointOptions,
    progress: &Progress,
) -> Result<CheckpointReport, ProcessError> {
    let begun = Instant::now();
    oom::end_this_program_first();
    own_options::check(Action::Dump, &options.arguments)?;
    procfs::examine(pid)?;
    let criu = Criu::find(options.criu.as_deref(), progress)?;
    criu.check_arguments(&options.arguments, progress)?;
    if !options.leave_running && !tree::can_signal() {
        return Err(ProcessError::Refused(
            "this kernel cannot signal processes by descriptors (pidfd_open), which Linux 5.3 and newer can; use \
             --leave-running"
                .into(),
        ));
    }
    let path = container_path(path);
    let base = options.base.as_deref().map(|base| Base::open(base, pid)).transpose()?;
    let create = CreateOptions {
        naming: Naming::WhenComplete,
        overwrite: options.overwrite,
        special: Special::No,
        private: true,
        sources: &base.as_ref().map_or_else(Vec::new, Base::files),
    };
    let mut output = NewFile::create(&path, create)?;
    let mut writer = Writer::new(output.file(), &path, options.recipients.as_ref())?;
    let run = Run { pid, options, progress, criu, path: &path, base: base.as_ref(), id: id()? };
    run.take(&mut output, &mut writer, begun)
}

struct Run<'a> {
    pid: Pid,
    options: &'a CheckpointOptions,
    progress: &'a Progress,
    criu: Criu,
    path: &'a Path,
    base: Option<&'a Base>,
    /// The checkpoint's ID.
    id: String,
}

/// What CRIU connects to, and the directory that has this.
struct Sockets<'a> {
    listener: UnixListener,
    script: Script,
    work: &'a Path,
}

/// All images of a dump.
struct Images {
    images: Vec<Image>,
    /// Seconds until the last one had come.
    seconds: f64,
}

impl Run<'_> {
    fn take(
        &self,
        output: &mut NewFile,
        writer: &mut Writer,
        begun: Instant,
    ) -> Result<CheckpointReport, ProcessError> {
        let before = tree::list(self.pid)?;
        let Provided { arguments: provided, notes } =
            requirements::check(&before, &self.criu, &self.options.arguments, self.progress)?;
        if self.progress.is_cancelled() {
            return Err(ProcessError::Cancelled(self.pid));
        }
        let pageable = tree::resident(&before);
        let expected = pageable.saturating_add(huge_pages::resident(&before)?);
        self.progress.expect(expected);
        let most = self.options.max_memory.unwrap_or_else(limits::half_of_available);
        // They are good for one checkpoint, whether it succeeds or not.
        let root = before.first().copied().ok_or(ProcessError::NoProcess(self.pid))?;
        let marks = Marks::take(&root);
        if let Some(base) = self.base
            && marks.as_ref().is_none_or(|marks| marks.checkpoint != base.id())
        {
            base.verify(self.options.threads, self.progress)?;
        }
        if self.progress.is_cancelled() {
            return Err(ProcessError::Cancelled(self.pid));
        }
        self.progress.enter(Phase::Copy);
        let incremental = Incremental { marks, base: self.base, keeps_marks: self.options.keep_marks };
        let (level, threads) = (self.options.level, self.options.threads);
        let mut spill = Spill { writer, base: self.base, level, threads, failed: None };
        let copy = PreCopy::begin(&before, incremental, pageable, most, &mut spill, self.progress);
        if self.progress.is_cancelled() {
            return Err(ProcessError::Cancelled(self.pid));
        }
        if let Some(error) = spill.failed {
            return Err(self.output_error(error));
        }
        if root.is_dead() {
            return Err(ProcessError::Ended(self.pid));
        }
        let copied = copy.as_ref().map_or(0, PreCopy::bytes);
        // At least some blocks per thread, so that no thread waits for the only one of another.
        let least = (self.options.threads as u64 + 2) * 4 * BLOCK as u64;
        let rest = expected.saturating_sub(copy.as_ref().map_or(0, PreCopy::covered));
        let capacity = (rest + rest / 16 + least).min(most.saturating_sub(copied).max(least));
        let resource = |action| move |source| ProcessError::Resource { action, source };
        if let Ok(copy) = &copy {
            copy.limit(most.saturating_sub(capacity));
        }
        let arena = Arena::new(capacity as usize).map_err(resource("take memory for the images"))?;
        arena.populate(capacity as usize, self.options.threads);
        // Without it the pause is longer.
        let _events = perf::switch_on();
        let work = WorkDirectory::new()?;
        let listener = work.listen("streamer-capture.sock")?;
        let script = Script::new(&work)?;
        let arguments = arguments(self.pid, provided, self.options, &script.path);
        let opens = copy.as_ref().is_ok_and(PreCopy::watches_files);
        let (watched, watching) = seccomp::watch(self.pid, opens).map_err(resource("watch CRIU"))?;
        let watched = copy.is_ok().then_some(watched);
        let child =
            self.criu.start("dump", criu::Images::Streamed, work.path(), "dump.log", &arguments, watched)?;
        let mut guard = Guard {
            child,
            pid: self.pid,
            progress: self.progress,
            hold: None,
            before: (!self.options.leave_running).then_some(before),
            hung: None,
        };
        let watch = copy.and_then(|copy| {
            let refused = |error| format!("this system lets no program answer CRIU's system calls: {error}");
            let notifications = watching.notifications().map_err(refused)?;
            Watch::start(copy, notifications).map_err(refused)
        });
        // What was spilled is of no use.
        if watch.is_err() && writer.has_blocks() {
            *writer = Writer::new(output.file(), self.path, self.options.recipients.as_ref())?;
        }
        let sockets = Sockets { listener, script, work: work.path() };
        let streamed = self.stream(&mut guard, sockets, &arena, watch.as_ref().ok(), writer);
        let Images { images, seconds: criu_seconds } = match streamed {
            Ok(images) => images,
            Err(error) => {
                guard.release();
                if root.is_dead() {
                    return Err(ProcessError::Ended(self.pid));
                }
                return Err(guard.with_what_became_of_criu(error));
            }
        };
        let image_bytes = images.iter().map(Image::bytes).sum();
        let base_bytes = images.iter().map(Image::base_bytes).sum::<u64>();
        let count = images.len();
        self.progress.enter(Phase::Finish);
        // Frozen, so that no process is missing from the list, unless they are left running.
        let frozen = tree::list(self.pid)?;
        // Those that were left running may have ended by now.
        let processes = images.iter().filter(|image| image.is_of_a_process()).count().max(frozen.len());
        let ended = processes - frozen.len();
        let is_marked = watch.as_ref().is_ok_and(|watch| watch.copy().is_marked());
        let unused_bytes = images.iter().map(Image::unused_bytes).sum();
        let pre_copy =
            watch.as_ref().ok().map(|watch| PreCopyReport { unused_bytes, ..watch.copy().report() });
        let lost = {
            let copy = watch.as_ref().ok().map(Watch::copy);
            losses::find(&frozen, &self.criu, |pid| copy.as_ref().and_then(|copy| copy.flagged(pid)))
        };
        let output_bytes =
            self.finish(writer, images, processes, &lost).map_err(|source| self.output_error(source))?;
        output.commit()?;
        if let Some(hold) = guard.hold.take() {
            // While CRIU traces them: they never get to run again, whatever becomes of this program.
            tree::kill(&frozen);
            hold.commit();
            guard.before = None;
            // It may complain that they are gone.
            let _ = guard.wait();
            tree::wait_for_end(&frozen);
        }
        // Not before the checkpoint is on the disk: the next one relies on it.
        let marks_kept = self.options.keep_marks.then(|| match &watch {
            Ok(watch) => watch.copy().take_marks(&self.id).hold(&root).map_err(|error| error.to_string()),
            Err(reason) => Err(reason.clone()),
        });
        let no_marks = marks_kept.clone().and_then(Result::err);
        let no_marks = no_marks.map(|why| format!("writes are not marked until the next checkpoint: {why}"));
        let in_the_clear = (self.options.recipients.is_none() && self.base.is_some_and(Base::is_encrypted))
            .then(|| "the base is encrypted, and this checkpoint is not (--encrypt-to)".to_owned());
        Ok(CheckpointReport {
            pid: self.pid,
            processes,
            output: self.path.display().to_string(),
            criu: self.criu.version.clone(),
            images: count,
            base: self.options.base.as_ref().map(|path| BaseReport {
                path: path.display().to_string(),
                way: if is_marked { "marks" } else { "compared" },
                unchanged_bytes: base_bytes,
            }),
            image_bytes,
            output_bytes,
            frozen_seconds: criu::frozen_time(work.path()).unwrap_or(0) as f64 / 1e6,
            criu_seconds,
            pre_copy,
            no_pre_copy: watch.as_ref().err().cloned(),
            kept_marks: marks_kept == Some(Ok(())),
            seconds: begun.elapsed().as_secs_f64(),
            buffer_was_short: arena.was_starved(),
            left_running: self.options.leave_running,
            encrypted: self.options.recipients.is_some(),
            lost,
            notes: notes
                .into_iter()
                .chain(guard.hung.clone())
                .chain(no_marks)
                .chain(in_the_clear)
                .chain(losses::not_checked(ended))
                .collect(),
        })
    }

    /// Takes all images. CRIU then holds the processes, or has ended, if they are left running.
    fn stream(
        &self,
        guard: &mut Guard,
        Sockets { listener, script, work }: Sockets<'_>,
        arena: &Arc<Arena>,
        watch: Option<&Watch>,
        container: &mut Writer,
    ) -> Result<Images, ProcessError> {
        let (began, is_to_hold) = (Instant::now(), !self.options.leave_running);
        let failed = |guard: &mut Guard| {
            let ended = guard.wait();
            self.criu.failed("save", work, "dump.log", ended)
        };
        let Some(socket) = accept_criu(&listener, &mut guard.child, self.progress) else {
            return Err(if self.progress.is_cancelled() {
                ProcessError::Cancelled(self.pid)
            } else {
                // Nothing takes its connection any more.
                drop(listener);
                failed(guard)
            });
        };
        let (send, pieces) = unbounded();
        let threads = self.options.threads.max(1);
        let (level, pieces, progress) = (self.options.level, Mutex::new((0, pieces)), self.progress);
        let (base, common) = (self.base, OnceLock::new());
        let compressing = Compressing { level, arena, progress, pieces, base, common };
        let buffers = (0..3 * threads + 2).map(|_| Compressed::default());
        let mut workers = Workers::new(&compressing, "pack", buffers);
        let lane = workers.lane();
        let names: Mutex<Vec<String>> = Mutex::default();
        let lists = watch.map_or_else(Vec::new, |watch| watch.copy().lists());
        let (kept, mut is_listed, kept_lists) = (&Kept::default(), false, &Kept::default());
        let drain = Drain { arena, send: send.clone(), progress };
        let mut received = Ok(None);
        let mut spilled = HashMap::new();
        let (packed, criu_ok, seconds) = thread::scope(|scope| {
            // Without these CRIU's socket is closed, and it gives up.
            let write = || compressing.write(lane, container, |source| self.output_error(source));
            let writer = Builder::new().name("write".into()).spawn_scoped(scope, write).map_err(no_thread)?;
            if workers.create(scope, threads) == 0 {
                return Err(no_thread(Errno::AGAIN.into()));
            }
            drop(workers);
            // The processes wait for what follows.
            let urgent = Urgent::begin();
            thread::scope(|readers| {
                received = receive(socket, script, &names, progress, |image, name, pipe| {
                    let (drain, pages, pipe) = (drain.clone(), name.starts_with("pages-"), File::from(pipe));
                    let builder = Builder::new().name("image".into());
                    let is_list = lists.iter().any(|list| list == name);
                    let reader = if is_list || base.is_some() && page_list::is_list(name) {
                        let kept = if is_list { kept } else { kept_lists };
                        builder.spawn_scoped(readers, move || kept.read(image, pipe, progress))
                    } else if is_listed && pages {
                        // CRIU opens the image of the pages right after that of their list.
                        builder.spawn_scoped(readers, move || kept.read_pages(image, pipe, &drain))
                    } else {
                        builder.spawn_scoped(readers, move || drain.image(image, pages, pipe))
                    };
                    is_listed = is_list;
                    reader.map(drop)
                });
                if received.is_err() {
                    arena.close();
                }
            });
            let (mut went_on, is_cancelled) = (Ok(()), progress.is_cancelled());
            let criu_ok = match &mut received {
                Ok(Some(_)) if is_to_hold => true,
                // All pipes have been read to their ends.
                Ok(hold) => {
                    let hold = hold.take();
                    if is_cancelled {
                        // CRIU waits for it.
                        drop(hold);
                    } else {
                        went_on = hold.map_or_else(|| Err(Hold::ended_early()), Hold::let_go);
                    }
                    guard.wait().is_ok_and(|status| status.success())
                }
                Err(_) => guard.wait().is_ok_and(|status| status.success()),
            };
            drop(urgent);
            let seconds = began.elapsed().as_secs_f64();
            progress.enter(Phase::Pack);
            let completed = match watch {
                Some(watch) if criu_ok => kept.complete(&mut watch.copy(), &lock(&names)),
                _ => Ok(Vec::new()),
            };
            let completed = completed.map(|mut completed| {
                spilled.extend(completed.iter_mut().map(Completed::take_spilled));
                let others = kept_lists.take_kept();
                let of_others = others.iter().map(|(image, list)| (*image, list.as_slice()));
                let lists = completed.iter().map(|list| (list.image, list.list.as_slice())).chain(of_others);
                compressing.common.get_or_init(|| self.common(&lock(&names), lists));
                let lists = others.iter().flat_map(|(image, list)| blocks(*image, list, false));
                // It fails if the writer has, which says why.
                let mut pieces = lists.chain(completed.into_iter().flat_map(Completed::pieces));
                let _ = pieces.try_for_each(|piece| send.send(piece));
            });
            drop((send, drain));
            arena.drain();
            if let Some(watch) = watch.filter(|_| !is_to_hold && !self.options.keep_marks) {
                watch.copy().release();
            }
            let packed = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            if criu_ok {
                went_on?;
            }
            completed?;
            Ok::<_, ProcessError>((packed, criu_ok, seconds))
        })?;
        if self.progress.is_cancelled() {
            return Err(ProcessError::Cancelled(self.pid));
        }
        let packed = packed?;
        guard.hold =
            received.map_err(|source| ProcessError::Resource { action: "take CRIU's images", source })?;
        if !criu_ok || is_to_hold && guard.hold.is_none() {
            return Err(failed(guard));
        }
        let names = names.into_inner().unwrap_or_default();
        let images = names
            .into_iter()
            .enumerate()
            .map(|(number, name)| image(number, name, &packed, spilled.remove(&number).unwrap_or_default()));
        Ok(Images { images: images.collect(), seconds })
    }

    /// Which parts of the images of pages may be in the base, by the numbers of the images.
    fn common<'l>(
        &self,
        names: &[String],
        lists: impl Iterator<Item = (usize, &'l [u8])>,
    ) -> HashMap<usize, Vec<base::Part>> {
        let aligned = lists.filter_map(|(image, list)| self.base?.align(names.get(image)?, list));
        let number = |name: &String| names.iter().position(|other| other == name);
        aligned.filter_map(|(name, parts)| Some((number(&name)?, parts))).collect()
    }

    /// Completes the container. Returns the size of its file.
    fn finish(
        &self,
        writer: &mut Writer,
        images: Vec<Image>,
        processes: usize,
        lost: &[Lost],
    ) -> io::Result<u64> {
        let name = procfs::read_text(self.pid, "comm").unwrap_or_default().trim_end().to_owned();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let about = serde_json::json!({
            "pid": self.pid,
            "processes": processes,
            "name": name,
            "criu": self.criu.version,
            "id": self.id,
            "machine": std::env::consts::ARCH,
            "page_size": page_size(),
            "pagehaul": env!("CARGO_PKG_VERSION"),
            "lost": lost,
            // Seconds since 1970.
            "time": now.map_or(0, |now| now.as_secs()),
        });
        let needs_base = images.iter().any(|image| image.base_bytes() > 0);
        let base = self.base.filter(|_| needs_base).map(|base| base.reference(self.path)).transpose();
        let index = Index { about: about.to_string(), images, base: base.map_err(io::Error::other)? };
        writer.finish(&index)
    }

    fn output_error(&self, source: io::Error) -> ProcessError {
        ProcessError::Output { path: self.path.to_owned(), action: "write to", source }
    }
}

fn lock(names: &Mutex<Vec<String>>) -> MutexGuard<'_, Vec<String>> {
    names.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An image, of whose pieces `packed` has what became of them. Some of its pages were spilled or drained before.
fn image(number: usize, name: String, packed: &Packed, spilled: Spilled) -> Image {
    let pieces = || packed.range((number, 0)..(number + 1, 0)).map(|(_, piece)| piece);
    let mut runs: Vec<ImageRun> = Vec::new();
    // Without these the blocks are in order.
    let ahead = spilled.bytes + spilled.drained;
    let mut next = ahead;
    for run in pieces().flat_map(|piece| &piece.runs) {
        let from = match run.from {
            Origin::Next if ahead > 0 => Origin::Held(next),
            from => from,
        };
        next += if run.from == Origin::Next { run.bytes } else { 0 };
        base::push(&mut runs, ImageRun { from, ..*run });
    }
    if runs.iter().all(|run| run.from == Origin::Next) {
        runs.clear();
    }
    // Without runs an image is what its blocks hold.
    let spilled = spilled.blocks.into_iter().filter(|_| !runs.is_empty());
    let blocks = spilled.chain(pieces().filter_map(|piece| piece.block));
    Image { name, blocks: blocks.collect(), runs }
}

/// A number that no other checkpoint has.
fn id() -> Result<String, ProcessError> {
    let path = Path::new("/proc/sys/kernel/random/uuid");
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|source| ProcessError::Proc { path: path.to_owned(), source })?;
    Ok(text.trim().to_owned())
}

/// Makes sure that CRIU ends and the processes go on, whatever happens. With its sockets and pipes closed, CRIU gives up and
/// restores everything. If it does not end, [`ending::end_saving`] says what becomes of it.
struct Guard<'a> {
    child: std::process::Child,
    pid: Pid,
    progress: &'a Progress,
    hold: Option<Hold>,
    /// The processes before CRIU was started, if CRIU is to leave them stopped.
    before: Option<Vec<Process>>,
    /// What was done about a CRIU that did not end.
    hung: Option<String>,
}

impl Guard<'_> {
    /// Waits for CRIU's end, not forever.
    fn wait(&mut self) -> io::Result<ExitStatus> {
        if self.hung.is_none() {
            if let Some(status) = ending::wait(&mut self.child, Some(ending::PATIENCE), self.progress)? {
                return Ok(status);
            }
            self.hung = Some(ending::end_saving(&mut self.child, self.pid));
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "it did not end"))
    }

    /// Has the processes go on.
    fn release(&mut self) {
        self.hold = None;
        let _ = self.wait();
        // They are stopped only if the action script or CRIU was killed.
        if let Some(before) = self.before.take()
            && let Ok(tree) = tree::list(self.pid)
        {
            tree::resume(&tree, &before);
        }
    }

    /// Adds what became of a CRIU that did not end to the error that this led to.
    fn with_what_became_of_criu(&self, error: ProcessError) -> ProcessError {
        match &self.hung {
            Some(what) if matches!(error, ProcessError::Cancelled(_)) => {
                ProcessError::Refused(format!("stopped before anything was written; {what}"))
            }
            Some(what) => ProcessError::Refused(format!("{error}; {what}")),
            None => error,
        }
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if self.hung.is_none() {
            self.release();
        }
    }
}

/// The arguments of `criu dump`. Of an option that is there twice, CRIU takes the last.
fn arguments(pid: Pid, provided: Vec<String>, options: &CheckpointOptions, script: &Path) -> Vec<String> {
    let timeout = CRIU_TIMEOUT.as_secs().to_string();
    let mut arguments = ["-t", &pid.to_string(), "--timeout", &timeout].map(str::to_owned).to_vec();
    arguments.extend(provided);
    arguments.extend(options.arguments.iter().cloned());
    let left = if options.leave_running { "--leave-running" } else { "--leave-stopped" };
    // The last script is run first, so that a failure of others comes too late to matter.
    arguments.extend([left.into(), "--action-script".into(), script.display().to_string()]);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn criu_has_more_time_than_the_last_rounds_and_the_user_can_give_another() {
        let options =
            CheckpointOptions { arguments: vec!["--timeout=300".into()], ..CheckpointOptions::default() };
        let arguments = arguments(7, Vec::new(), &options, Path::new("script"));
        let at = |text: &str| arguments.iter().position(|argument| argument == text).unwrap();
        assert_eq!(arguments.get(at("--timeout") + 1).map(String::as_str), Some("30"));
        assert!(at("--timeout") < at("--timeout=300"), "{arguments:?}");
    }
}
